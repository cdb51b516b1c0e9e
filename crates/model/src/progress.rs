//! Totals of a connection, of the thread that sent and of the thread that received. Only their differences are
//! meaningful.

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// The totals that were read when an operation of 10 ms or more ended. A total that is not known is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The server connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketTotals>,
    /// The thread that began the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requester: Option<RequesterWaits>,
    /// The thread that read the answer from the socket, at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<CpuWait>,
}

/// TCP's counters of a connection. The numbers wrap: [`SocketTotals::since`] takes the difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketTotals {
    /// Segments sent, those without data included.
    pub segments_out: u32,
    /// Segments received, those without data included.
    pub segments_in: u32,
    /// Segments with data that the peer has acknowledged.
    pub delivered: u32,
    /// Retransmission timeouts; 0 before Linux 6.7.
    pub timeouts: u32,
    /// Segments that were retransmitted although the peer had them (RFC 2883).
    pub needless: u32,
    /// Time during which data was unacknowledged or waited to be sent. Milliseconds, to a jiffy, as in the next two
    /// fields.
    pub busy_ms: u32,
    /// Part of `busy_ms`: the data to send did not fit the peer's window.
    pub window_ms: u32,
    /// Part of `busy_ms`: the send buffer was full.
    pub buffer_ms: u32,
    /// No total: the rate at which TCP paces segments, bytes per second; 0: no pacing.
    pub pacing_rate: u64,
    /// No total: the newest sample of the rate at which data was acknowledged, bytes per second.
    pub delivery_rate: u64,
    /// Whether the sender had no data to send during part of that sample: if so, the path may be faster.
    pub application_limited: bool,
    /// No total: the receive window that this host offered last, bytes; 0 if not known.
    pub own_window: u32,
    /// No total: the most data that TCP sends in a segment, bytes; 0 if not known.
    pub mss: u16,
    /// No total: the MTU that somebody has set on this host's route to the server, bytes; 0 if there is none, or if the
    /// connection is not plain IPv4: then the kernel keeps an MTU that the path has reported in the same place.
    pub route_mtu: u16,
    /// No total: the server's port; 0 if not known.
    pub port: u16,
    /// No total: whether data last came in by the loopback interface.
    pub by_loopback: bool,
}

/// A thread's time without a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuWait {
    /// The thread.
    pub tid: u32,
    /// Time that it was runnable without a CPU, in all its life: microseconds modulo 2^32 (`sched_info.run_delay`).
    pub waited_us: u32,
}

/// How long a requester waited for this host's CPUs and memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequesterWaits {
    /// The thread's total.
    pub cpu: CpuWait,
    /// The part of this total that passed during the operation, microseconds, since the operation had its credits or its slot;
    /// `None` if not known.
    pub during_us: Option<u32>,
    /// Time that some threads of its cgroup waited for a CPU (PSI): milliseconds in all the cgroup's life, updated
    /// every two seconds. 0 if the kernel has no PSI.
    pub cpu_pressure_ms: u32,
    /// Time that some threads of its cgroup waited for memory; otherwise as `cpu_pressure_ms`.
    pub memory_pressure_ms: u32,
}

impl SocketTotals {
    /// The difference to `earlier`, totals of the same connection. Fields that are no totals keep their values.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            segments_out: self.segments_out.wrapping_sub(earlier.segments_out),
            segments_in: self.segments_in.wrapping_sub(earlier.segments_in),
            delivered: self.delivered.wrapping_sub(earlier.delivered),
            // 16 bits in the kernel.
            timeouts: self.timeouts.wrapping_sub(earlier.timeouts) & 0xffff,
            needless: self.needless.wrapping_sub(earlier.needless),
            busy_ms: self.busy_ms.wrapping_sub(earlier.busy_ms),
            window_ms: self.window_ms.wrapping_sub(earlier.window_ms),
            buffer_ms: self.buffer_ms.wrapping_sub(earlier.buffer_ms),
            ..*self
        }
    }
}

impl CpuWait {
    /// How long the thread waited since `earlier`, nanoseconds; `None` if `earlier` is of another thread.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Nanos> {
        (self.tid == earlier.tid).then(|| u64::from(self.waited_us.wrapping_sub(earlier.waited_us)) * 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_wrap() {
        let earlier = SocketTotals { segments_in: u32::MAX, timeouts: 0xffff, busy_ms: 8, ..SocketTotals::default() };
        let now =
            SocketTotals { segments_in: 2, timeouts: 1, busy_ms: 20, delivery_rate: 7, ..SocketTotals::default() };
        let since = now.since(&earlier);
        assert_eq!((since.segments_in, since.timeouts, since.busy_ms, since.delivery_rate), (3, 2, 12, 7));
    }

    #[test]
    fn a_wait_is_of_one_thread() {
        let earlier = CpuWait { tid: 7, waited_us: u32::MAX };
        assert_eq!(CpuWait { tid: 7, waited_us: 4 }.since(&earlier), Some(5_000));
        assert_eq!(CpuWait { tid: 8, waited_us: 4 }.since(&earlier), None);
    }
}
