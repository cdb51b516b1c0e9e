//! What this host's interfaces drop before TCP sees it: a card without a free buffer, frames that are longer than the MTU or
//! damaged, packets that cannot be sent. Only the interfaces' counters show that. This probe reads them about once a second while there
//! are servers. If a counter of an interface that leads to a server has risen, it has the kernel side report that.

use std::{collections::HashMap, fs, net::IpAddr, os::unix::fs::FileExt as _, time::Duration};

use libbpf_rs::{MapCore as _, MapFlags, Object, ProgramInput, Result};
use model::MountKey;
use nix::{
    net::if_::if_nametoindex,
    sys::socket::SockProtocol,
    time::{ClockId, clock_gettime},
};

use super::{
    KernelPeer,
    above::{Above, link_of},
    counters::{Damage, InterfaceCounters, parse},
    write_servers,
};
use crate::{
    generated::{Plain, interface_drops},
    libraries::map_of,
    mounts::Mounts,
    netlink::Netlink,
    probe::Probe,
    probe_set::monotonic,
};

/// The program that reports what an interface has dropped.
const PROGRAM: &str = "interface_dropped";
/// The pause between two looks is at least this, and at most the next ...
const LEAST_PAUSE: Duration = Duration::from_millis(950);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// ... and so many times the processor time that the look took: some hosts have thousands of interfaces.
const PAUSE_FOR_WORK: u32 = 2_000;
/// The most servers for which drops are reported at once.
const MOST_SERVERS: usize = 64;
/// Packets that one event can stand for: the kernel side multiplies this by its sampling.
const MOST_PACKETS: u64 = (1 << 20) - 1;
/// Bytes of an interface's name without its NUL (IFNAMSIZ).
const LONGEST_NAME: usize = 15;
/// Entries of the map `unhandled` of conn_drops.bpf.c.
const UNHANDLED: u32 = 1024;

/// The probe of the object that reports drops.
#[derive(Default)]
pub(super) struct DropsProbe {
    /// One server of each mount.
    servers: HashMap<MountKey, (KernelPeer, IpAddr)>,
    seen: HashMap<String, Seen>,
    looked: Option<Duration>,
    due: Duration,
    netlink: Option<Netlink>,
    file: Option<fs::File>,
    buffer: Vec<u8>,
}

/// An interface at the last look.
struct Seen {
    counters: InterfaceCounters,
    damage: Damage,
    /// Packets of unknown protocols, and the most that was dropped besides these since the interface was first seen.
    unhandled: u64,
    first_dropped: u64,
    others: u64,
    link: Option<u64>,
}

/// What an interface has dropped since the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Risen {
    interface: String,
    /// The event's status.
    status: u32,
    packets: u64,
}

/// The place of each status in `INTERFACE_DROPS` of mod.rs.
enum Kind {
    Received,
    TooLong,
    Damaged,
    Sent,
    Carrier,
}

impl Kind {
    fn of(self, interface: &str, packets: u64) -> Option<Risen> {
        let status = super::FIRST_INTERFACE_DROP + self as u32;
        (packets > 0).then(|| Risen { interface: interface.to_owned(), status, packets })
    }
}

impl Seen {
    fn first(interface: &str, counters: InterfaceCounters, object: &Object) -> Self {
        let damage = if counters.received_frames > 0 { Damage::of(interface) } else { Damage::default() };
        let unhandled = unhandled(object, interface);
        let first_dropped = counters.received_dropped;
        Self { counters, damage, unhandled, first_dropped, others: 0, link: link_of(interface) }
    }

