//! Captures packets of the servers of mounts in the kernel's own ring. This process reads packets only after an incident.

mod file;
mod filter;
mod ring;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use probes::mounts::Mounts;

use super::pcapng::{PACKET_OVERHEAD, SLL2_BYTES};
use super::running::Background;
use super::{Capture, CaptureSpan, Sink, page_bytes};
use crate::config::{CaptureConfig, Hosts, PacketsConfig};
use file::PacketFile;
use filter::{Snap, WantedPackets};
use ring::{BlockHead, PacketRing, each_packet};

/// The largest packet that a ring can hold, bytes.
pub const SNAP_MOST: u32 = 65_536;
/// The servers' ports if a mount does not name one: NFS and SMB.
const DEFAULT_PORTS: [u16; 2] = [2049, 445];

/// The intended number of blocks of a ring. On a quiet network, a block is handed over with few packets in it and still takes its whole size,
/// so blocks must not be large.
const BLOCKS: u64 = 128;
/// The limits of the block size, bytes; a block of the second size holds the largest packet.
const BLOCK: [usize; 2] = [16 << 10, 256 << 10];
/// If more bytes than this are kept of a packet, the ring has blocks of the largest size.
const WHOLE: u32 = 4096;
/// A slow operation begins before it is noticed, so the ring keeps this much more than is configured.
const NOTICE: Duration = Duration::from_secs(10);
/// How often a capture looks for a missing interface.
const LOOK_FOR: Duration = Duration::from_secs(1);
/// How often a capture asks the kernel for the number of dropped packets.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// How late the kernel may hand over a block after its timeout.
const GRACE: Duration = Duration::from_millis(200);
/// The size of a file without its packets, bytes: the section, 32 interfaces and the counts.
const FRAME: u64 = 8 << 10;

/// A capture of packets.
pub struct Packets {
    name: String,
    config: PacketsConfig,
    ring: PacketRing,
    /// When the kernel hands over a block that is not full.
    retire: Duration,
    wanted: Mutex<WantedPackets>,
    owned: Mutex<Owned>,
    counts: Mutex<PacketCounts>,
}

/// The blocks that the kernel has handed over and not got back: the history.
#[derive(Debug, Default)]
struct Owned {
    oldest: usize,
    count: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct PacketCounts {
    received: u64,
    dropped: u64,
    /// The part of `dropped` that has been logged.
    logged: u64,
}

impl Packets {
    /// Opens the ring. It receives nothing until the capture's thread runs.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(capture: &CaptureConfig, config: &PacketsConfig) -> Result<Self> {
        let block = block_bytes(config);
        let blocks = usize::try_from(config.memory).unwrap_or(usize::MAX) / block;
        let span = capture.before.max(capture.after) + NOTICE;
        let retire = span / u32::try_from(kept_of(blocks).saturating_sub(1).max(1)).unwrap_or(1);
        let retire = retire.clamp(Duration::from_millis(100), Duration::from_secs(2));
        let ring = PacketRing::open(block, blocks, retire)?;
        let hosts = match &config.hosts {
            Hosts::Mounts => Some(Vec::new()),
            Hosts::Any => None,
            Hosts::Only(hosts) => Some(hosts.clone()),
        };
        let snap = config.snap.map_or(Snap::Headers, Snap::Bytes);
        let wanted = WantedPackets { hosts, ports: config.ports.clone(), snap };
        ring.set_filter(&filter::program(&wanted)).context("the kernel refuses the packet filter")?;
        Ok(Self {
            name: capture.name.clone(),
            config: config.clone(),
            ring,
            retire,
            wanted: Mutex::new(wanted),
            owned: Mutex::default(),
            counts: Mutex::default(),
        })
    }

    /// Captures the servers of these mounts, if the configuration wants the servers of mounts.
    pub fn follow(&self, mounts: &Mounts) {
        if self.config.hosts != Hosts::Mounts {
            return;
        }
        let (hosts, mounted) = servers(mounts);
        let ports = if self.config.ports.is_empty() { mounted } else { self.config.ports.clone() };
        let mut wanted = lock(&self.wanted);
        if wanted.hosts.as_ref() == Some(&hosts) && wanted.ports == ports {
            return;
        }
        wanted.hosts = Some(hosts);
        wanted.ports = ports;
        if let Err(error) = self.ring.set_filter(&filter::program(&wanted)) {
            tracing::warn!(
                "the capture {} does not follow the mounts: the kernel refuses its filter: {error}",
                self.name
            );
        }
    }

