//! Joins operations to trees, thread by thread, as they end.
//!
//! An operation is below another one if its thread asked for it, and got the answer, while it was in the other one, and if the other one
//! is of a higher layer. It ends before the other one does, so that a tree is whole when its top has ended; whether a higher
//! operation is still under way is what operations in flight say.

use std::{cmp::Reverse, collections::HashMap};

use model::{Event, Level, MountKey, Nanos};

use super::{OperationTree, by_kernel::ByKernel, earliest};
use crate::below::came_back_within;

/// How deep a tree is at most; what lies deeper is a child of the last.
const DEEPEST: usize = 32;

/// Whether a key means the mount of a device, by whichever probe's way to name it.
type SameMount<'a> = &'a dyn Fn(MountKey, MountKey) -> bool;

/// Operations that have ended, until the tree is whole that they belong to.
#[derive(Debug)]
pub struct TreeAssembler {
    /// By thread, in the order in which they came.
    threads: HashMap<u32, Vec<Event>>,
    /// How many these are.
    held: usize,
    /// How many may be held.
    most: usize,
    /// Threads whose operations were given out before it was known what they are below, and until when.
    given_up: HashMap<u32, Nanos>,
    given_up_count: u64,
    by_kernel: ByKernel,
}

impl TreeAssembler {
    /// Holds at most so many operations, and as many of threads of the kernel.
    pub fn new(most: usize) -> Self {
        let (threads, given_up) = Default::default();
        Self { threads, held: 0, most, given_up, given_up_count: 0, by_kernel: ByKernel::new(most) }
    }

    /// Takes an operation that has ended.
    pub fn add(&mut self, event: Event) {
        if event.caller == model::Caller::Kernel {
            return self.by_kernel.add(event);
        }
        self.by_kernel.touched(&event);
        self.held += 1;
        self.threads.entry(event.requester.tid).or_default().push(event);
    }

    /// Whether operations wait for what is above them.
    pub fn is_waiting(&self) -> bool {
        self.held > 0
    }

    /// Operations that were given out as trees of their own, since too many waited for what was above them to end.
    pub fn given_up(&self) -> u64 {
        self.given_up_count
    }

    /// The trees that are whole, by start. `open`: what was in flight when it was `asked`, after which everything was added that had ended until then.
    pub fn whole(&mut self, asked: Nanos, open: &[Event], same_mount: SameMount<'_>) -> Vec<OperationTree> {
        let mut open_by_thread: HashMap<u32, Vec<&Event>> = HashMap::new();
        open.iter().for_each(|event| open_by_thread.entry(event.requester.tid).or_default().push(event));
        let mut trees = Vec::new();
        for (tid, events) in std::mem::take(&mut self.threads) {
            let above = open_by_thread.get(&tid).map_or(&[][..], Vec::as_slice);
            let is_whole = |tree: &OperationTree| {
                tree.event.end() <= asked && !above.iter().any(|open| can_be_above(open, &tree.event))
            };
            let (whole, rest): (Vec<_>, Vec<_>) = forest(events).into_iter().partition(is_whole);
            trees.extend(whole.into_iter().map(|tree| self.known_as(tree, tid)));
            self.keep(tid, rest);
        }
        self.held = self.threads.values().map(Vec::len).sum();
        if self.held > self.most {
            trees.extend(self.give_up());
        }
        let held = earliest(self.threads.values().flatten().chain(open));
        let nobodys = self.by_kernel.join(&mut trees, asked, held, same_mount);
        trees.extend(nobodys);
        trees.sort_by_key(|tree| tree.event.start);
        trees
    }

    /// All trees there are, by start: nothing more is added. `open`: what had not ended when it was asked for, which may have ended since.
    pub fn all(mut self, open: Vec<Event>, same_mount: SameMount<'_>) -> Vec<OperationTree> {
        for event in open {
            let has_ended = |other: &Event| {
                (other.operation, other.start, other.requester.tid)
                    == (event.operation, event.start, event.requester.tid)
            };
            if !self.threads.get(&event.requester.tid).is_some_and(|ended| ended.iter().any(has_ended)) {
                self.add(event);
            }
        }
        self.whole(Nanos::MAX, &[], same_mount)
    }

    fn keep(&mut self, tid: u32, trees: Vec<OperationTree>) {
        let mut events = Vec::new();
        trees.into_iter().for_each(|tree| tree.into_events(&mut events));
        if !events.is_empty() {
            self.threads.insert(tid, events);
        }
    }

