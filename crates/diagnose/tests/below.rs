//! What ran below a call, and what is not said to have.
mod common;

use std::slice::from_ref;

use common::{MS, smb, syscall};
use model::{Caller, Event, Flags, MountKey, Requester};
use plumbline_diagnose::{Below, Child, KEPT_BELOW, OperationsBelow};

const THREAD: u32 = 4242;

fn by_thread(tid: u32, event: Event) -> Event {
    Event { requester: Requester { tid, ..event.requester }, ..event }
}

fn by_kernel(event: Event) -> Event {
    Event { caller: Caller::Kernel, ..by_thread(17, event) }
}

fn read(start: f64, wire: f64) -> Event {
    smb("SMB2_READ", start, [0.0, wire, 0.0])
}

/// Below a call of thread 4242 from 100 to 200 ms.
fn below(operations: &[Event]) -> Below {
    below_call(&syscall("read", 100.0, 100.0), operations, 0)
}

fn below_call(call: &Event, operations: &[Event], whole_since: u64) -> Below {
    let here = MountKey::source(b"//server/share");
    OperationsBelow::new(operations.iter().cloned(), whole_since).below(call, |mount| mount == here)
}

fn starts(children: &[Child]) -> Vec<u64> {
    children.iter().map(|child| child.start / MS).collect()
}

#[test]
fn what_the_thread_did_within_the_call_is_below_it_and_nothing_else_is() {
    let operations = [
        read(90.0, 5.0),                         // before
        read(99.0, 50.0),                        // begun before, as by an io_uring
        read(160.0, 30.0),                       // out of order
        read(110.0, 20.0),                       //
        by_thread(4243, read(120.0, 10.0)),      // its neighbour's
        read(190.0, 50.0),                       // read ahead: nobody has waited for it
        read(210.0, 5.0),                        // after
        by_thread(THREAD + 1, read(110.0, 1.0)), // another thread's
    ];
    let below = below(&operations);
    assert_eq!(starts(&below.children), [110, 160]);
    assert_eq!((below.count, below.covered, below.incomplete), (2, 50 * MS, false));
    assert!(below.meanwhile.is_empty());
}

#[test]
fn an_operation_whose_answer_was_there_is_below_although_it_is_tidied_up_later() {
    let late = smb("SMB2_READ", 150.0, [5.0, 45.0, 1.5]);
    assert_eq!(starts(&below(from_ref(&late)).children), [150]);
    assert_eq!(below(from_ref(&late)).covered, 50 * MS, "as long as the call lasted");
    let never_answered = Event { flags: Flags { unanswered: true, ..late.flags }, ..late };
    assert_eq!(below(&[never_answered]).count, 0);
}

#[test]
fn times_cut_to_microseconds_do_not_part_a_call_from_its_operation() {
    let call = syscall("read", 100.0, 100.0);
    let whole = Event { start: call.start - 900, ..read(100.0, 100.0) };
    assert_eq!(below(&[whole]).count, 1);
}

#[test]
fn what_the_kernel_wrote_back_is_beside_the_call_and_not_below_it() {
    let elsewhere = Event { mount: MountKey::source(b"//server/other"), ..by_kernel(read(120.0, 5.0)) };
    let operations = [
        by_kernel(smb("SMB2_WRITE", 95.0, [0.0, 20.0, 0.0])),
        by_kernel(smb("SMB2_WRITE", 120.0, [0.0, 20.0, 0.0])),
        by_kernel(smb("SMB2_WRITE", 80.0, [0.0, 10.0, 0.0])),
        by_kernel(smb("SMB2_WRITE", 201.0, [0.0, 10.0, 0.0])),
        elsewhere,
    ];
    let below = below(&operations);
    assert_eq!((starts(&below.meanwhile), below.meanwhile_count), (vec![95, 120], 2));
    assert_eq!((below.count, below.covered), (0, 0));
}

#[test]
fn of_many_the_longest_are_kept_and_all_are_counted() {
    let operations: Vec<_> = (0..90).map(|n| read(100.0 + f64::from(n), 0.5 + f64::from(n) / 1000.0)).collect();
    let below = below(&operations);
    assert_eq!((below.children.len(), below.count), (KEPT_BELOW, 90));
    assert_eq!(starts(&below.children), (190 - KEPT_BELOW as u64..190).collect::<Vec<_>>());
    let all: u64 = operations.iter().map(|event| event.duration).sum();
    assert_eq!(below.covered, all, "those that are not kept count too");
}

#[test]
fn what_overlaps_is_covered_once() {
    assert_eq!(below(&[read(110.0, 40.0), read(120.0, 10.0), read(140.0, 20.0)]).covered, 50 * MS);
}

#[test]
fn a_recorder_that_was_overwritten_meanwhile_is_said_to_be_incomplete() {
    let call = syscall("read", 100.0, 100.0);
    assert!(!below_call(&call, &[], 99 * MS).incomplete);
    assert!(below_call(&call, &[], 150 * MS).incomplete);
}

#[test]
fn what_has_not_come_back_is_below_a_call_that_has_not_either() {
    let waiting = |event: Event| Event { flags: Flags { in_flight: true, ..event.flags }, ..event };
    let (call, operation) = (syscall("read", 100.0, 100.0), waiting(read(120.0, 80.5)));
    assert_eq!(below(from_ref(&operation)).count, 0, "it was not waited for");
    assert_eq!(starts(&below_call(&waiting(call), &[operation], 0).children), [120]);
}
