//! Switches timestamping on for the selected sockets, and off for others, in every network namespace. This includes
//! sockets that existed before.
//!
//! A socket keeps its timestamping flag when the program that set it ends. So the flag is cleared at the end; if a
//! process was killed, the next one clears its flags. Several processes may stamp at a time, such as the daemon and
//! `plumbline net`. The last of them clears all flags; the others leave the flags of mounts' sockets to it.

use std::{
    collections::HashSet,
    fs,
    net::IpAddr,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use libbpf_rs::{
    ErrorExt as _, Link, MapCore, MapFlags, MapHandle, Object, Program,
    query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter},
};
use model::MountKey;

use super::{ConnectionSelection, Others, SendTimes, TcpInfo, namespaces::read_everywhere};
use crate::{
    batches,
    generated::{Plain, selection},
    mounts::{MountPoint, Mounts},
    tasks::Symbols,
};

const STAMP: &str = "plumb_stamp";
const FULL: &[&str] = &["call_begins", "data_ready", "data_read", "segment_came"];

/// The loaded object's iterators, attached programs and maps.
pub(crate) struct Stamping {
    look: Link,
    /// `None` where the kernel has no timestamping.
    choose: Option<Link>,
    stamp: Option<Link>,
    full: Vec<Link>,
    /// The log has the warning that there is no cgroup2.
    warned: bool,
    settings: MapHandle,
    flows: MapHandle,
    wanted: ConnectionSelection,
    /// As of the last reading of the mounts, as are the next two.
    places: SystemMounts,
    servers: Vec<u8>,
    ceph: Option<CephSockets>,
}

/// The mount point of cgroup2, and the mounts that keep network namespaces.
#[derive(Default)]
struct SystemMounts {
    cgroup2: Option<PathBuf>,
    namespaces: Vec<(u64, PathBuf)>,
}

/// How sockets of the kernel's Ceph client are recognized: the client talks to many hosts, of which mountinfo names
/// few.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CephSockets {
    /// The address of the function that they call when data arrives.
    data_ready: u64,
    /// The first Ceph mount: a socket does not show to which of several mounts it belongs.
    mount: MountKey,
}

