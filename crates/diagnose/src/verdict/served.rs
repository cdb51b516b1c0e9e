//! Judges requests that this host served for its clients: whether they waited for a thread, were executed late, or were sent late. Their times
//! include nothing that passed outside this host, so a verdict never blames the path or a client.

use std::collections::BTreeSet;

use model::{Cause, Event, Level, Phases, PhasesMs, Verdict};

use super::{
    DOMINANT,
    conclude::{Candidate, conclude},
};
use crate::{
    order,
    units::{MS, counted, span},
};

/// At least this many earlier requests show what is normal.
const ENOUGH: usize = 8;
/// Execution has become slow if it takes at least `TIMES` times as long as usual, and at least `MORE` nanoseconds longer.
const TIMES: u64 = 2;
const MORE: u64 = 10 * MS;
/// The probability of a cause that this host has seen itself, with and without a known normal: without one, the time may be usual.
const SEEN: f64 = 0.92;
const WITHOUT_NORMAL: f64 = 0.82;
/// If threads execute a request in less than this, nanoseconds, other requests wait because there are too few threads, not because execution is slow.
const PROMPT: u64 = 30 * MS;

/// The sentence for threads that slow execution keeps busy.
pub(crate) const THREADS_BUSY: &str =
    "All threads were busy because each request took much longer than usual to execute.";

/// Whether execution has become slow, by the time that it takes and the time that it usually takes, nanoseconds.
pub(crate) fn became_slow(executed: u64, usual: u64) -> bool {
    executed >= usual.saturating_mul(TIMES) && executed.saturating_sub(usual) >= MORE
}

/// Whether these are requests that this host served.
pub(super) fn are_served(events: &[Event]) -> bool {
    events.iter().any(|event| event.operation.level() == Level::Served)
}

/// Where requests spent their time on this host, nanoseconds on average.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct OnServer {
    waited: u64,
    executed: u64,
    sent: u64,
}

impl OnServer {
    /// `None` without requests.
    fn mean<'a>(events: impl Iterator<Item = &'a Event>) -> Option<Self> {
        let (mut count, mut sums) = (0_u128, [0_u128; 3]);
        for event in events.filter(|event| event.phases.known()) {
            let (weight, phases) = (u128::from(event.operations()), event.phases);
            count += weight;
            for (sum, time) in sums.iter_mut().zip([phases.queue, phases.wire, phases.deliver]) {
                *sum += weight * u128::from(time);
            }
        }
        let [waited, executed, sent] = sums.map(|sum| u64::try_from(sum / count.max(1)).unwrap_or(u64::MAX));
        (count > 0).then_some(Self { waited, executed, sent })
    }

    /// The median of each part separately, so that an earlier incident among these requests changes little. `None` without requests.
    fn median(events: &[&Event]) -> Option<Self> {
        let known: Vec<_> = events.iter().map(|event| event.phases).filter(Phases::known).collect();
        let median = |of: fn(&Phases) -> u64| order::median(known.iter().map(of).collect());
        Some(Self {
            waited: median(|phases| phases.queue)?,
            executed: median(|phases| phases.wire)?,
            sent: median(|phases| phases.deliver)?,
        })
    }

    fn less(self, usual: Self) -> Self {
        Self {
            waited: self.waited.saturating_sub(usual.waited),
            executed: self.executed.saturating_sub(usual.executed),
            sent: self.sent.saturating_sub(usual.sent),
        }
    }

    fn all(self) -> u64 {
        self.waited.saturating_add(self.executed).saturating_add(self.sent)
    }
}

/// Judges slow requests. `around`: other requests that this host served.
pub(super) fn verdict(slow: &[Event], around: &[Event]) -> Verdict {
    let Some(during) = OnServer::mean(slow.iter()) else {
        return Verdict::unknown("What the slow requests waited for on this host is not known.");
    };
    let from = slow.iter().map(|event| event.start).min().unwrap_or(0);
    let before: Vec<_> =
        around.iter().filter(|event| event.operation.level() == Level::Served && event.end() < from).collect();
    let usual = OnServer::median(&before).filter(|_| before.len() >= ENOUGH);
    let count = slow.iter().map(Event::operations).fold(0, u64::saturating_add);
    let clients = slow.iter().map(|event| event.connection).collect::<BTreeSet<_>>().len() as u64;
    let mut because = vec![format!(
        "{} of {} {} on this host for {} on average: {} until a thread took them, {} until they had been executed, {} until TCP had the answer.",
        counted(count, "slow request"),
        counted(clients, "client"),
        if count == 1 { "was" } else { "were" },
        span(during.all()),
        span(during.waited),
        span(during.executed),
        span(during.sent)
    )];
    because.extend(usual.map(|usual| {
        format!(
            "Before: {}, {} and {} (medians of {}).",
            span(usual.waited),
            span(usual.executed),
            span(usual.sent),
            counted(before.len() as u64, "request")
        )
    }));
    let phases = PhasesMs { server: Some((during.all() as f64 / 1e3).round() / 1e3), ..PhasesMs::default() };
    conclude(candidates(during, usual, &mut because), because, phases)
}

