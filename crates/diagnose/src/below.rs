//! The operations below a call, found by thread and time: those that the call's own thread began during it.

use std::collections::HashMap;

use model::{Caller, Event, Flags, MountKey, Nanos, Operation, Phases};

/// How many operations below one call are kept at most, and as many of kernel threads: the longest.
pub const KEPT_BELOW: usize = 16;

/// The error of a start time from the recorder, nanoseconds: each of an operation's parts is truncated to microseconds.
const ROUNDING: Nanos = 3_000;

/// An operation below a call: only some fields of its event, since there can be thousands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Child {
    /// Protocol and command.
    pub operation: Operation,
    /// When its requester began it.
    pub start: Nanos,
    /// From its start to its end, nanoseconds.
    pub duration: u64,
    /// Where that time went.
    pub phases: Phases,
    /// The protocol's own status.
    pub status: u32,
    /// The errno, positive; 0 is success.
    pub errno: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// The client's number of the connection.
    pub connection: u64,
    /// Properties of the request.
    pub flags: Flags,
}

impl Child {
    fn of(event: &Event) -> Self {
        Self {
            operation: event.operation,
            start: event.start,
            duration: event.duration,
            phases: event.phases,
            status: event.status,
            errno: event.errno,
            bytes: event.bytes,
            connection: event.connection,
            flags: event.flags,
        }
    }

    fn end(&self) -> Nanos {
        self.start.saturating_add(self.duration)
    }
}

/// The operations below one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Below {
    /// The operations that the call's own thread began, and got the answer to, before the call returned. The longest,
    /// at most [`KEPT_BELOW`], in the order of their starts.
    pub children: Vec<Child>,
    /// Number of these operations, kept or not.
    pub count: usize,
    /// Time during which at least one of them, kept or not, was in progress, nanoseconds: at most the call's duration.
    pub covered: u64,
    /// Operations of kernel threads on the call's mount during the call. A call that writes data back waits for such
    /// operations, but it is not known for which of them. The longest, at most [`KEPT_BELOW`], in the order of their
    /// starts.
    pub meanwhile: Vec<Child>,
    /// Number of these operations of kernel threads, kept or not.
    pub meanwhile_count: usize,
    /// Some operations may be missing: the recorder had already overwritten some that ended after the call's start, or
    /// their probe was loaded later.
    pub incomplete: bool,
}

/// Operations below calls, found by thread.
#[derive(Debug)]
pub struct OperationsBelow {
    /// Each thread's, in the order of their starts.
    by_thread: HashMap<u32, Vec<Child>>,
    /// The operations of kernel threads, with their mounts.
    by_kernel: Vec<(MountKey, Child)>,
    /// All operations that ended after this time are here.
    whole_since: Nanos,
}

impl OperationsBelow {
    /// Operations of lower layers; all that ended after `whole_since` are among them.
    pub fn new(events: impl Iterator<Item = Event>, whole_since: Nanos) -> Self {
        let mut all = Self { by_thread: HashMap::new(), by_kernel: Vec::new(), whole_since };
        for event in events {
            match event.caller {
                Caller::Kernel => all.by_kernel.push((event.mount, Child::of(&event))),
                _ => all.by_thread.entry(event.requester.tid).or_default().push(Child::of(&event)),
            }
        }
        all.by_thread.values_mut().for_each(|children| children.sort_by_key(|child| child.start));
        all
    }

    /// The operations below `call`. `same_mount` returns whether another protocol's key means the call's mount.
    pub fn below(&self, call: &Event, same_mount: impl Fn(MountKey) -> bool) -> Below {
        let own = self.by_thread.get(&call.requester.tid).map_or(&[][..], Vec::as_slice);
        let first = own.partition_point(|child| child.start.saturating_add(ROUNDING) < call.start);
        let begun = own.iter().skip(first).take_while(|child| child.start <= call.end());
        let is_lower = |child: &&Child| child.operation.level() > call.operation.level();
        let children: Vec<_> = begun.filter(is_lower).filter(|child| came_back_within(*child, call)).collect();
        let overlaps = |child: &Child| child.start <= call.end() && child.end() >= call.start;
        let beside = self.by_kernel.iter().filter(|(mount, child)| overlaps(child) && same_mount(*mount));
        let meanwhile: Vec<_> = beside.map(|(_, child)| child).collect();
        Below {
            count: children.len(),
            covered: covered(children.iter().map(|child| (child.start, child.end())), (call.start, call.end())),
            meanwhile_count: meanwhile.len(),
            children: kept(children),
            meanwhile: kept(meanwhile),
            incomplete: self.whole_since > call.start,
        }
    }
}

/// Whether the operation's answer came before the call returned, or both are still in flight. An answered operation may
/// end after the call: the thread that reads the answer cleans up while the requester continues.
pub(crate) fn came_back_within(child: &impl Answered, call: &Event) -> bool {
    let (flags, end, answer) = child.answered();
    if flags.in_flight {
        return call.flags.in_flight;
    }
    let answered = if flags.unanswered { end } else { answer.unwrap_or(end) };
    answered <= call.end().saturating_add(ROUNDING)
}

/// What can be below a call.
pub(crate) trait Answered {
    /// Its properties, its end, and when its answer came, if that is known.
    fn answered(&self) -> (Flags, Nanos, Option<Nanos>);
}

impl Answered for Child {
    fn answered(&self) -> (Flags, Nanos, Option<Nanos>) {
        (self.flags, self.end(), answer(self.start, self.phases))
    }
}

impl Answered for Event {
    fn answered(&self) -> (Flags, Nanos, Option<Nanos>) {
        (self.flags, self.end(), answer(self.start, self.phases))
    }
}

fn answer(start: Nanos, phases: Phases) -> Option<Nanos> {
    phases.known().then(|| start.saturating_add(phases.queue).saturating_add(phases.wire))
}

/// Time during which at least one of the stretches was in progress within another one, nanoseconds. The stretches must be in the order of their
/// starts.
pub(crate) fn covered(stretches: impl Iterator<Item = (Nanos, Nanos)>, within: (Nanos, Nanos)) -> u64 {
    let (mut sum, mut until) = (0_u64, within.0);
    for (start, end) in stretches {
        let end = end.min(within.1);
        sum += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    sum
}

/// The longest of `children`, at most [`KEPT_BELOW`], in the order of their starts.
fn kept(children: Vec<&Child>) -> Vec<Child> {
    longest(children, KEPT_BELOW, |child| (child.start, child.duration)).into_iter().copied().collect()
}

/// The longest of `all`, at most `most`, in the order of their starts. `time`: the start and the duration of one.
pub(crate) fn longest<T>(mut all: Vec<T>, most: usize, time: impl Fn(&T) -> (Nanos, u64)) -> Vec<T> {
    if all.len() > most {
        all.select_nth_unstable_by_key(most, |one| std::cmp::Reverse(time(one).1));
        all.truncate(most);
    }
    all.sort_by_key(|one| time(one).0);
    all
}
