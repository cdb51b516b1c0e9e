//! The lengths of the queueing disciplines at a network namespace's interfaces, by rtnetlink(7), as in `tc -s qdisc`.

use std::{collections::HashMap, io};

use model::DaemonConnection;
use nix::sys::socket::SockProtocol;
use probes::netlink::{Asked, Netlink, attribute, u32_at};

/// The most queueing disciplines of one namespace that are read.
const MOST_DISCIPLINES: usize = 16_384;

// include/uapi/linux/rtnetlink.h, pkt_sched.h and gen_stats.h
const RTM_GETQDISC: u16 = 38;
const TCMSG: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const TC_H_ROOT: u32 = u32::MAX;

/// A netlink socket in one network namespace.
#[derive(Debug)]
pub struct OwnQueues(Netlink);

/// The packets that wait at each interface, by the interface's index.
#[derive(Debug, Default)]
struct QueueLengths(HashMap<u32, QueueLength>);

#[derive(Debug, Clone, Copy, Default)]
struct QueueLength {
    packets: u32,
    /// Whether `fq` is used: its packets may wait for TCP's pacing, and then say nothing about the path.
    is_spaced: bool,
}

impl OwnQueues {
    /// Opens a socket in the network namespace of a process.
    ///
    /// # Errors
    ///
    /// If the namespace cannot be entered.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Netlink::of_process(pid, SockProtocol::NetlinkRoute).map(Self)
    }

    /// Sets the length of the queue at the outgoing interface, for connections with unacknowledged data.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or there are more than [`MOST_DISCIPLINES`].
    pub fn tell(&self, connections: &mut [DaemonConnection]) -> io::Result<()> {
        let mut waiting = connections.iter_mut().filter(|one| one.unacknowledged > 0).peekable();
        if waiting.peek().is_none() {
            return Ok(());
        }
        let lengths = self.lengths()?;
        for one in waiting {
            let interface = one.peer.and_then(|peer| self.0.interface_to(peer.ip()));
            one.own_queue = interface.map_or(0, |interface| lengths.at(interface));
        }
        Ok(())
    }

    fn lengths(&self) -> io::Result<QueueLengths> {
        let mut lengths = QueueLengths::default();
        let mut count = 0;
        self.0.ask(RTM_GETQDISC, Asked::All, &[0; TCMSG], &mut |message| {
            count += 1;
            lengths.add(message);
            count < MOST_DISCIPLINES
        })?;
        Ok(lengths)
    }
}

impl QueueLengths {
    /// Parses a `struct tcmsg`: the second word is the interface's index, the fourth the parent. The root discipline also counts the packets in
    /// the disciplines below it.
    fn add(&mut self, message: &[u8]) {
        let (Some(index), Some(parent), Some(attributes)) =
            (u32_at(message, 4), u32_at(message, 12), message.get(TCMSG..))
        else {
            return;
        };
        let length = self.0.entry(index).or_default();
        length.is_spaced |= attribute(attributes, TCA_KIND) == Some(&b"fq\0"[..]);
        if parent == TC_H_ROOT {
            let queue = attribute(attributes, TCA_STATS2).and_then(|stats| attribute(stats, TCA_STATS_QUEUE));
            length.packets = queue.and_then(|queue| u32_at(queue, 0)).unwrap_or(0);
        }
    }

    /// Packets that wait at an interface.
    fn at(&self, interface: u32) -> u32 {
        self.0.get(&interface).filter(|length| !length.is_spaced).map_or(0, |length| length.packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A discipline as the kernel tells of it.
    fn discipline(interface: u32, parent: u32, kind: &[u8], packets: u32) -> Vec<u8> {
        let attribute = |kind: u16, content: &[u8]| {
            let length = u16::try_from(4 + content.len()).unwrap();
            let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let mut bytes: Vec<u8> =
            [0, interface, 0x8001_0000, parent, 2].iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(attribute(TCA_KIND, kind));
        let queue: Vec<u8> = [packets, 1_500 * packets, 0, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(attribute(TCA_STATS2, &attribute(TCA_STATS_QUEUE, &queue)));
        bytes
    }

    #[test]
    fn an_interface_has_what_its_root_counts_unless_it_spaces_what_tcp_sends() {
        let mut lengths = QueueLengths::default();
        for message in [
            discipline(2, TC_H_ROOT, b"prio\0", 5),
            discipline(2, 0x1_0003, b"netem\0", 4),
            discipline(3, TC_H_ROOT, b"mq\0", 9),
            discipline(3, 0x1, b"fq\0", 9),
            discipline(4, TC_H_ROOT, b"fq_codel\0", 1),
            vec![0; 7],
        ] {
            lengths.add(&message);
        }
        assert_eq!([2, 3, 4, 5].map(|interface| lengths.at(interface)), [5, 0, 1, 0]);
    }

    #[test]
    fn the_kernel_tells_what_waits() {
        let queues = OwnQueues::of_process(std::process::id()).unwrap();
        assert_eq!(queues.lengths().unwrap().at(1), 0);
    }
}
