//! The mounts and their mount points, from mountinfo and the kernel side's names only: no mount is ever touched.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::{IpAddr, SocketAddr},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::PathBuf,
    rc::Rc,
};

use model::{Mount, MountKey, text::printable};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{
    filesystems::{self, FileSystem},
    kubelet::volume_of,
    watched_namespace,
};

/// One line of mountinfo (proc_pid_mountinfo(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// Mount id.
    pub id: u32,
    /// The superblock's key.
    pub device: MountKey,
    /// The part of the file system that is mounted: `/`, or a folder below it; for nsfs, which namespace.
    pub root: Vec<u8>,
    /// Names, safe to print.
    pub mount: Mount,
    /// The mount point's own bytes, unescaped.
    pub path: Vec<u8>,
    /// Whether a server or a daemon stands behind it.
    pub remote: bool,
    /// The server's address (`addr=`) and, if the options say so, its port.
    pub address: Option<(IpAddr, Option<u16>)>,
}

impl MountPoint {
    /// What is known of its type.
    pub fn filesystem(&self) -> &'static FileSystem {
        filesystems::of(&self.mount.fstype)
    }

    /// The key of the mount if the kernel side knows it by its source, as it knows SMB shares.
    pub(crate) fn source_key(&self) -> MountKey {
        if self.filesystem().named_by_share {
            MountKey::source(share(self.mount.source.as_bytes()))
        } else {
            self.device
        }
    }
}

/// Everything mounted in one mount namespace, in mount order.
#[derive(Debug, Clone, Default)]
pub struct Mounts {
    points: Vec<MountPoint>,
    by_key: HashMap<MountKey, usize>,
    /// A hash of the text that the mounts were read from.
    fingerprint: u64,
    /// The file is kept open so that the kernel can be asked whether anything has changed: reading ten thousand lines
    /// in vain takes 10 ms.
    source: Option<Rc<fs::File>>,
    /// Devices of remote mounts of other namespaces.
    foreign: Vec<MountKey>,
    /// Servers that mountinfo does not name and that probes have seen, each with one of its mounts.
    daemons: Vec<(SocketAddr, MountKey)>,
    /// Remote mounts that are no longer there, the latest last; [`GONE`] at most.
    gone: VecDeque<(MountKey, Mount)>,
}

/// The most removed mounts whose names are kept, for incidents that are not over yet.
const GONE: usize = 64;

impl Mounts {
    /// Those of the mount namespace that is watched ([`watched_namespace`]).
    ///
    /// # Errors
    /// When its mountinfo cannot be read.
    pub fn current() -> io::Result<Self> {
        let source = fs::File::open(mountinfo())?;
        // Opened before the mountinfo is read, so that a change during the reading counts as a change.
        has_changed(&source);
        Ok(Self { source: Some(Rc::new(source)), ..Self::parse(&fs::read(mountinfo())?) })
    }

    /// The mounts of this process's own namespace, in which its paths resolve.
    ///
    /// # Errors
    /// When `/proc/self/mountinfo` cannot be read.
    pub fn own() -> io::Result<Self> {
        Ok(Self::parse(&fs::read("/proc/self/mountinfo")?))
    }

    /// Reads the mountinfo of [`Mounts::current`] again, if the kernel says that there is news. Returns whether there was.
    pub(crate) fn refresh(&mut self) -> io::Result<bool> {
        if self.source.as_ref().is_some_and(|source| !has_changed(source)) {
            return Ok(false);
        }
        let text = fs::read(mountinfo())?;
        let changed = fingerprint(&text) != self.fingerprint;
        if changed {
            let before = std::mem::take(self);
            *self = Self {
                source: before.source.clone(),
                foreign: before.foreign.clone(),
                daemons: before.daemons.clone(),
                ..Self::parse(&text)
            };
            self.remember(before);
        }
        Ok(changed)
    }

    /// Takes over the names of mounts that are no longer there.
    fn remember(&mut self, before: Self) {
        let went = before.by_key.iter().filter_map(|(key, index)| Some((*key, before.points.get(*index)?)));
        let went = went.filter(|(key, point)| point.remote && !self.by_key.contains_key(key));
        let went: Vec<_> = went.map(|(key, point)| (key, point.mount.clone())).collect();
        self.gone = before.gone;
        self.gone.extend(went);
        self.gone.retain(|(key, _)| !self.by_key.contains_key(key));
        self.gone.drain(..self.gone.len().saturating_sub(GONE));
    }

