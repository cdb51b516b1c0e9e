//! Joins operations into trees, thread by thread, as they end.
//!
//! An operation is below another operation of the same thread if the other one is of a higher layer, and if the thread began the operation and got
//! its answer during the other one. The lower operation ends first, so a tree is complete when its top operation has ended. The list of operations in
//! flight tells whether a higher operation is still under way.

use std::{cmp::Reverse, collections::HashMap};

use model::{Event, Level, MountKey, Nanos};

use super::{OperationTree, by_kernel::ByKernel, earliest};
use crate::below::came_back_within;

/// The greatest depth of a tree. Deeper operations become children of an operation at this depth.
const DEEPEST: usize = 32;

/// Whether two keys stand for the same mount, although different probes may have formed them.
type SameMount<'a> = &'a dyn Fn(MountKey, MountKey) -> bool;

/// Operations that have ended, held until their tree is complete.
#[derive(Debug)]
pub struct TreeAssembler {
    /// By thread, in the order of their arrival.
    threads: HashMap<u32, Vec<Event>>,
    /// Number of operations in `threads`.
    held: usize,
    /// The most operations that may be held.
    most: usize,
    /// Threads whose operations were given out before their parents were known, with the end of the last of these operations.
    given_up: HashMap<u32, Nanos>,
    given_up_count: u64,
    by_kernel: ByKernel,
}

impl TreeAssembler {
    /// Holds at most `most` operations, and as many again of kernel threads.
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

    /// Whether operations are held because an operation above them may not have ended.
    pub fn is_waiting(&self) -> bool {
        self.held > 0
    }

    /// Number of operations that were given out as trees of their own because too many waited for the end of an operation above them.
    pub fn given_up(&self) -> u64 {
        self.given_up_count
    }

    /// The complete trees, by start. `open`: the operations in flight at the time `asked`. All operations that had ended by then must have been
    /// added.
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

    /// All remaining trees, by start; nothing more is added. `open`: the operations last seen in flight; some of them may have ended since.
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

    /// Gives out all operations that are held, whether their trees are complete or not.
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

    /// Marks a tree as incomplete if some of its operations may have been given out before.
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
    // In reverse order, so that a tree has all its children before it is added to its parent.
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

/// How an operation is related to those that began before it.
#[derive(Clone, Copy)]
enum Parent {
    /// Nothing is above it.
    None,
    /// The operation is below the one at this place.
    Of(usize),
    /// The operation at this place began it, but ended first.
    LeftBehind(usize),
}

/// The parent of each of a thread's operations, in the order of their starts.
struct Places(Vec<Parent>);

impl Places {
    fn of(events: &[Event]) -> Self {
        let (mut places, mut depths) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
        // The places of the operations that have begun and not ended.
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

/// Whether `event` lies within the time of `above`.
fn is_within(event: &Event, above: &Event) -> bool {
    if event.operation.level().is_remote() { came_back_within(event, above) } else { event.end() <= above.end() }
}

/// Whether `above` can be above `event`, an operation of the same thread: it began no later, and its layer allows it.
fn can_be_above(above: &Event, event: &Event) -> bool {
    if above.start > event.start {
        return false;
    }
    let (upper, lower) = (above.operation.level(), event.operation.level());
    // The layer of operations that the site itself defined is not known. Functions of one layer call each other; requests and system calls do not.
    let nests = |level| matches!(level, Level::Library | Level::FileSystem | Level::Own);
    let is_longer = above.flags.in_flight || above.duration > event.duration;
    let may_nest = lower == Level::Own || upper == Level::Own || upper == lower && nests(upper);
    upper < lower || (may_nest && is_longer)
}