fn candidates(during: OnServer, usual: Option<OnServer>, because: &mut Vec<String>) -> Vec<Candidate> {
    let extra = during.less(usual.unwrap_or_default());
    let share = |time: u64| time as f64 / extra.all().max(1) as f64;
    let sure = if usual.is_some() { SEEN } else { WITHOUT_NORMAL };
    if share(extra.sent) >= DOMINANT {
        because.push(
            "The thread could not hand the answers to TCP: the client, or the path to the client, took the answers slowly."
                .to_owned(),
        );
        return vec![(Cause::NarrowPath, 0.4)];
    }
    if share(extra.executed) >= DOMINANT {
        return vec![(Cause::SlowExecution, sure)];
    }
    if share(extra.waited) < DOMINANT {
        return vec![
            (Cause::NoThread, share(extra.waited) * SEEN),
            (Cause::SlowExecution, share(extra.executed) * SEEN),
        ];
    }
    // Threads that take longer for each request are free less often.
    if usual.is_some_and(|usual| became_slow(during.executed, usual.executed)) {
        because.push(THREADS_BUSY.to_owned());
        return vec![(Cause::SlowExecution, sure), (Cause::NoThread, 1.0 - sure)];
    }
    if usual.is_none() && during.executed >= PROMPT {
        because.push(
            "The normal execution time of requests is not known: threads may be busy because they wait for the disk."
                .to_owned(),
        );
        return vec![(Cause::NoThread, 0.5), (Cause::SlowExecution, 0.45)];
    }
    vec![(Cause::NoThread, sure)]
}

/// Judges requests that this host's server answered with an error.
pub(super) fn of_errors(failed: &[Event]) -> Verdict {
    let count = failed.iter().map(Event::operations).fold(0, u64::saturating_add);
    let name = |event: &Event| (event.operation.protocol().status_name)(event.status);
    let names: BTreeSet<_> = failed.iter().filter_map(name).collect();
    let names =
        if names.is_empty() { "an error".to_owned() } else { names.into_iter().take(3).collect::<Vec<_>>().join(", ") };
    Verdict::unknown(format!(
        "This host's server answered {} with {names}. Whether its file system or the request was wrong is not known.",
        counted(count, "request")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_server(waited: u64, executed: u64, sent: u64) -> OnServer {
        OnServer { waited: waited * MS, executed: executed * MS, sent: sent * MS }
    }

    fn cause(during: OnServer, usual: Option<OnServer>) -> Option<Cause> {
        let candidates = candidates(during, usual, &mut Vec::new());
        candidates.into_iter().find(|(_, likely)| *likely >= 0.8).map(|(cause, _)| cause)
    }

    #[test]
    fn the_phase_that_grew_is_the_cause() {
        let usual = Some(on_server(0, 2, 0));
        assert_eq!(cause(on_server(0, 200, 0), usual), Some(Cause::SlowExecution));
        assert_eq!(cause(on_server(150, 2, 0), usual), Some(Cause::NoThread));
        assert_eq!(cause(on_server(0, 2, 300), usual), None, "whose it is that answers are taken late is not seen");
        assert_eq!(cause(on_server(60, 60, 0), None), None);
    }

    #[test]
    fn threads_that_wait_for_the_disk_are_why_others_wait_for_a_thread() {
        assert_eq!(cause(on_server(1400, 200, 0), Some(on_server(0, 2, 0))), Some(Cause::SlowExecution));
        assert_eq!(cause(on_server(1400, 200, 0), None), None, "which came first is not known");
        assert_eq!(cause(on_server(140, 20, 0), Some(on_server(10, 20, 0))), Some(Cause::NoThread));
        assert_eq!(cause(on_server(140, 20, 0), None), Some(Cause::NoThread));
    }
}