    /// The mount that a key meant, if it is no longer there.
    pub(crate) fn gone(&self, key: MountKey) -> Option<&Mount> {
        self.gone.iter().rev().find(|(gone, _)| *gone == key).map(|(_, mount)| mount)
    }

    /// Notes the devices of remote mounts of other namespaces. Returns whether they differ from the noted ones.
    pub(crate) fn set_foreign(&mut self, devices: Vec<MountKey>) -> bool {
        let changed = self.foreign != devices;
        self.foreign = devices;
        changed
    }

    /// Notes servers that mountinfo does not name, each with one of its mounts. Returns whether they differ from the noted ones.
    pub(crate) fn set_daemons(&mut self, daemons: Vec<(SocketAddr, MountKey)>) -> bool {
        let changed = self.daemons != daemons;
        self.daemons = daemons;
        changed
    }

    /// These servers.
    pub(crate) fn daemons(&self) -> &[(SocketAddr, MountKey)] {
        &self.daemons
    }

    /// Devices of all remote mounts that are known, those of other namespaces included.
    pub(crate) fn remote_devices(&self) -> impl Iterator<Item = MountKey> {
        let here = self.points.iter().filter(|point| point.remote).map(|point| point.device);
        here.chain(self.foreign.iter().copied())
    }

    /// Parses the text of a mountinfo file; lines that are not understood are left out.
    pub fn parse(mountinfo: &[u8]) -> Self {
        let mut points: Vec<_> = mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line).collect();
        name_volumes(&mut points);
        let mut by_key = HashMap::with_capacity(points.len());
        for (index, point) in points.iter().enumerate() {
            // The first mount of a superblock names it: later ones are bind mounts more often than not.
            by_key.entry(point.device).or_insert(index);
            if point.filesystem().named_by_share {
                by_key.entry(point.source_key()).or_insert(index);
            }
        }
        Self { points, by_key, fingerprint: fingerprint(mountinfo), ..Self::default() }
    }

    /// The mount that a key means, if it is mounted here.
    pub fn get(&self, key: MountKey) -> Option<&MountPoint> {
        self.points.get(*self.by_key.get(&key)?)
    }

    /// Where the whole hierarchy of cgroup2 is mounted; the first place, if there are several.
    pub(crate) fn cgroup2(&self) -> Option<PathBuf> {
        let point = self.points.iter().find(|point| point.mount.fstype == "cgroup2" && point.root == b"/")?;
        Some(PathBuf::from(OsStr::from_bytes(&point.path)))
    }

    /// Network namespaces that are kept by a mount, and the mount points. Leaves out mount points that can only be
    /// reached through a remote mount.
    pub(crate) fn network_namespaces(&self) -> impl Iterator<Item = (u64, PathBuf)> {
        let remote: Vec<&[u8]> = self.points.iter().filter(|point| point.remote).map(|point| &*point.path).collect();
        let reached = move |point: &&MountPoint| !remote.iter().any(|above| is_below(&point.path, above));
        self.points.iter().filter(|point| point.mount.fstype == "nsfs").filter(reached).filter_map(|point| {
            let number = namespace_number("net", std::str::from_utf8(&point.root).ok()?)?;
            Some((number, PathBuf::from(OsStr::from_bytes(&point.path))))
        })
    }

    /// All mounts, in mount order.
    pub fn iter(&self) -> impl Iterator<Item = &MountPoint> {
        self.points.iter()
    }

    /// The mount whose mount point is exactly `path`, with a slash at its end or not; the topmost if there are several.
    pub fn at(&self, path: &[u8]) -> Option<&MountPoint> {
        let path = without_end_slashes(path);
        self.points.iter().rev().find(|point| point.path == path)
    }

    /// Mounts that the system-call probe names by path: the remote ones, and what is mounted below them.
    pub fn remote_and_below(&self) -> impl Iterator<Item = &MountPoint> {
        let remote: HashSet<&[u8]> =
            self.points.iter().filter(|point| point.remote).map(|point| point.path.as_slice()).collect();
        self.points.iter().filter(move |point| ancestors(&point.path).any(|above| remote.contains(above)))
    }
}

