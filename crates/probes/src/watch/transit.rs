//! Whether what an operation in flight has sent was acknowledged: only the server's address joins the two, since nobody notes
//! the socket of an operation before its answer comes.

use std::net::IpAddr;

use model::{Event, MountKey, Nanos, Protocol, Transit};

use super::Watch;
use crate::{
    batches, filesystems,
    generated::{Plain as _, send, sends},
};

/// Nothing that was sent a shorter time ago is missed yet: Linux's least retransmission timeout (TCP_RTO_MIN), nanoseconds.
const PROMPT: u64 = 200_000_000;

/// A server, and the protocol that it is asked in.
type Asked = (IpAddr, &'static Protocol);

impl Watch {
    /// Fills in what was sent to the server of each, in its protocol, since it began.
    pub(super) fn add_transit(&self, events: &mut [Event], now: Nanos) {
        if !events.iter().any(|event| event.operation.level().is_remote()) {
            return;
        }
        let stamped = self.stamped_sockets();
        for event in events.iter_mut().filter(|event| event.operation.level().is_remote()) {
            let Some(server) = self.asked(event.mount) else { continue };
            let sockets = stamped.iter().filter(|(asked, _)| *asked == server);
            let since = sockets.flat_map(|(_, socket)| &socket.sends).filter(|send| send.queued >= event.start);
            event.transit = sum(since, now);
        }
    }

    fn asked(&self, key: MountKey) -> Option<Asked> {
        let mount = self.mounts.get(key)?;
        Some((mount.address?.0, filesystems::protocol_of(&mount.mount.fstype)?))
    }

    fn stamped_sockets(&self) -> Vec<(Asked, sends)> {
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

/// Of these sends; `None` if none of them is old enough to say anything.
fn sum<'a>(sends: impl Iterator<Item = &'a send>, now: Nanos) -> Option<Transit> {
    let telling = sends.filter(|send| send.acked > 0 || now.saturating_sub(send.queued) >= PROMPT);
    telling.fold(None, |sum, send| Some(add(sum.unwrap_or_default(), send, now)))
}

fn add(mut sum: Transit, send: &send, now: Nanos) -> Transit {
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
        let expected =
            Transit { sends: 3, local: 40, held: 50, least: 40, most: 240, retransmitted: 0, unacknowledged: PROMPT };
        assert_eq!(sum(all.iter(), now), Some(expected));
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