impl Stamping {
    /// Prepares a loaded object; no connection is selected yet.
    pub fn new(object: &mut Object) -> libbpf_rs::Result<Self> {
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            map.map(|map| MapHandle::try_from(&map)).ok_or_else(|| missing(name))?
        };
        let (settings, flows) = (map("selection")?, map("flows")?);
        let look = iterator(object, "look")?.ok_or_else(|| missing("look"))?;
        let choose = iterator(object, "choose")?;
        let (wanted, places) = (ConnectionSelection::default(), SystemMounts::default());
        Ok(Self {
            look,
            choose,
            stamp: None,
            full: vec![],
            warned: false,
            settings,
            flows,
            wanted,
            places,
            servers: vec![],
            ceph: None,
        })
    }

    /// Whether this is the current selection.
    pub fn is_of(&self, selection: &ConnectionSelection) -> bool {
        self.wanted == *selection
    }

    /// Changes the selection. Clears the flag of all other sockets, unless another process stamps sockets.
    pub fn select(
        &mut self,
        object: &mut Object,
        wanted: &ConnectionSelection,
        mounts: &Mounts,
    ) -> libbpf_rs::Result<()> {
        self.wanted = wanted.clone();
        self.follow(object, mounts)?;
        let others = others_stamp(object);
        self.write(&Clear { mounts: !others, others: !others, only_own: false })?;
        self.choose().map(|_| ())
    }

    /// Updates servers, Ceph mount and attached programs after a change of mounts.
    pub fn follow(&mut self, object: &mut Object, mounts: &Mounts) -> libbpf_rs::Result<()> {
        self.places = SystemMounts { cgroup2: mounts.cgroup2(), namespaces: mounts.network_namespaces().collect() };
        let (servers, ceph) = (servers(object), self.ceph(mounts));
        let is_new = servers != self.servers || ceph != self.ceph;
        (self.servers, self.ceph) = (servers, ceph);
        let needed = (self.choose.is_some() || self.wanted.full)
            && (self.wanted.others.is_some()
                || (self.wanted.mounts && (!self.servers.is_empty() || self.ceph.is_some())));
        let is_attached = self.stamp.is_some() || !self.full.is_empty();
        if needed && !is_attached {
            self.attach(object)?;
        }
        if !is_new && needed == is_attached {
            return Ok(());
        }
        // Clears the flag of own sockets whose mount is gone.
        self.write(&Clear { mounts: false, others: true, only_own: true })?;
        if needed || is_attached {
            self.choose()?;
        }
        if !needed {
            self.stamp = None;
            self.full.clear();
        }
        Ok(())
    }

    fn ceph(&self, mounts: &Mounts) -> Option<CephSockets> {
        let find = |point: &MountPoint| Some((point.device, point.filesystem().data_ready?));
        let (mount, function) = mounts.iter().find_map(find)?;
        if let Some(known) = self.ceph {
            return Some(CephSockets { mount, ..known });
        }
        let symbols =
            Symbols::load().inspect_err(|error| tracing::debug!(%error, "the kernel's symbols are not known"));
        let Some(data_ready) = symbols.ok().and_then(|symbols| symbols.address(function)) else {
            tracing::warn!(
                "connections of the Ceph client are not told from others: the kernel hides where its functions are"
            );
            return None;
        };
        Some(CephSockets { data_ready, mount })
    }

    fn attach(&mut self, object: &mut Object) -> libbpf_rs::Result<()> {
        let cgroup = self.wanted.cgroup.as_ref().or(self.places.cgroup2.as_ref());
        if cgroup.is_none() && self.choose.is_some() && !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                "sends are not timed, since no cgroup2 is mounted; `mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified`, say"
            );
        }
        for program in object.progs_mut().filter(|program| program.autoload()) {
            if program.name() == STAMP {
                let Some(cgroup) = cgroup else { continue };
                let folder = fs::File::open(cgroup)
                    .map_err(libbpf_rs::Error::from)
                    .with_context(|| format!("cannot open the cgroup {}", cgroup.display()))?;
                let link = program.attach_cgroup(folder.as_raw_fd());
                self.stamp = Some(link.with_context(|| format!("cannot attach to the cgroup {}", cgroup.display()))?);
            } else if self.wanted.full && FULL.iter().any(|name| program.name() == *name) {
                self.full.push(program.attach()?);
            }
        }
        Ok(())
    }

    fn write(&self, clear: &Clear) -> libbpf_rs::Result<()> {
        let ConnectionSelection { mounts, others, cgroup, every_send, .. } = &self.wanted;
        let (cgroup, level) = match cgroup {
            Some(path) => (fs::metadata(path)?.ino(), level(path, self.places.cgroup2.as_deref())),
            None => (0, 0),
        };
        let Others { port, address, share } = others.clone().unwrap_or_default();
        let raw = selection {
            address: address.map(octets).unwrap_or_default(),
            cgroup,
            level,
            share: share.unwrap_or(1 << 16),
            port,
            ceph: self.ceph.map_or(0, |ceph| ceph.data_ready),
            ceph_mount: self.ceph.map_or(0, |ceph| ceph.mount.0),
            has_address: address.is_some().into(),
            mounts: (*mounts).into(),
            others: others.is_some().into(),
            every: (*every_send).into(),
            clear_mounts: clear.mounts.into(),
            clear_others: clear.others.into(),
            only_own: clear.only_own.into(),
            ..selection::default()
        };
        self.settings.update(&0_u32.to_ne_bytes(), raw.as_bytes(), MapFlags::ANY)
    }

    /// Walks all sockets. Returns how many lost the flag.
    fn choose(&self) -> libbpf_rs::Result<usize> {
        let walk = |choose| read_everywhere(choose, &self.places.namespaces).map(|bytes| bytes.len());
        self.choose.as_ref().map_or(Ok(0), walk)
    }

    /// Clears the flag of all sockets that have it, and returns their number. If another process stamps sockets,
    /// mounts' sockets keep it. `only_own`: and then only sockets that this object has stamped lose it.
    pub fn clear(&mut self, object: &Object, only_own: bool) -> libbpf_rs::Result<usize> {
        let others = others_stamp(object);
        self.wanted = ConnectionSelection::default();
        self.write(&Clear { mounts: !others, others: true, only_own: only_own && others })?;
        self.choose()
    }

    /// Clears the flags that this object has set.
    pub fn end(&mut self, object: &Object) {
        if self.choose.is_none() || self.wanted == ConnectionSelection::default() {
            return;
        }
        if let Err(error) = self.clear(object, true) {
            tracing::warn!(%error, "cannot take timestamping back from sockets; `plumbline net --clear` does");
        }
    }

    /// Whether sockets may be stamped now.
    pub fn stamps(&self) -> bool {
        self.stamp.is_some()
    }

    /// The selected connections, as TCP itself knows them.
    pub fn connections(&self) -> libbpf_rs::Result<Vec<TcpInfo>> {
        Ok(TcpInfo::decode_all(&read_everywhere(&self.look, &self.places.namespaces)?))
    }

    /// Without stamps, no program notices that a connection closes. So this forgets the flows of connections that are
    /// not `here`.
    pub fn forget_all_but(&self, here: &[TcpInfo], flows: &[SendTimes]) {
        if self.choose.is_some() {
            return;
        }
        let here: HashSet<u64> = here.iter().map(|connection| connection.cookie).collect();
        for gone in flows.iter().filter(|flow| !here.contains(&flow.cookie)) {
            let _ = self.flows.delete(&gone.cookie.to_ne_bytes());
        }
    }

    /// The times of stamped connections. A closed one is returned once more, and then forgotten.
    pub fn flows(&self) -> libbpf_rs::Result<Vec<SendTimes>> {
        let mut flows = Vec::new();
        batches::each(&self.flows, |key, value| flows.extend(SendTimes::decode(key, value)))?;
        for closed in flows.iter().filter(|flow| flow.closed != 0) {
            let _ = self.flows.delete(&closed.cookie.to_ne_bytes());
        }
        Ok(flows)
    }
}

