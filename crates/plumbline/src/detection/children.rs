//! The operations that ran below the calls of open incidents. They are looked up while the flight recorder still has them, and kept until the
//! incidents are over.

use std::{
    borrow::Borrow,
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use diagnose::{Below, OperationsBelow};
use model::{Caller, Event, Level, Protocol};
use probes::Recorder;

use crate::{
    source::{EventSource, SeesBelow},
    view::clock::nanos,
};

/// How long after an operation's answer the flight recorder may still lack the operation. The answer lets the call go on, so the call may end first.
pub const SETTLED: Duration = Duration::from_millis(100);

/// A call's thread, its start, and whether it is in flight: the operations below a call may change until it ends.
type CallId = (u32, u64, bool);

/// The operations that ran below each call.
#[derive(Clone, Default)]
pub struct Children(HashMap<CallId, Arc<Below>>);

impl Children {
    /// The operations that ran below the call, if they were looked up.
    pub fn of(&self, call: &Event) -> Option<&Below> {
        self.0.get(&id(call)).map(Arc::as_ref)
    }

    /// A copy that has only the operations below these calls.
    pub fn only<'a>(&self, calls: impl Iterator<Item = &'a Event>) -> Self {
        Self(calls.map(id).filter_map(|id| Some((id, Arc::clone(self.0.get(&id)?)))).collect())
    }

    /// Looks up the calls that are not known yet. Calls `recorder` at most once, and only if there is such a call.
    pub fn find<'a, R: Borrow<Recorder>>(
        &mut self,
        source: &dyn EventSource,
        calls: impl Iterator<Item = &'a Event>,
        recorder: impl FnOnce() -> R,
    ) {
        let unsettled = source.now().saturating_sub(nanos(SETTLED));
        let unknown = |call: &&Event| !self.0.contains_key(&id(call)) || call.end() >= unsettled;
        let calls: Vec<_> = calls.filter(unknown).filter(|call| is_call(call)).collect();
        let found = below(source, &calls, recorder);
        self.0.extend(found.into_iter().map(|(call, below)| (id(call), Arc::new(below))));
    }
}

/// The operations below each call whose mount has probes that see them.
pub fn below<'a, R: Borrow<Recorder>>(
    source: &(impl SeesBelow + ?Sized),
    calls: &[&'a Event],
    recorder: impl FnOnce() -> R,
) -> Vec<(&'a Event, Below)> {
    let mounts: HashSet<_> = calls.iter().map(|call| call.mount).collect();
    let since = |mount| Some((mount, source.sees_below_since(mount)?));
    let seen_since: HashMap<_, _> = mounts.into_iter().filter_map(since).collect();
    let calls: Vec<_> = calls.iter().copied().filter(|call| seen_since.contains_key(&call.mount)).collect();
    let Some(begin) = calls.iter().map(|call| call.start).min() else { return Vec::new() };
    let threads: HashSet<_> = calls.iter().map(|call| call.requester.tid).collect();
    let lower = |event: &Event| {
        can_be_below(event.operation.protocol())
            && (threads.contains(&event.requester.tid) || event.caller == Caller::Kernel)
    };
    let waiting = match calls.iter().any(|call| call.flags.in_flight) {
        true => source.in_flight(&|protocol| protocol.level.is_remote(), Duration::ZERO, diagnose::KEPT),
        false => Vec::new(),
    };
    let recorder = recorder();
    let recorder = recorder.borrow();
    let ended = recorder.events_since(begin, usize::MAX);
    let operations = OperationsBelow::new(ended.chain(waiting).filter(lower), recorder.whole_since());
    let join = |call: &'a Event| {
        let mut below = operations.below(call, |key| source.means(key, call.mount));
        below.incomplete |= seen_since.get(&call.mount).is_some_and(|since| *since > call.start);
        (call, below)
    };
    calls.into_iter().map(join).collect()
}

/// Whether the protocol's operations run below calls. Library calls, events of connections and requests that
/// this host serves do not.
fn can_be_below(protocol: &Protocol) -> bool {
    !matches!(protocol.level, Level::Library | Level::Connection | Level::Served)
}

/// Whether it is a system call, or a call of a library.
fn is_call(event: &Event) -> bool {
    event.operation.level() <= Level::SystemCall
}

fn id(call: &Event) -> CallId {
    (call.requester.tid, call.start, call.flags.in_flight)
}