    /// Gives out what is held, whole or not.
    fn give_up(&mut self) -> Vec<OperationTree> {
        self.given_up_count += self.held as u64;
        self.held = 0;
        if self.given_up.len() > self.most {
            self.given_up.clear();
        }
        let mut trees = Vec::new();
        for (tid, events) in std::mem::take(&mut self.threads) {
            let until = events.iter().map(Event::end).max().unwrap_or_default();
            self.given_up.insert(tid, until);
            trees.extend(forest(events));
        }
        trees
    }

    /// Says of a tree whether some of it was given out before.
    fn known_as(&self, tree: OperationTree, tid: u32) -> OperationTree {
        let incomplete = self.given_up.get(&tid).is_some_and(|until| tree.event.start <= *until);
        OperationTree { incomplete, ..tree }
    }
}

/// The trees of one thread's operations.
fn forest(mut events: Vec<Event>) -> Vec<OperationTree> {
    events.sort_by_key(|event| (event.start, event.operation.level(), Reverse(event.end())));
    let places = Places::of(&events);
    let mut trees: Vec<Option<OperationTree>> =
        events.into_iter().map(|event| Some(OperationTree::leaf(event))).collect();
    let mut tops = Vec::new();
    // From the last on, so that each has all of its own when it is given to its parent.
    for (place, parent) in places.0.iter().enumerate().rev() {
        let Some(mut tree) = trees.get_mut(place).and_then(Option::take) else { continue };
        tree.children.reverse();
        tree.meanwhile.sort_by_key(|event| event.start);
        match parent {
            Parent::None => tops.push(tree),
            Parent::Of(above) => {
                if let Some(above) = trees.get_mut(*above).and_then(Option::as_mut) {
                    above.children.push(tree);
                }
            }
            Parent::LeftBehind(above) => {
                if let Some(above) = trees.get_mut(*above).and_then(Option::as_mut) {
                    tree.into_events(&mut above.meanwhile);
                }
            }
        }
    }
    tops.reverse();
    tops
}

/// What an operation is to one that began before it.
#[derive(Clone, Copy)]
enum Parent {
    /// Nothing is above it.
    None,
    /// It is below that one.
    Of(usize),
    /// That one began it, and ended first.
    LeftBehind(usize),
}

/// What is above each of a thread's operations, in the order of their starts.
struct Places(Vec<Parent>);

impl Places {
    fn of(events: &[Event]) -> Self {
        let (mut places, mut depths) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
        // Those that have begun and not ended, by their places.
        let mut under_way: Vec<usize> = Vec::new();
        for (place, event) in events.iter().enumerate() {
            let at = |place: &usize| events.get(*place);
            under_way.retain(|above| at(above).is_some_and(|above| above.end() >= event.start));
            let depth = |place: &usize| depths.get(*place).copied().unwrap_or(0);
            let found = |is: &dyn Fn(&Event) -> bool| {
                let mut innermost_first = under_way.iter().rev().copied();
                innermost_first.find(|above| depth(above) < DEEPEST && at(above).is_some_and(is))
            };
            let above = found(&|above: &Event| can_be_above(above, event) && is_within(event, above));
            let left = || found(&|above: &Event| can_be_above(above, event) && event.operation.level().is_remote());
            let parent = match above {
                Some(above) => Parent::Of(above),
                None => left().map_or(Parent::None, Parent::LeftBehind),
            };
            let deep = above.map_or(0, |above| depth(&above) + 1);
            depths.push(deep);
            places.push(parent);
            under_way.push(place);
        }
        Self(places)
    }
}

/// Whether the one's time lies in the other's.
fn is_within(event: &Event, above: &Event) -> bool {
    if event.operation.level().is_remote() { came_back_within(event, above) } else { event.end() <= above.end() }
}

/// Whether an operation that began no later can be above another one of its thread, by its layer.
fn can_be_above(above: &Event, event: &Event) -> bool {
    if above.start > event.start {
        return false;
    }
    let (upper, lower) = (above.operation.level(), event.operation.level());
    // Where an operation of the site's own stands is not known. Functions of one layer call each other; requests and system calls do not.
    let nests = |level| matches!(level, Level::Library | Level::FileSystem | Level::Own);
    let is_longer = above.flags.in_flight || above.duration > event.duration;
    let may_nest = lower == Level::Own || upper == Level::Own || upper == lower && nests(upper);
    upper < lower || (may_nest && is_longer)
}
