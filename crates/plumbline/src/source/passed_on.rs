//! Requests that another program of this host forwards, such as a TLS tunnel (stunnel, efs-proxy) or a sidecar. The client's connection ends at that
//! program, so nothing in it distinguishes the program from the server behind it.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use model::{Detail, Event, MountKey, Nanos};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use probes::ProbeSet;
use procfs::{
    net::{TcpNetEntry, TcpState, tcp, tcp6},
    process::{FDTarget, Process, all_processes},
};

/// The beginnings of the names of programs that are file servers themselves.
const FILE_SERVERS: [&str; 6] = ["smbd", "ganesha.nfsd", "unfsd", "diod", "ceph-mds", "ceph-osd"];
/// How long it is remembered which program listens at a server's address, nanoseconds.
const KNOWN_FOR: Nanos = 60_000_000_000;
/// The most mounts that are remembered.
const MOST_MOUNTS: usize = 4096;

/// The mounts whose requests another program of this host forwards.
#[derive(Debug, Default)]
pub struct PassedOn {
    /// By superblock: whether the mount's requests are forwarded, and when that was determined (CLOCK_MONOTONIC).
    mounts: HashMap<MountKey, (bool, Nanos)>,
}

impl PassedOn {
    /// Whether the mount's requests were forwarded at the last check.
    pub fn of_mount(&self, key: MountKey, watch: &ProbeSet) -> bool {
        !self.mounts.is_empty() && self.mounts.get(&superblock(key, watch)).is_some_and(|(is, _)| *is)
    }

    /// Whether the event's request was forwarded. Only slow operations have the interface of their answers; for others, the last result for the
    /// mount is used.
    pub fn of_event(&mut self, event: &Event, watch: &ProbeSet) -> bool {
        let Some(socket) = event.socket() else {
            return self.of_mount(event.mount, watch);
        };
        if !socket.by_loopback {
            if !self.mounts.is_empty() {
                self.mounts.remove(&superblock(event.mount, watch));
            }
            return false;
        }
        let (key, now) = (superblock(event.mount, watch), event.end());
        let known = self.mounts.get(&key).filter(|(_, since)| now < since.saturating_add(KNOWN_FOR));
        if let Some((is, _)) = known {
            return *is;
        }
        if self.mounts.len() >= MOST_MOUNTS {
            self.mounts.clear();
        }
        let is = !server(event, watch).is_some_and(|address| is_served_here(address, socket.port));
        self.mounts.insert(key, (is, now));
        is
    }
}

/// The address of the server that was asked. A CephFS mount names only the monitors; each Ceph daemon has its own address.
fn server(event: &Event, watch: &ProbeSet) -> Option<IpAddr> {
    match &event.detail {
        Detail::Ceph(ceph) => ceph.address.map(|address| address.ip()),
        _ => watch.mount_point(event.mount).and_then(|point| point.address).map(|(address, _)| address),
    }
}

/// The superblock's key: calls on a mount and requests to its server may use different keys.
fn superblock(key: MountKey, watch: &ProbeSet) -> MountKey {
    watch.mount_point(key).map_or(key, |point| point.device)
}

/// Whether a file server of this host, or the kernel's own server, listens at this address and port.
fn is_served_here(address: IpAddr, port: u16) -> bool {
    if !is_own(address) {
        return false; // Its connections are redirected.
    }
    let listens = |entry: &TcpNetEntry| {
        let local = entry.local_address;
        let is_there = local.ip().is_unspecified() || local.ip().to_canonical() == address.to_canonical();
        entry.state == TcpState::Listen && local.port() == port && is_there
    };
    let all = [tcp(), tcp6()].into_iter().flatten().flatten();
    let sockets: HashSet<_> = all.filter(listens).map(|entry| entry.inode).collect();
    // No process has the kernel's own sockets (knfsd, ksmbd).
    !sockets.is_empty() && owner(&sockets).is_none_or(|name| FILE_SERVERS.iter().any(|server| name.starts_with(server)))
}

/// Whether the address belongs to this network namespace.
fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let of_interface = |one: &InterfaceAddress| match address {
        IpAddr::V4(address) => one.address.as_ref()?.as_sockaddr_in().map(|one| one.ip() == address),
        IpAddr::V6(address) => one.address.as_ref()?.as_sockaddr_in6().map(|one| one.ip() == address),
    };
    address.is_loopback() || getifaddrs().into_iter().flatten().any(|one| of_interface(&one) == Some(true))
}

/// The name of the first process that has one of these sockets.
fn owner(sockets: &HashSet<u64>) -> Option<String> {
    let has = |process: &Process| {
        let mut open = process.fd().into_iter().flatten().flatten();
        open.any(|fd| matches!(fd.target, FDTarget::Socket(inode) if sockets.contains(&inode)))
    };
    let process = all_processes().ok()?.flatten().find(has)?;
    process.stat().ok().map(|stat| stat.comm)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_program_that_is_no_file_server_does_not_serve_a_mount() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        assert!(!is_served_here(here.ip(), here.port()));
        let sockets = tcp().unwrap().into_iter().filter(|entry| entry.local_address == here).map(|entry| entry.inode);
        let own = Process::myself().unwrap().stat().unwrap().comm;
        assert_eq!(owner(&sockets.collect()), Some(own), "the listener is found");
    }

    #[test]
    fn a_server_at_the_address_of_another_host_is_not_here() {
        assert!(!is_own("192.0.2.1".parse().unwrap()) && is_own("::ffff:127.0.0.1".parse().unwrap()));
    }
}
