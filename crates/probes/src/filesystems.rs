//! What is known of the types of file systems, in one table for the whole program.

use model::Protocol;

use crate::protocols;

/// One type, by its name in mountinfo. An unknown fact is `None`, `false` or empty.
#[derive(Debug)]
pub struct FileSystem {
    /// `cifs`, `nfs4`, `fuse.sshfs`.
    pub name: &'static str,
    /// Its superblocks' magic numbers, the usual one first; several types may share one.
    pub magics: &'static [u32],
    /// Whether a server or a daemon stands behind it.
    pub remote: bool,
    /// The port of the type's servers, if the mount options name no other port.
    pub port: Option<u16>,
    /// How to find the server in a mount's source: the host of `//host/share`.
    pub server: fn(&str) -> Option<&str>,
    /// Whether the kernel side knows its mounts by their source (`//server/share`) and not only by their device.
    pub named_by_share: bool,
    /// The function that the type's sockets call when data arrives. The kernel side recognizes the sockets by this
    /// function if mountinfo does not name all servers.
    pub data_ready: Option<&'static str>,
    /// The kernel modules of the type's client, if the client is built as modules.
    pub modules: &'static [&'static str],
}

/// A type of which nothing is known.
const LOCAL: FileSystem = FileSystem {
    name: "",
    magics: &[],
    remote: false,
    port: None,
    server: |_| None,
    named_by_share: false,
    data_ready: None,
    modules: &[],
};
const REMOTE: FileSystem = FileSystem { remote: true, ..LOCAL };
const SMB: FileSystem = FileSystem {
    magics: &[0xff53_4d42, 0xfe53_4d42],
    port: Some(445),
    server: |source| source.trim_start_matches('/').split('/').next(),
    named_by_share: true,
    modules: &["cifs"],
    ..REMOTE
};
const NFS: FileSystem = FileSystem {
    magics: &[0x6969],
    port: Some(2049),
    server: before_path,
    modules: &["nfs", "nfsv3", "nfsv4", "sunrpc", "rpcrdma"],
    ..REMOTE
};
const FUSE_MAGIC: &[u32] = &[0x6573_5546];
const FUSE: FileSystem = FileSystem { modules: &["fuse"], ..REMOTE };

/// Every type of which something is known. The magic numbers come from include/uapi/linux/magic.h and the file systems' own
/// headers. The numbers of remote types are in bpf/files.h, too; a test checks that both lists agree.
static TABLE: &[FileSystem] = &[
    FileSystem { name: "cifs", ..SMB },
    FileSystem { name: "smb3", ..SMB },
    FileSystem { name: "nfs", ..NFS },
    FileSystem { name: "nfs4", ..NFS },
    FileSystem {
        name: "ceph",
        magics: &[0x00c3_6400],
        server: before_path,
        data_ready: Some("ceph_sock_data_ready"),
        modules: &["ceph", "libceph"],
        ..REMOTE
    },
    FileSystem { name: "fuse", magics: FUSE_MAGIC, ..FUSE },
    // `me@host:/x`.
    FileSystem { name: "fuse.sshfs", server: |source| source.split_once(':').map(|(host, _)| host), ..FUSE },
    FileSystem { name: "fuseblk", ..FUSE },
    FileSystem { name: "virtiofs", magics: FUSE_MAGIC, modules: &["fuse", "virtiofs"], ..REMOTE },
    FileSystem { name: "9p", magics: &[0x0102_1997], ..REMOTE },
    // The kernel's own, and OpenAFS.
    FileSystem { name: "afs", magics: &[0x6b41_4653, 0x5346_414f], ..REMOTE },
    FileSystem { name: "coda", magics: &[0x7375_7245], ..REMOTE },
    FileSystem { name: "lustre", magics: &[0x0bd0_0bd0], ..REMOTE },
    FileSystem { name: "beegfs", magics: &[0x1983_0326], ..REMOTE },
    FileSystem { name: "gpfs", magics: &[0x4750_4653], ..REMOTE },
    // OrangeFS calls itself so (fs/orangefs/super.c).
    FileSystem { name: "pvfs2", magics: &[0x2003_0528], ..REMOTE },
    FileSystem { name: "ext4", magics: &[0xef53], ..LOCAL },
    FileSystem { name: "xfs", magics: &[0x5846_5342], ..LOCAL },
    FileSystem { name: "btrfs", magics: &[0x9123_683e], ..LOCAL },
    FileSystem { name: "tmpfs", magics: &[0x0102_1994], ..LOCAL },
    FileSystem { name: "overlay", magics: &[0x794c_7630], ..LOCAL },
];