/// Which of the sockets that are not selected lose their flag; see `struct selection`.
struct Clear {
    mounts: bool,
    others: bool,
    only_own: bool,
}

fn missing(what: &str) -> libbpf_rs::Error {
    std::io::Error::other(format!("the tcp probe's object has no {what}")).into()
}

fn iterator(object: &mut Object, name: &str) -> libbpf_rs::Result<Option<Link>> {
    let program = object.progs_mut().find(|program| program.autoload() && program.name() == name);
    program.map(|program| program.attach()).transpose()
}

/// The content of the map `servers`, sorted, to notice changes.
fn servers(object: &Object) -> Vec<u8> {
    let Some(map) = object.maps().find(|map| map.name() == "servers") else { return Vec::new() };
    let with_mount = |mut server: Vec<u8>| {
        server.extend(map.lookup(&server, MapFlags::ANY).ok().flatten().unwrap_or_default());
        server
    };
    let mut servers: Vec<_> = map.keys().map(with_mount).collect();
    servers.sort_unstable();
    servers.concat()
}

/// Whether another process stamps sockets now.
fn others_stamp(object: &Object) -> bool {
    let own = object.progs().find(|program| program.name() == STAMP && program.autoload());
    let own = own.and_then(|program| Program::id_from_fd(program.as_fd()).ok());
    let attached = LinkInfoIter::default().filter(|link| matches!(link.info, LinkTypeInfo::Cgroup(_)));
    let programs: Vec<u32> = attached.map(|link| link.prog_id).filter(|id| Some(*id) != own).collect();
    !programs.is_empty()
        && ProgInfoIter::default().any(|program| programs.contains(&program.id) && program.name == STAMP)
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A cgroup's level: how far it is below the root of its hierarchy.
fn level(path: &Path, root: Option<&Path>) -> u32 {
    let below = root.and_then(|root| path.strip_prefix(root).ok());
    below.map_or(0, |below| u32::try_from(below.components().count()).unwrap_or(0))
}