/// `/a/b`, `/a` and `/` of `/a/b`.
fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = (0..path.len()).rev().filter(|at| path.get(*at) == Some(&b'/'));
    let above = slashes.filter_map(|at| path.get(..at.max(1)));
    std::iter::once(path).chain(above.filter(move |above| above.len() < path.len()))
}

/// The mountinfo of the mount namespace that is watched. If the file is kept open, poll() reports POLLPRI when something is mounted
/// or unmounted (proc_pid_mounts(5)).
pub fn mountinfo() -> PathBuf {
    watched_namespace::proc_file("mountinfo")
}

/// Whether anything was mounted or unmounted since the last call with the same open file (mounts_poll() of
/// fs/proc_namespace.c).
fn has_changed(mountinfo: &fs::File) -> bool {
    let mut wanted = [PollFd::new(mountinfo.as_fd(), PollFlags::POLLPRI)];
    // If poll() fails, assume a change.
    poll(&mut wanted, PollTimeout::ZERO).map_or(true, |ready| ready > 0)
}

/// `/a` of `/a//`; the root stays `/`.
fn without_end_slashes(path: &[u8]) -> &[u8] {
    let mut path = path;
    while let Some(shorter) = path.strip_suffix(b"/").filter(|shorter| !shorter.is_empty()) {
        path = shorter;
    }
    path
}

