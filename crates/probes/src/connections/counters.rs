//! The counters of dropped packets of this host's interfaces: /proc/net/dev, and sysfs for counters that /proc/net/dev adds
//! together. Unlike netlink, neither takes a lock of the kernel that a driver may hold.

use std::fs;

use super::above::file_of;

/// The counters of one interface since it exists (include/uapi/linux/if_link.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct InterfaceCounters {
    /// Received and dropped: by the kernel, the driver, or the card for want of a buffer (`rx_dropped`, `rx_missed_errors`).
    pub received_dropped: u64,
    /// The card's queue overran (`rx_fifo_errors`).
    pub received_overruns: u64,
    /// Frames of a wrong length, damaged, or too many (`rx_length_errors`, `rx_crc_errors`, `rx_frame_errors`, `rx_over_errors`).
    pub received_frames: u64,
    /// To be sent and dropped (`tx_dropped`).
    pub sent_dropped: u64,
    /// The card's queue overran (`tx_fifo_errors`).
    pub sent_overruns: u64,
    /// There was no carrier, or the card gave up (`tx_carrier_errors`, `tx_aborted_errors`, `tx_window_errors`, `tx_heartbeat_errors`).
    pub sent_carrier: u64,
}

impl InterfaceCounters {
    fn all(&self) -> [u64; 6] {
        [
            self.received_dropped,
            self.received_overruns,
            self.received_frames,
            self.sent_dropped,
            self.sent_overruns,
            self.sent_carrier,
        ]
    }

    /// Whether no counter is less than before. If one is, it is another interface of that name, or its driver has
    /// started anew.
    pub fn goes_on_from(&self, before: &Self) -> bool {
        self.all().iter().zip(before.all()).all(|(now, before)| *now >= before)
    }
}

/// The parts of [`InterfaceCounters::received_frames`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Damage {
    /// Frames of a length that is not allowed, most often a longer one than the interface takes.
    pub too_long: u64,
    /// Frames with a wrong checksum, or with part of a byte.
    pub damaged: u64,
}

impl Damage {
    /// Reads the counters of an interface; zero if the interface has no such counters.
    pub fn of(interface: &str) -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(file_of(interface, "statistics").join(name)).ok();
            text.and_then(|text| text.trim().parse().ok()).unwrap_or(0_u64)
        };
        Self {
            too_long: read("rx_length_errors"),
            damaged: read("rx_crc_errors").saturating_add(read("rx_frame_errors")),
        }
    }
}

/// The interfaces of a /proc/net/dev, without the loopback interface.
pub(super) fn parse(text: &[u8]) -> impl Iterator<Item = (&str, InterfaceCounters)> {
    text.split(|byte| *byte == b'\n').skip(2).filter_map(line).filter(|(interface, _)| *interface != "lo")
}

fn line(line: &[u8]) -> Option<(&str, InterfaceCounters)> {
    // A name may have a colon in it, an address cannot.
    let (interface, numbers) = std::str::from_utf8(line).ok()?.rsplit_once(':')?;
    let mut numbers = numbers.split_ascii_whitespace().map(str::parse::<u64>);
    // Received: bytes, packets, errs, drop, fifo, frame, compressed, multicast. Sent: bytes, packets, errs, drop, fifo, colls, carrier, compressed.
    let mut next = |skipped: usize| numbers.nth(skipped)?.ok();
    let counters = InterfaceCounters {
        received_dropped: next(3)?,
        received_overruns: next(0)?,
        received_frames: next(0)?,
        sent_dropped: next(5)?,
        sent_overruns: next(0)?,
        sent_carrier: next(1)?,
    };
    Some((interface.trim_start(), counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &[u8] = b"\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
  eth0: 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116
    c0:       0       0    0    7    0     0          0         0        0       0    0    0    0     0       0          0
 short: 1 2 3
\0\0\0";

    #[test]
    fn each_interface_but_the_loopback_has_its_counters() {
        let eth0 = InterfaceCounters {
            received_dropped: 104,
            received_overruns: 105,
            received_frames: 106,
            sent_dropped: 112,
            sent_overruns: 113,
            sent_carrier: 115,
        };
        let c0 = InterfaceCounters { received_dropped: 7, ..InterfaceCounters::default() };
        assert_eq!(parse(DEV).collect::<Vec<_>>(), [("eth0", eth0), ("c0", c0)]);
    }

    #[test]
    fn counters_that_fall_begin_anew() {
        let before = InterfaceCounters { received_dropped: 7, ..InterfaceCounters::default() };
        let more = InterfaceCounters { received_dropped: 8, sent_carrier: 1, ..before };
        assert!(more.goes_on_from(&before) && before.goes_on_from(&before) && !before.goes_on_from(&more));
    }
}
