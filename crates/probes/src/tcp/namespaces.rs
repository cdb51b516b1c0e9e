//! Reads an iterator over sockets in every network namespace, since it only sees its reader's. Namespaces are found
//! without access to a mount.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read},
    os::fd::AsFd,
    path::PathBuf,
};

use libbpf_rs::{Iter, Link};
use nix::sched::{CloneFlags, setns};

use crate::mounts::namespace_number;

/// The most namespaces that are entered.
const MAX: usize = 4096;

/// Enters a network namespace, open as `namespace`. The calling thread stays there for good.
///
/// # Errors
///
/// Those of setns(2).
pub fn enter_network_namespace(namespace: impl AsFd) -> io::Result<()> {
    Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
}

/// The path by which to enter each network namespace, by inode number: our own, those of processes, those kept by
/// mounts.
fn all(kept: &[(u64, PathBuf)]) -> HashMap<u64, PathBuf> {
    let mut found = HashMap::new();
    let own = PathBuf::from("/proc/self/ns/net");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes =
        processes.filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit));
    for path in std::iter::once(own).chain(processes.map(|entry| entry.path().join("ns/net"))) {
        let Some(number) = fs::read_link(&path).ok().and_then(|link| namespace_number("net", link.to_str()?)) else {
            continue;
        };
        if found.len() < MAX {
            found.entry(number).or_insert(path);
        }
    }
    // `ip netns add`, for instance, keeps a namespace by a mount.
    for (number, path) in kept {
        if found.len() < MAX {
            found.entry(*number).or_insert_with(|| path.clone());
        }
    }
    found
}

/// The output of an iterator over sockets in every network namespace; namespaces that cannot be entered are left out.
///
/// Reads on a thread of its own, since entering a namespace changes the thread for good.
pub(super) fn read_everywhere(iterator: &Link, kept: &[(u64, PathBuf)]) -> libbpf_rs::Result<Vec<u8>> {
    let namespaces = all(kept);
    let read = || {
        let mut bytes = Vec::new();
        for path in namespaces.values() {
            let entered = fs::File::open(path).and_then(enter_network_namespace);
            if let Err(error) = entered {
                tracing::debug!(path = %path.display(), %error, "cannot enter a network namespace");
                continue;
            }
            Iter::new(iterator)?.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("namespaces".into()).spawn_scoped(scope, read)?;
        thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that reads sockets died").into()))
    })
}