fn fingerprint(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// `//server/share` of `//server/share/folder`: one tree serves all folders of a share.
pub(crate) fn share(source: &[u8]) -> &[u8] {
    let slashes = source.iter().enumerate().filter(|(_, byte)| matches!(byte, b'/' | b'\\'));
    slashes.map(|(index, _)| index).nth(3).and_then(|end| source.get(..end)).unwrap_or(source)
}

/// Whether `path` is `above` or lies below it.
pub fn is_below(path: &[u8], above: &[u8]) -> bool {
    let above = above.strip_suffix(b"/").unwrap_or(above);
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn parse_line(line: &[u8]) -> Option<MountPoint> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let mut device = fields.nth(1)?.split(|byte| *byte == b':');
    let device = MountKey::device(number(device.next()?)?, number(device.next()?)?);
    let root = unescape(fields.next()?);
    let path = unescape(fields.next()?);
    let path = without_end_slashes(&path).to_vec();
    // Optional fields end with a lone dash.
    let mut fields = fields.skip_while(|field| field != b"-").skip(1);
    let fstype = printable(fields.next()?);
    let source = printable(&unescape(fields.next()?));
    let options = fields.next().unwrap_or_default();
    let filesystem = filesystems::of(&fstype);
    let remote = filesystem.remote;
    let server = if remote { server_of(filesystem, &source, options) } else { String::new() };
    let address = if remote { address_of(options) } else { None };
    let mount = Mount { mountpoint: printable(&path), source, server, fstype, pv: String::new() };
    Some(MountPoint { id, device, root, mount, path, remote, address })
}

/// What `addr=` and `port=` say. An address of one link has its interface behind a `%`.
fn address_of(options: &[u8]) -> Option<(IpAddr, Option<u16>)> {
    let option = |name: &str| {
        let mut options = options.split(|byte| *byte == b',').filter_map(|option| std::str::from_utf8(option).ok());
        options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    };
    let address = option("addr")?.split('%').next()?.parse().ok()?;
    Some((address, option("port").and_then(|port| port.parse().ok())))
}

/// The server's name as it was mounted; its address (`addr=`) where the source does not say.
fn server_of(filesystem: &FileSystem, source: &str, options: &[u8]) -> String {
    if let Some(server) = (filesystem.server)(source).filter(|server| !server.is_empty()) {
        return server.into();
    }
    let address = options.split(|byte| *byte == b',').find_map(|option| option.strip_prefix(b"addr="));
    address.map(printable).unwrap_or_default()
}

/// 4026531840 of `net:[4026531840]`, if the kind is `net`.
pub(crate) fn namespace_number(kind: &str, text: &str) -> Option<u64> {
    text.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Names the persistent volumes. The kubelet mounts most volumes once for all pods (`globalmount`) and bind-mounts this mount into each pod, where
/// the path has the volume's name. A mount that would have two names gets none: two SMB volumes may be folders of one share.
fn name_volumes(points: &mut [MountPoint]) {
    let mut volumes: HashMap<MountKey, Option<String>> = HashMap::new();
    for point in points.iter_mut().filter(|point| point.remote) {
        let Some(volume) = volume_of(&point.mount.mountpoint) else { continue };
        let known = volumes.entry(point.source_key()).or_insert_with(|| Some(volume.to_owned()));
        if known.as_deref() != Some(volume) {
            *known = None;
        }
    }
    for point in points.iter_mut().filter(|point| point.remote && !volumes.is_empty()) {
        point.mount.pv = volumes.get(&point.source_key()).cloned().flatten().unwrap_or_default();
    }
}

/// Undoes mountinfo's octal escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                out.push(u8::try_from(value).unwrap_or(b'?'));
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"\
22 28 0:21 / /sys rw,nosuid - sysfs sysfs rw
28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
61 28 0:49 / /mnt/a\\040b rw,relatime shared:2 master:3 - cifs //10.0.0.1/Share/sub rw,vers=3.1.1,addr=10.0.0.1
62 28 0:50 / /mnt/n rw - nfs4 srv:/export rw,addr=10.0.0.2
63 62 0:51 / /mnt/n/tmp rw - tmpfs none rw
64 28 0:52 / /mnt/f rw - fuse.sshfs me@host:/x rw
garbage
";

    #[test]
    fn a_mount_is_found_by_device_and_an_smb_mount_by_its_share_too() {
        let mounts = Mounts::parse(LINES);
        let by_device = mounts.get(MountKey::device(0, 49)).unwrap();
        assert_eq!(by_device.mount.mountpoint, "/mnt/a b");
        assert_eq!(by_device.mount.server, "10.0.0.1");
        assert_eq!(mounts.get(MountKey::source(br"\\10.0.0.1\share")), Some(by_device));
        assert_eq!(mounts.get(MountKey(7)), None);
    }

    #[test]
    fn servers_are_named_as_they_were_mounted() {
        let mounts = Mounts::parse(LINES);
        let servers: Vec<_> = mounts.iter().filter(|m| m.remote).map(|m| m.mount.server.as_str()).collect();
        assert_eq!(servers, ["10.0.0.1", "srv", "me@host"]);
    }

    #[test]
    fn the_address_of_a_server_is_in_the_options() {
        let addresses = |options: &str| address_of(options.as_bytes());
        assert_eq!(addresses("rw,addr=10.0.0.1"), Some(([10, 0, 0, 1].into(), None)));
        assert_eq!(
            addresses("rw,mountaddr=1.2.3.4,port=2050,addr=fe80::1%eth0,x"),
            Some(("fe80::1".parse().unwrap(), Some(2050)))
        );
        assert_eq!(addresses("rw"), None);
    }

    #[test]
    fn what_is_mounted_below_a_remote_mount_is_told_apart_from_it() {
        let mounts = Mounts::parse(LINES);
        let paths: Vec<_> = mounts.remote_and_below().map(|m| m.mount.mountpoint.as_str()).collect();
        assert_eq!(paths, ["/mnt/a b", "/mnt/n", "/mnt/n/tmp", "/mnt/f"]);
    }

    #[test]
    fn a_mount_is_found_by_its_path_with_a_slash_at_the_end_or_without() {
        let mounts = Mounts::parse(LINES);
        let at = |path: &[u8]| mounts.at(path).map(|point| point.id);
        assert_eq!([at(b"/mnt/n"), at(b"/mnt/n/"), at(b"/mnt/n//")], [Some(62); 3]);
        assert_eq!([at(b"/"), at(b"/mnt/"), at(b"")], [Some(28), None, None]);
        let odd = Mounts::parse(b"66 28 0:54 / /mnt/o/ rw - nfs4 srv:/export rw\n");
        assert_eq!(odd.at(b"/mnt/o/").map(|point| point.id), Some(66));
    }

    #[test]
    fn cgroup2_is_where_all_of_it_is_mounted_and_namespaces_where_no_remote_mount_is_in_the_way() {
        let mounts = Mounts::parse(
            b"\
20 1 0:30 /docker/1 /mnt/part rw - cgroup2 cgroup2 rw
21 1 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
22 1 0:31 / /mnt/n rw - nfs4 srv:/ rw
23 1 0:4 net:[4026532177] /run/netns/a rw - nsfs nsfs rw
24 1 0:4 mnt:[4026532178] /run/ns/m rw - nsfs nsfs rw
25 1 0:4 net:[4026532179] /mnt/n/b rw - nsfs nsfs rw
",
        );
        assert_eq!(mounts.cgroup2(), Some("/sys/fs/cgroup/unified".into()));
        let namespaces: Vec<_> = mounts.network_namespaces().collect();
        assert_eq!(namespaces, [(4_026_532_177, "/run/netns/a".into())]);
    }

    #[test]
    fn a_remote_mount_that_is_gone_is_known_by_name_until_its_key_means_another() {
        let mut mounts = Mounts::parse(b"\n");
        mounts.remember(Mounts::parse(LINES));
        let name =
            |mounts: &Mounts, minor| mounts.gone(MountKey::device(0, minor)).map(|mount| mount.mountpoint.clone());
        assert_eq!(name(&mounts, 50).as_deref(), Some("/mnt/n"));
        assert_eq!(name(&mounts, 51), None, "a local one");
        assert_eq!(mounts.get(MountKey::device(0, 50)), None);
        let mut another = Mounts::parse(b"70 28 0:50 / /mnt/z rw - nfs4 srv:/other rw\n");
        another.remember(mounts);
        assert_eq!((name(&another, 50), name(&another, 52).as_deref()), (None, Some("/mnt/f")));
        let mut many = another;
        for minor in 0..200_u32 {
            let line = format!("70 28 1:{minor} / /mnt/{minor} rw - nfs4 srv:/{minor} rw\n");
            let mut next = Mounts::parse(line.as_bytes());
            next.remember(many);
            many = next;
        }
        assert_eq!((many.gone.len(), name(&many, 52)), (GONE, None));
    }

    #[test]
    fn a_mount_of_the_kubelet_s_has_its_volume_s_name_wherever_it_is_mounted() {
        let pods = "/var/lib/kubelet/pods/0f9b7c3e-8a51-4d52-b1de-3c2f5a6e7d80/volumes";
        let mounts = Mounts::parse(
            format!(
                "\
61 28 0:49 / /var/lib/kubelet/plugins/kubernetes.io/csi/nfs.csi.k8s.io/1a/globalmount rw - nfs4 srv:/a rw
62 28 0:49 / {pods}/kubernetes.io~csi/pvc-1/mount rw - nfs4 srv:/a rw
63 28 0:50 / {pods}/kubernetes.io~csi/pvc-2/mount rw - cifs //srv/share/a rw
64 28 0:51 / {pods}/kubernetes.io~csi/pvc-3/mount rw - cifs //srv/share/b rw
65 28 0:52 / {pods}/kubernetes.io~nfs/data rw - nfs4 srv:/b rw
66 28 0:53 / {pods}/kubernetes.io~empty-dir/tmp rw - tmpfs none rw
67 28 0:54 / /mnt/n rw - nfs4 srv:/c rw
"
            )
            .as_bytes(),
        );
        let volumes: Vec<_> = mounts.iter().map(|point| point.mount.pv.as_str()).collect();
        assert_eq!(volumes, ["pvc-1", "pvc-1", "", "", "data", "", ""]);
    }

    #[test]
    fn orangefs_is_a_network_file_system() {
        let mounts = Mounts::parse(b"65 28 0:53 / /mnt/o rw - pvfs2 tcp://srv:3334/orangefs rw\n");
        assert!(mounts.iter().all(|point| point.remote));
    }

    #[test]
    fn a_path_is_below_another_only_at_a_slash() {
        assert!(is_below(b"/mnt/a/b", b"/mnt/a") && is_below(b"/mnt/a", b"/mnt/a/") && is_below(b"/x", b"/"));
        assert!(!is_below(b"/mnt/ab", b"/mnt/a"));
    }
}
