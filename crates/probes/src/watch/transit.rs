//! Whether what an operation in flight has sent was acknowledged: only the server's address joins the two, since nobody notes
//! the socket of an operation before its answer comes.

use std::net::IpAddr;

use model::{Event, MountKey, Nanos, Transit};

use super::Watch;
use crate::{
    batches,
    generated::{Plain as _, send, sends},
};

impl Watch {
    /// Fills in what was sent to the server of each since it began.
    pub(super) fn add_transit(&self, events: &mut [Event], now: Nanos) {
        let address_of = |key: MountKey| Some(self.mounts.get(key)?.address?.0);
        if !events.iter().any(|event| event.operation.protocol().remote) {
            return;
        }
        let stamped: Vec<(IpAddr, sends)> = self.stamped_sockets(address_of);
        for event in events.iter_mut().filter(|event| event.operation.protocol().remote) {
            let Some(server) = address_of(event.mount) else { continue };
            let sockets = stamped.iter().filter(|(address, _)| *address == server);
            let since = sockets.flat_map(|(_, socket)| &socket.sends).filter(|send| send.queued >= event.start);
            event.transit = since.fold(None, |sum, send| Some(add(sum.unwrap_or_default(), send, now)));
        }
    }

    fn stamped_sockets(&self, address_of: impl Fn(MountKey) -> Option<IpAddr>) -> Vec<(IpAddr, sends)> {
        let mut found = Vec::new();
        let Ok(map) = self.shared.map("sends") else { return found };
        let read = batches::each(map, |_, value| {
            let socket = sends::from_bytes(value);
            found.extend(socket.and_then(|socket| Some((address_of(MountKey(socket.mount))?, socket))));
        });
        if let Err(error) = read {
            tracing::debug!(%error, "cannot read what was sent");
        }
        found
    }
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
        let sum = all.iter().fold(Transit::default(), |sum, send| add(sum, send, 1_000));
        let expected =
            Transit { sends: 3, local: 40, held: 50, least: 40, most: 240, retransmitted: 0, unacknowledged: 700 };
        assert_eq!(sum, expected);
    }
}