    /// Returns what has risen, and updates this state.
    fn risen(&mut self, interface: &str, now: InterfaceCounters, object: &Object) -> Vec<Risen> {
        let before = std::mem::replace(&mut self.counters, now);
        if now == before {
            return Vec::new();
        }
        if !now.goes_on_from(&before) {
            *self = Self::first(interface, now, object);
            return Vec::new();
        }
        let mut dropped = 0;
        if now.received_dropped > before.received_dropped {
            let unhandled = unhandled(object, interface).saturating_sub(self.unhandled);
            let others = (now.received_dropped - self.first_dropped).saturating_sub(unhandled);
            dropped = others.saturating_sub(self.others);
            self.others = self.others.max(others);
        }
        // Some drivers count a packet for which there was no buffer in both.
        let received = dropped.max(now.received_overruns - before.received_overruns);
        let (mut too_long, mut damaged) = (0, 0);
        if now.received_frames > before.received_frames {
            let damage = Damage::of(interface);
            too_long = damage.too_long.saturating_sub(self.damage.too_long);
            damaged = damage.damaged.saturating_sub(self.damage.damaged);
            self.damage = damage;
        }
        let mut sent = (now.sent_dropped - before.sent_dropped).max(now.sent_overruns - before.sent_overruns);
        let mut carrier = now.sent_carrier - before.sent_carrier;
        if sent + carrier > 0 {
            let link = link_of(interface);
            let was = std::mem::replace(&mut self.link, link);
            // What cannot be sent because the link went down may be the fault of the other end: a switch that was restarted.
            if link.is_none() || link != was {
                (sent, carrier) = (0, 0);
            }
        }
        [
            Kind::Received.of(interface, received),
            Kind::TooLong.of(interface, too_long),
            Kind::Damaged.of(interface, damaged),
            Kind::Sent.of(interface, sent),
            Kind::Carrier.of(interface, carrier),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl DropsProbe {
    /// Looks at all interfaces. Empty at the first look.
    fn look(&mut self, object: &Object) -> std::io::Result<Vec<Risen>> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(fs::File::open("/proc/self/net/dev")?),
        };
        read_again(file, &mut self.buffer)?;
        let (mut risen, mut there) = (Vec::new(), 0);
        for (interface, counters) in parse(&self.buffer) {
            there += 1;
            match self.seen.get_mut(interface) {
                Some(seen) => risen.extend(seen.risen(interface, counters, object)),
                None => {
                    self.seen.insert(interface.to_owned(), Seen::first(interface, counters, object));
                }
            }
        }
        if self.seen.len() > there {
            let names: Vec<_> = parse(&self.buffer).map(|(interface, _)| interface).collect();
            self.seen.retain(|interface, _| names.contains(&interface.as_str()));
        }
        Ok(risen)
    }

    /// Reports what has risen since `since`, for each server to which the interface leads.
    fn report_risen(&mut self, risen: &[Risen], since: Duration, object: &Object) {
        let above: Vec<_> = risen.iter().map(|one| Above::of(&one.interface)).collect();
        // An interface also counts what those below it have dropped.
        let is_below = |one: &Risen, (below, chain): (&Risen, &Above)| {
            below.interface != one.interface && below.status == one.status && chain.has(&one.interface)
        };
        let mut reported: Vec<_> = risen.iter().zip(&above).filter(|(_, chain)| chain.is_own).collect();
        let own = reported.clone();
        reported.retain(|(one, _)| !own.iter().any(|below| is_below(one, *below)));
        if reported.is_empty() {
            return;
        }
        if self.netlink.is_none() {
            self.netlink = Netlink::of_process(std::process::id(), SockProtocol::NetlinkRoute)
                .inspect_err(|error| tracing::debug!(%error, "cannot ask which interface leads to a server"))
                .ok();
        }
        let Some(netlink) = &self.netlink else { return };
        for (server, address) in self.servers.values().take(MOST_SERVERS) {
            let Some(leads_there) = netlink.interface_to(*address) else { continue };
            for (one, _) in reported.iter().filter(|(_, chain)| chain.indexes.contains(&leads_there)) {
                report(object, one, *server, since);
            }
        }
    }
}

/// Reads a file of /proc again, from its start.
fn read_again(file: &fs::File, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    if buffer.is_empty() {
        buffer.resize(4096, 0);
    }
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
        match file.read_at(buffer.get_mut(filled..).unwrap_or_default(), filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    buffer.get_mut(filled..).unwrap_or_default().fill(0);
    Ok(())
}

/// How many packets of unknown protocols the kernel side has counted for an interface.
fn unhandled(object: &Object, interface: &str) -> u64 {
    let index = if_nametoindex(interface).ok().map(|index| index % UNHANDLED);
    let count = index.zip(map_of(object, "unhandled")).and_then(|(index, map)| {
        let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok()??;
        u64::from_bytes(&value)
    });
    count.unwrap_or(0)
}

fn report(object: &Object, risen: &Risen, server: KernelPeer, since: Duration) {
    let Some(program) = object.progs_mut().find(|program| program.name() == PROGRAM) else { return };
    let mut drops = interface_drops {
        since: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        packets: u32::try_from(risen.packets.min(MOST_PACKETS)).unwrap_or(u32::MAX),
        status: risen.status,
        server,
        ..interface_drops::default()
    };
    let name = drops.interface.iter_mut().take(LONGEST_NAME);
    name.zip(risen.interface.bytes()).for_each(|(to, from)| *to = from as _);
    let mut bytes = [0; size_of::<interface_drops>()];
    bytes.copy_from_slice(drops.as_bytes());
    if let Err(error) = program.test_run(ProgramInput { context_in: Some(&mut bytes), ..ProgramInput::default() }) {
        tracing::warn!(%error, interface = risen.interface, "cannot report what an interface has dropped");
    }
}

/// The processor time that this thread has used.
fn worked() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Whether the object can report at all.
fn can_report(object: &Object) -> bool {
    object.progs().any(|program| program.name() == PROGRAM && program.autoload())
}

impl Probe for DropsProbe {
    fn follow_mounts(&mut self, object: &mut Object, mounts: &Mounts) -> Result<()> {
        self.servers =
            super::servers(mounts).into_iter().map(|(peer, mount)| (mount, (peer, address_of(&peer)))).collect();
        if self.servers.is_empty() {
            // Packets that are dropped until the next server comes are not reported.
            (self.looked, self.file) = (None, None);
            self.seen.clear();
        }
        write_servers(object, mounts)?;
        if self.looked.is_none() {
            // The first look only notes the counters.
            self.tend(object);
        }
        Ok(())
    }

    fn detach(&mut self, _: &Object) {
        *self = Self::default();
    }

    fn tend(&mut self, object: &Object) {
        let now = monotonic();
        if self.servers.is_empty() || now < self.due || !can_report(object) {
            return;
        }
        let began = worked();
        match self.look(object) {
            Ok(risen) => {
                if let Some(since) = self.looked.replace(now).filter(|_| !risen.is_empty()) {
                    self.report_risen(&risen, since, object);
                }
            }
            Err(error) => tracing::debug!(%error, "cannot read the counters of interfaces"),
        }
        let pause = (worked().saturating_sub(began) * PAUSE_FOR_WORK).clamp(LEAST_PAUSE, LONGEST_PAUSE);
        self.due = now + pause;
    }
}

/// The address of a `struct peer`, which has IPv4 mapped into IPv6.
fn address_of(peer: &KernelPeer) -> IpAddr {
    let mut octets = [0; 16];
    octets.iter_mut().zip(peer).for_each(|(to, from)| *to = *from);
    IpAddr::from(octets).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_address_comes_back() {
        for address in ["10.0.0.1", "fd00::2"] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(address_of(&super::super::kernel_peer(address, 445)), address);
        }
    }

    #[test]
    fn a_file_of_proc_is_read_again_and_again() {
        let (file, mut buffer) = (fs::File::open("/proc/self/net/dev").unwrap(), Vec::new());
        for _ in 0..3 {
            read_again(&file, &mut buffer).unwrap();
            assert!(parse(&buffer).all(|(interface, _)| interface != "lo"), "nothing comes in by it from a network");
            assert!(buffer.starts_with(b"Inter-|"));
        }
    }
}
