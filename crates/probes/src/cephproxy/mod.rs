//! The libcephfs proxy: requests of processes to `libcephfsd`, seen by the static probes of the library that sends them, on every
//! `libcephfs_proxy.so.2` that a process maps. The library's end sees what a process waits for, and does not depend on a daemon
//! that hangs.

use std::{fs::File, path::Path};

use libbpf_rs::{ErrorExt as _, Link, Object};
use model::{CephProxy, Code, Detail, Level, Protocol};

use crate::{
    columns,
    generated::probe_id,
    libraries::{AttachOffsets, LibraryKind, is_on_library},
    probe::Probe,
    spec::{Rung, Spec},
};

/// The protocol's operations, by its own numbers.
pub static PROTOCOL: Protocol = Protocol {
    name: "cephproxy",
    operations: cephfs_proxy::wire::OPERATIONS,
    level: Level::Proxy,
    ordinary: ORDINARY,
    ..Protocol::BY_ERRNO
};

/// A lookup of a name that does not exist, or exists already: most of the requests that Samba sends when it creates a
/// file.
const ORDINARY: &[Code] = &[
    Code::Errno(libc::ENOENT.cast_unsigned()),
    Code::Errno(libc::EEXIST.cast_unsigned()),
    Code::Errno(libc::ENODATA.cast_unsigned()),
    Code::Errno(libc::ENOTEMPTY.cast_unsigned()),
];

pub(crate) static SPEC: Spec = Spec {
    name: PROTOCOL.name,
    protocol: &PROTOCOL,
    id: probe_id::PROBE_CEPHPROXY,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/cephproxy.bpf.o")),
    rungs: &[Rung {
        via: "usdt",
        required: &["call_start", "call_done"],
        optional: &["tp_mapped", "tp_started"],
        without: "libraries that come into use later are found every five minutes only",
    }],
    inflight: &["requests"],
    detail: |raw| Detail::CephProxy(CephProxy { handle: raw.inode, asked: raw.asked }),
    columns: columns::REMOTE,
    line: |event, line| {
        if let Detail::CephProxy(request) = event.detail {
            line.asked = Some(request.asked);
        }
    },
    libraries: Some(&LIBRARIES),
    probe: || Box::new(Proxied),
    ..Spec::BASE
};

/// The library with our static probes. The upstream library has the same name, and no probes.
static LIBRARIES: LibraryKind = LibraryKind {
    probe: PROTOCOL.name,
    what: "a library of the libcephfs proxy",
    prefix: NAME,
    programs: &["libcephfsd"],
    attempt: |_, _| Ok(()),
    examine: |_: &File, name| name.starts_with(NAME).then(AttachOffsets::default),
    attach,
    forget_ended: |_| (),
};

const NAME: &str = "libcephfs_proxy";
const PROVIDER: &str = "libcephfs_proxy";

struct Proxied;

impl Probe for Proxied {
    /// Whether the process whose request has this key is gone: a process that is killed leaves the entry.
    fn has_ended(&self, key: &[u8]) -> bool {
        let process = key.get(..8).and_then(|process| process.try_into().ok()).map(u64::from_ne_bytes);
        process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
    }
}

fn attach(object: &mut Object, _: &str, path: &Path, _: &AttachOffsets) -> libbpf_rs::Result<Vec<Link>> {
    // The program that sees a request's end is first in the object, and is attached first: see attach_rung().
    let programs = object.progs_mut().filter(is_on_library);
    programs
        .map(|program| {
            let name = program.name().to_string_lossy().replace('_', "__");
            program
                .attach_usdt(-1, path, PROVIDER, name)
                .context("without the static probes that ours has, such as upstream's")
        })
        .collect()
}
