//! Calls of the kernel's NFS client, versions 3 and 4, one event per call.

pub(crate) mod status;

use libbpf_rs::OpenObject;
use model::{Detail, Direction, FileNames, Level, Nfs, Protocol};

use crate::{
    Alias, columns,
    decode::text,
    generated::probe_id,
    probe::Probe,
    spec::{RequiredModule, Rung, Spec},
    tasks::Symbols,
};

pub(crate) static SPEC: Spec = Spec {
    name: "nfs",
    protocol: &PROTOCOL,
    id: probe_id::PROBE_NFS,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/nfs.bpf.o")),
    // The hooks are in sunrpc. sunrpc is loaded only when something uses it, but this need not be an NFS mount.
    module: Some(RequiredModule { name: "nfs", load: "mount an NFS export, or `modprobe nfs`", hooks: Some("sunrpc") }),
    rungs: &[
        Rung {
            via: "tp_btf",
            required: &["look", "tp_started", "tp_finished", "tp_freed"],
            optional: &["fentry_received", "fentry_restarted", "fentry_restarted_prepare"],
            without: WITHOUT,
        },
        Rung {
            via: "kprobe",
            required: &["look", "kprobe_started", "kprobe_finished", "kprobe_freed"],
            optional: &["kprobe_received", "kprobe_restarted", "kprobe_restarted_prepare"],
            without: WITHOUT,
        },
    ],
    inflight: &["inflight"],
    detail: |raw| {
        Detail::Nfs(Nfs {
            xid: raw.message,
            session: raw.session,
            slot: raw.tree,
            sequence: raw.sequence,
            resent: raw.resent,
            inode: raw.inode,
            name: text(&raw.file),
        })
    },
    columns: columns::REMOTE,
    line: |event, line| {
        if let Detail::Nfs(nfs) = event.detail {
            let in_session = nfs.session != 0;
            (line.session, line.xid, line.resent) = (nfs.session, Some(nfs.xid), Some(nfs.resent));
            (line.slot, line.sequence) = (in_session.then_some(nfs.slot), in_session.then_some(nfs.sequence));
        }
    },
    aliases: &[Alias::of("nfsslower", 10.0), Alias::of("nfsiosnoop", 0.0)],
    probe: || Box::new(NfsProbe),
    ..Spec::BASE
};

const WITHOUT: &str = "the end of a large answer (its arrival counts as delivery), and calls that the client repeats";

/// Operations by the client's own names (`p_name` in fs/nfs/nfs4xdr.c and nfs3xdr.c), the code being the place in this
/// list; version 3 and 4 share what they have in common. The first are known to the kernel side: `enum operation`.
pub static PROTOCOL: Protocol = Protocol {
    name: "nfs",
    operations: &[
        "NULL",
        "READ",
        "READ_PLUS",
        "WRITE",
        "COMMIT",
        "SETCLIENTID",
        "SETCLIENTID_CONFIRM",
        "EXCHANGE_ID",
        "CREATE_SESSION",
        "BIND_CONN_TO_SESSION",
        "RECLAIM_COMPLETE",
        "OTHER",
        "OPEN",
        "OPEN_CONFIRM",
        "OPEN_NOATTR",
        "OPEN_DOWNGRADE",
        "CLOSE",
        "GETATTR",
        "SETATTR",
        "LOOKUP",
        "LOOKUP_ROOT",
        "LOOKUPP",
        "ACCESS",
        "READLINK",
        "CREATE",
        "REMOVE",
        "RENAME",
        "LINK",
        "SYMLINK",
        "READDIR",
        "PATHCONF",
        "STATFS",
        "FSINFO",
        "LOCK",
        "LOCKT",
        "LOCKU",
        "SERVER_CAPS",
        "RENEW",
        "DELEGRETURN",
        "GETACL",
        "SETACL",
        "FS_LOCATIONS",
        "RELEASE_LOCKOWNER",
        "SECINFO",
        "FSID_PRESENT",
        "DESTROY_SESSION",
        "SEQUENCE",
        "GET_LEASE_TIME",
        "LAYOUTGET",
        "GETDEVICEINFO",
        "GETDEVICELIST",
        "LAYOUTCOMMIT",
        "LAYOUTRETURN",
        "SECINFO_NO_NAME",
        "TEST_STATEID",
        "FREE_STATEID",
        "DESTROY_CLIENTID",
        "SEEK",
        "ALLOCATE",
        "DEALLOCATE",
        "ZERO_RANGE",
        "LAYOUTSTATS",
        "LAYOUTERROR",
        "CLONE",
        "COPY",
        "COPY_NOTIFY",
        "OFFLOAD_CANCEL",
        "OFFLOAD_STATUS",
        "GETXATTR",
        "SETXATTR",
        "LISTXATTRS",
        "REMOVEXATTR",
        // Only in version 3
        "MKDIR",
        "MKNOD",
        "RMDIR",
        "READDIRPLUS",
        "FSSTAT",
    ],
    level: Level::Request,
    filesystems: &["nfs", "nfs4"],
    direction: |name| match name {
        "READ" | "READ_PLUS" => Some(Direction::Read),
        "WRITE" => Some(Direction::Written),
        _ => None,
    },
    status_name: status::name,
    status_named: status::named,
    status_example: "NFS4ERR_STALE",
    status_errno: status::errno,
    ordinary: status::ORDINARY,
    later: status::LATER,
    repeated: status::REPEATED,
    file_names: FileNames::Last,
    ..Protocol::BY_ERRNO
};

/// Bytes of a name in `struct operation_name`.
const NAME_LENGTH: usize = 24;

/// Addresses of `nfs4_fs_type` and `nfs_fs_type`; 0 where the kernel does not tell them (kernel.kptr_restrict). A symbol that libbpf finds is
/// looked for in all of /proc/kallsyms, which takes as long as all else that loads the probe.
fn filesystem_types() -> [u64; 2] {
    let symbols = Symbols::load().inspect_err(|error| tracing::debug!(%error, "the kernel's symbols are not known"));
    let symbols = symbols.ok();
    ["nfs4_fs_type", "nfs_fs_type"].map(|name| symbols.as_ref().and_then(|all| all.address(name)).unwrap_or(0))
}

struct NfsProbe;

impl Probe for NfsProbe {
    /// Writes the names of the operations, and where the kernel has its types of file systems, into the object's read-only data.
    fn prepare(&mut self, object: &mut OpenObject, _: &Rung) -> libbpf_rs::Result<()> {
        let types = filesystem_types();
        for mut map in object.maps_mut() {
            let name = map.name().as_encoded_bytes().to_vec();
            let Some(value) = map.initial_value_mut() else { continue };
            if name.ends_with(b".names") {
                for (slot, name) in value.chunks_exact_mut(NAME_LENGTH).zip(PROTOCOL.operations) {
                    if let Some(slot) = slot.get_mut(..name.len()) {
                        slot.copy_from_slice(name.as_bytes());
                    }
                }
            } else if name.ends_with(b".types") {
                value.chunks_exact_mut(size_of::<u64>()).zip(types).for_each(|(slot, address)| {
                    slot.copy_from_slice(&address.to_ne_bytes());
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_fits_its_slot_with_the_zero_that_ends_it() {
        assert!(PROTOCOL.operations.iter().all(|name| (1..NAME_LENGTH).contains(&name.len())));
        assert!(PROTOCOL.operations.len() < 128);
    }

    #[test]
    fn no_name_is_there_twice() {
        let mut names = PROTOCOL.operations.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROTOCOL.operations.len());
    }
}