    /// Takes note of new blocks from the kernel, and hands the oldest back if the kernel needs room.
    fn take_in(&self) -> MutexGuard<'_, Owned> {
        let mut owned = lock(&self.owned);
        let blocks = self.ring.blocks();
        while owned.count < blocks && self.ring.head((owned.oldest + owned.count) % blocks).is_some() {
            owned.count += 1;
        }
        while owned.count > kept_of(blocks) {
            self.ring.release(owned.oldest);
            owned.oldest = (owned.oldest + 1) % blocks;
            owned.count -= 1;
        }
        owned
    }

    fn count(&self) -> PacketCounts {
        let (received, dropped) = self.ring.take_counts();
        let mut counts = lock(&self.counts);
        counts.received += received;
        counts.dropped += dropped;
        *counts
    }

    /// Logs newly dropped packets.
    fn log_drops(&self) {
        let dropped = self.count().dropped;
        let mut counts = lock(&self.counts);
        if dropped > counts.logged {
            let new = dropped - counts.logged;
            tracing::warn!(
                "the capture {} missed {new} packets: they came faster than its ring is read; raise memory_mb",
                self.name
            );
            counts.logged = dropped;
        }
    }

    /// Binds the socket to the interface.
    fn bind(&self) -> Result<()> {
        let index = match self.config.interface.as_deref() {
            None => 0,
            Some(name) => match if_nametoindex(name) {
                Ok(index) => i32::try_from(index)?,
                Err(Errno::ENODEV) => bail!("there is no interface {name}"),
                Err(errno) => return Err(errno).with_context(|| format!("the interface {name}")),
            },
        };
        self.ring.bind(index)?;
        match self.ring.take_error() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// The blocks that overlap a span, oldest first, and how many were left out. If they have more than `limit` bytes, the oldest are left out.
    fn blocks_of(&self, span: CaptureSpan, limit: u64) -> (Vec<(usize, BlockHead)>, usize) {
        let owned = self.take_in();
        let blocks = self.ring.blocks();
        let mut found = Vec::new();
        let (mut left, mut left_out) = (limit, 0);
        for at in (0..owned.count).rev() {
            let index = (owned.oldest + at) % blocks;
            let Some(head) = self.ring.head(index) else { continue };
            if !span.overlaps(head.times[0], head.times[1]) {
                continue;
            }
            match left.checked_sub(head.length as u64) {
                Some(rest) if left_out == 0 => {
                    left = rest;
                    found.push((index, head));
                }
                _ => left_out += 1,
            }
        }
        found.reverse();
        (found, left_out)
    }

    /// Waits until the kernel has handed over the packets up to `to`. Gives up after `most`, or after the longest time that a handover takes.
    fn wait_for(&self, to: u64, most: Duration) {
        let deadline = Instant::now() + most.min(self.retire + GRACE);
        while Instant::now() < deadline {
            let owned = self.take_in();
            let newest = owned.count.checked_sub(1).map(|last| (owned.oldest + last) % self.ring.blocks());
            drop(owned);
            if newest.and_then(|newest| self.ring.head(newest)).is_some_and(|head| head.times[1] >= to) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Copies a block, unless it was handed back to the kernel after it was listed.
    fn copy(&self, index: usize, head: &BlockHead, into: &mut Vec<u8>) -> bool {
        // No block is handed back while this lock is held.
        let _owned = lock(&self.owned);
        let is_there = self.ring.head(index).is_some_and(|now| now.sequence == head.sequence);
        if is_there {
            self.ring.copy(index, head, into);
        }
        is_there
    }
}

impl Capture for Packets {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let interface = self.config.interface.as_deref().unwrap_or("any interface");
        let wanted = lock(&self.wanted);
        let hosts = match &wanted.hosts {
            None => "any host".to_owned(),
            Some(hosts) if hosts.is_empty() => {
                return format!("packets on {interface}: none, until a file system of a server is mounted");
            }
            Some(hosts) => hosts.iter().take(8).map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
        };
        let ports: Vec<_> = wanted.ports.iter().map(u16::to_string).collect();
        let ports = if ports.is_empty() { "any port".to_owned() } else { format!("port {}", ports.join(", ")) };
        let snap = match wanted.snap {
            Snap::Headers => "headers".to_owned(),
            Snap::Bytes(bytes) => format!("{bytes} bytes of each"),
        };
        format!("packets on {interface}: {hosts}; {ports}; {snap}")
    }

    fn cut(&self, span: CaptureSpan, sink: &mut dyn Sink) -> Result<()> {
        // When the daemon stops, less time is left than a block may take.
        self.wait_for(span.to, sink.time_left() / 2);
        let (blocks, left_out) = self.blocks_of(span, sink.limit().saturating_sub(FRAME));
        let counts = self.count();
        let mut overwritten = 0;
        sink.file(".pcapng", &mut |out| {
            let mut file = PacketFile::begin(out, &self.describe(), self.config.snap.unwrap_or(0))?;
            let mut copied = Vec::new();
            for (index, head) in &blocks {
                if self.copy(*index, head, &mut copied) {
                    each_packet(
                        &copied,
                        head,
                        |packet| if span.holds(packet.at) { file.add(&packet) } else { Ok(()) },
                    )?;
                } else {
                    overwritten += 1;
                }
            }
            file.end(span, counts.received, counts.dropped)
        })?;
        if left_out > 0 {
            bail!(
                "the oldest {left_out} of {} blocks of packets are left out: they exceed the limit of {} KiB",
                left_out + blocks.len(),
                sink.limit() >> 10
            );
        }
        if overwritten > 0 {
            bail!(
                "{overwritten} of {} blocks of packets were overwritten before they were written; raise memory_mb",
                blocks.len()
            );
        }
        Ok(())
    }
}

impl Background for Packets {
    /// Keeps the ring running until `stop` is readable.
    fn run(self: Arc<Self>, stop: &EventFd) -> Result<()> {
        const STOP: u64 = 0;
        const SOCKET: u64 = 1;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        // Edge-triggered: the socket is readable all the time, since blocks are kept as history.
        let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLERR | EpollFlags::EPOLLET;
        epoll.add(&self.ring, EpollEvent::new(edge, SOCKET))?;
        let (mut is_bound, mut was_missing) = (false, false);
        loop {
            if !is_bound {
                match self.bind() {
                    Ok(()) => {
                        is_bound = true;
                        if was_missing {
                            tracing::info!("the capture {} goes on: its interface is there", self.name);
                        }
                    }
                    Err(error) if !was_missing => {
                        was_missing = true;
                        tracing::warn!("the capture {} waits for its interface: {error:#}", self.name);
                    }
                    Err(_) => {}
                }
            }
            let limit = if is_bound { COUNT_EVERY } else { LOOK_FOR };
            let mut events = [EpollEvent::empty(); 2];
            let ready = match epoll.wait(&mut events, EpollTimeout::try_from(limit).unwrap_or(EpollTimeout::MAX)) {
                Err(Errno::EINTR) => continue,
                ready => ready?,
            };
            if events.iter().take(ready).any(|event| event.data() == STOP) {
                self.log_drops();
                return Ok(());
            }
            if let Some(error) = self.ring.take_error().filter(|_| is_bound) {
                let interface = self.config.interface.as_deref().unwrap_or("any");
                tracing::warn!("the capture {} pauses: its interface {interface} has gone away: {error}", self.name);
                (is_bound, was_missing) = (false, true);
            }
            drop(self.take_in());
            if ready == 0 {
                self.log_drops();
            }
        }
    }
}

/// The size of a block: a power of two, so that it is a multiple of the page size.
fn block_bytes(config: &PacketsConfig) -> usize {
    let [least, most] = BLOCK;
    if config.snap.is_some_and(|snap| snap > WHOLE) {
        return most;
    }
    let part = usize::try_from(config.memory / BLOCKS).unwrap_or(most).clamp(least, most);
    part.next_power_of_two().max(page_bytes())
}

/// How many of `blocks` are kept as history; the kernel fills the others.
fn kept_of(blocks: usize) -> usize {
    blocks.saturating_sub((blocks / 4).max(2))
}

/// The addresses and ports of the mounts' servers.
fn servers(mounts: &Mounts) -> (Vec<IpAddr>, Vec<u16>) {
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for point in mounts.iter() {
        let Some((host, port)) = point.address else { continue };
        hosts.push(host);
        match port.filter(|port| *port != 0) {
            Some(port) => ports.push(port),
            None => ports.extend(DEFAULT_PORTS),
        }
    }
    hosts.sort_unstable();
    hosts.dedup();
    ports.sort_unstable();
    ports.dedup();
    (hosts, ports)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A packet takes more space in the ring than in a file, so the lengths of the blocks limit the size of the file.
const _: () = assert!(PACKET_OVERHEAD as usize + SLL2_BYTES <= 48 + 20 + 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_those_of_mounts_at_their_ports() {
        let mounts = Mounts::parse(
            b"61 28 0:49 / /a rw - cifs //h/s rw,addr=10.0.0.1\n62 28 0:50 / /b rw - nfs4 h:/ rw,addr=fd00::1,port=2050\n\
              63 28 0:51 / /c rw - tmpfs none rw\n64 28 0:52 / /d rw - cifs //h/t rw,addr=10.0.0.1\n",
        );
        assert_eq!(servers(&mounts), (vec![[10, 0, 0, 1].into(), "fd00::1".parse().unwrap()], vec![445, 2049, 2050]));
    }

    #[test]
    fn a_ring_has_many_small_blocks_or_large_ones_for_whole_packets() {
        let of = |memory: u64, snap| {
            block_bytes(&PacketsConfig {
                interface: None,
                hosts: Hosts::Any,
                ports: vec![],
                snap,
                memory: memory << 20,
            })
        };
        assert_eq!(
            [of(1, None), of(4, None), of(1024, None), of(4, Some(65_536))],
            [16, 32, 256, 256].map(|kb| kb << 10)
        );
    }

    #[test]
    fn at_least_two_blocks_are_the_kernels() {
        assert_eq!([4, 8, 64].map(kept_of), [2, 6, 48]);
    }
}