/// What is known of a type. For `fuse.x`, that is what is known of `fuse`, except where the table has an entry for
/// `fuse.x`.
pub fn of(name: &str) -> &'static FileSystem {
    static UNKNOWN: FileSystem = LOCAL;
    static SOME_FUSE: FileSystem = FUSE;
    let is_fuse = name.starts_with("fuse.") || name.starts_with("fuseblk.");
    let known = TABLE.iter().find(|filesystem| filesystem.name == name);
    known.unwrap_or(if is_fuse { &SOME_FUSE } else { &UNKNOWN })
}

/// Every type of which something is known.
pub fn all() -> impl Iterator<Item = &'static FileSystem> {
    TABLE.iter()
}

/// The protocol whose requests serve mounts of this type.
pub(crate) fn protocol_of(name: &str) -> Option<&'static Protocol> {
    // `fuse.sshfs` is served as `fuse` is.
    let kind = name.split_once('.').map_or(name, |(kind, _)| kind);
    protocols().find(|protocol| protocol.filesystems.contains(&kind))
}

/// The types that can be asked for by name in [`crate::Filter::magic`].
pub fn with_magic() -> impl Iterator<Item = &'static str> {
    all().filter(|filesystem| !filesystem.magics.is_empty()).map(|filesystem| filesystem.name)
}

/// The superblock magic number of a type; several types may share one.
pub fn magic_of(name: &str) -> Option<u32> {
    of(name).magics.first().copied()
}

/// Server and type of a mount that the kernel side names by its source: `//server/share` and `//server` of SMB, `server:` of NFS,
/// the path of the socket of a libcephfs proxy.
pub(crate) fn of_source(source: &str) -> (&str, &'static str) {
    match source.strip_prefix("//") {
        Some(share) => (share.split('/').next().unwrap_or_default(), "cifs"),
        None if source.starts_with('/') => ("", "cephfs"),
        None => (source.strip_suffix(':').unwrap_or(source), "nfs"),
    }
}

/// `server` of `server:/export`.
fn before_path(source: &str) -> Option<&str> {
    source.rsplit_once(":/").map(|(server, _)| server)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_kernel_side_watches_the_same_types() {
        let is_remote =
            include_str!("bpf/files.h").split("is_remote(").nth(1).unwrap().split("return true").next().unwrap();
        let number = |line: &str| {
            let digits = line.trim().strip_prefix("case 0x")?.split(':').next()?;
            Some(u32::from_str_radix(digits, 16).unwrap())
        };
        let theirs: BTreeSet<_> = is_remote.lines().filter_map(number).collect();
        let ours =
            all().filter(|filesystem| filesystem.remote).flat_map(|filesystem| filesystem.magics.iter().copied());
        assert_eq!(theirs, ours.collect());
    }

    #[test]
    fn every_name_is_there_once() {
        let names: BTreeSet<_> = all().map(|filesystem| filesystem.name).collect();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn what_fuse_serves_is_remote_and_what_nobody_knows_is_not() {
        let remote = |name| of(name).remote;
        assert!(remote("fuse.of-mine") && remote("fuseblk.ntfs") && remote("fuse.sshfs") && remote("cifs"));
        assert!(!remote("ext4") && !remote("fusebox") && !remote(""));
        assert_eq!((of("fuse.sshfs").server)("me@host:/x"), Some("me@host"));
    }

    #[test]
    fn what_the_kernel_side_calls_by_its_source_has_its_server_in_it() {
        assert_eq!(of_source("//srv/share"), ("srv", "cifs"));
        assert_eq!(of_source("srv:"), ("srv", "nfs"));
        assert_eq!(of_source("/run/libcephfsd.sock"), ("", "cephfs"));
    }
}
