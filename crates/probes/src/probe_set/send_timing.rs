//! Whether the data that an operation in flight has sent was acknowledged. Only the server's address connects an operation to
//! a socket: the operation's socket is not recorded before its answer comes.

use std::{net::IpAddr, time::Duration};

use model::{Event, MountKey, Nanos, Protocol, SendTiming};

use super::ProbeSet;
use crate::{
    batches, filesystems,
    generated::{Plain as _, send, sends},
    probe::Sent,
};

/// Data that was sent a shorter time ago is not yet overdue: Linux's least retransmission timeout (TCP_RTO_MIN),
/// nanoseconds.
const PROMPT: u64 = 200_000_000;
/// The tolerance between an operation's age and the time since it was sent, nanoseconds: a tick, and the time between the two
/// looks.
const LOOKING: u64 = 50_000_000;

/// A server, and the protocol of the requests to it.
type ServerAndProtocol = (IpAddr, &'static Protocol);

impl ProbeSet {
    /// Fills in, for each operation, what was sent to its server in its protocol since the operation began.
    pub(super) fn add_send_timing(&self, events: &mut [Event], now: Nanos) {
        if !events.iter().any(|event| event.operation.level().is_remote()) {
            return;
        }
        let stamped = self.stamped_sockets();
        for event in events.iter_mut().filter(|event| event.operation.level().is_remote()) {
            let Some(server) = self.asked(event.mount) else { continue };
            let sockets = stamped.iter().filter(|(asked, _)| *asked == server);
            let since = sockets.flat_map(|(_, socket)| &socket.sends).filter(|send| send.queued >= event.start);
            event.send_timing = sum(since, now);
        }
        let is_old = |event: &Event| event.duration >= PROMPT && event.operation.level().is_remote();
        if !events.iter().any(is_old) {
            return;
        }
        // What TCP itself knows of the connections.
        let probes = self.probes.iter().filter(|probe| probe.attached.is_some());
        let sent: Vec<_> =
            probes.flat_map(|probe| probe.probe.sent()).map(|sent| (self.asked(sent.mount), sent)).collect();
        for event in events.iter_mut().filter(|event| is_old(event)) {
            let Some(server) = self.asked(event.mount) else { continue };
            let connections: Vec<_> =
                sent.iter().filter(|(asked, _)| *asked == Some(server)).map(|(_, sent)| sent).collect();
            let timing = event.send_timing.or_else(|| whether_acknowledged(&connections, event.duration));
            let gap = connections.iter().any(|sent| sent.gap);
            event.send_timing = timing.map(|timing| SendTiming { gap, ..timing });
        }
    }

    fn asked(&self, key: MountKey) -> Option<ServerAndProtocol> {
        let mount = self.mounts.get(key)?;
        Some((mount.address?.0, filesystems::protocol_of(&mount.mount.fstype)?))
    }

    fn stamped_sockets(&self) -> Vec<(ServerAndProtocol, sends)> {
        let mut found = Vec::new();
        let Ok(map) = self.shared.map("sends") else { return found };
        let read = batches::each(map, |_, value| {
            let socket = sends::from_bytes(value);
            found.extend(socket.and_then(|socket| Some((self.asked(MountKey(socket.mount))?, socket))));
        });
        if let Err(error) = read {
            tracing::debug!(%error, "cannot read what was sent");
        }
        found
    }
}

/// The timing of what a server was sent while an operation of this age was in flight, by connections that are not stamped; `None` if it is
/// not known.
fn whether_acknowledged(connections: &[&Sent], age: u64) -> Option<SendTiming> {
    let since = |sent: &&&Sent| sent.quiet.is_some_and(|quiet| nanos(quiet) <= age + LOOKING);
    let waits = connections.iter().filter(since).map(|sent| sent.unacknowledged.map_or(0, nanos).min(age));
    let unacknowledged = waits.max()?;
    // A shorter time is no sign of anything yet.
    let is_known = unacknowledged == 0 || unacknowledged >= PROMPT;
    is_known.then(|| SendTiming { unacknowledged, ..SendTiming::default() })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The timing of these sends; `None` if none of them is old enough to be meaningful.
fn sum<'a>(sends: impl Iterator<Item = &'a send>, now: Nanos) -> Option<SendTiming> {
    let telling = sends.filter(|send| send.acked > 0 || now.saturating_sub(send.queued) >= PROMPT);
    telling.fold(None, |sum, send| Some(add(sum.unwrap_or_default(), send, now)))
}

fn add(mut sum: SendTiming, send: &send, now: Nanos) -> SendTiming {
    let between = |from: u64, to: u64| if from > 0 { to.saturating_sub(from) } else { 0 };
    let left = if send.driver > 0 { send.driver } else { send.sched };
    sum.sends += 1;
    sum.retransmitted = sum.retransmitted.saturating_add(send.retransmitted);
    sum.held = sum.held.max(between(send.queued, send.sched));
    sum.local = sum.local.max(between(send.sched, left));
    if send.acked == 0 {
        sum.unacknowledged = sum.unacknowledged.max(between(send.queued, now));
    } else {
        let took = between(left, send.acked);
        sum.least = if sum.most == 0 { took } else { sum.least.min(took) };
        sum.most = sum.most.max(took);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_and_what_was_not_are_told_apart() {
        let of = |queued, sched, driver, acked| send { queued, sched, driver, acked, ..send::default() };
        let all = [of(100, 150, 160, 400), of(200, 210, 0, 250), of(300, 350, 390, 0)];
        let now = 300 + PROMPT;
        let expected = SendTiming {
            sends: 3,
            local: 40,
            held: 50,
            least: 40,
            most: 240,
            retransmitted: 0,
            unacknowledged: PROMPT,
            gap: false,
        };
        assert_eq!(sum(all.iter(), now), Some(expected));
    }

    #[test]
    fn where_nothing_is_stamped_tcp_knows_whether_all_is_acknowledged() {
        let sent = |quiet_ms: u64, unacknowledged_ms: Option<u64>| Sent {
            mount: MountKey::NONE,
            quiet: Some(Duration::from_millis(quiet_ms)),
            unacknowledged: unacknowledged_ms.map(Duration::from_millis),
            gap: false,
        };
        let of = |all: &[Sent]| {
            whether_acknowledged(&all.iter().collect::<Vec<_>>(), 5_000_000_000).map(|timing| timing.unacknowledged)
        };
        assert_eq!(of(&[sent(4_000, None)]), Some(0));
        assert_eq!(of(&[sent(4_000, None), sent(10, Some(3_000))]), Some(3_000_000_000));
        assert_eq!(of(&[sent(10, Some(60_000))]), Some(5_000_000_000), "not longer than it has been in flight");
        assert_eq!(of(&[sent(10, Some(20))]), None, "on its way");
        assert_eq!(of(&[sent(6_000, None)]), None, "nothing was sent since");
    }

    #[test]
    fn what_was_sent_a_moment_ago_says_nothing_yet() {
        let young = send { queued: PROMPT, ..send::default() };
        let arrived = send { queued: 100, sched: 150, driver: 160, acked: 400, ..send::default() };
        assert_eq!(sum([young].iter(), 2 * PROMPT - 1), None);
        assert_eq!(
            sum([arrived, young].iter(), 2 * PROMPT - 1).map(|sum| (sum.sends, sum.unacknowledged)),
            Some((1, 0))
        );
        assert_eq!(sum([arrived, young].iter(), 2 * PROMPT).map(|sum| sum.unacknowledged), Some(PROMPT));
    }
}
