//! Operations of several layers become trees: what is below what, and when a tree is whole.
#![allow(clippy::expect_used, clippy::panic, reason = "only tests use it")]
mod common;

use common::{MS, smb, syscall};
use model::{Caller, Detail, Event, Flags, Level, MountKey, Nfs, Operation, Protocol, Requester, Syscall};
use plumbline_diagnose::{OperationTree, TreeAssembler};

static MPIIO: Protocol =
    Protocol { name: "mpiio", operations: &["write_at"], level: Level::Library, ..Protocol::BY_ERRNO };
static VFS: Protocol =
    Protocol { name: "vfs", operations: &["vfs_write", "vfs_fsync"], level: Level::FileSystem, ..Protocol::BY_ERRNO };
static OWN: Protocol = Protocol { name: "own", operations: &["step"], level: Level::Own, ..Protocol::BY_ERRNO };

const NEVER: u64 = u64::MAX;

fn of(protocol: &'static Protocol, name: &str, start: f64, duration: f64) -> Event {
    let operation: Operation = protocol.operation(name).expect("an operation of the test protocols");
    Event { operation, ..syscall("write", start, duration) }
}

fn by_thread(tid: u32, event: Event) -> Event {
    Event { requester: Requester { tid, ..event.requester }, ..event }
}

fn by_kernel(event: Event) -> Event {
    Event { caller: Caller::Kernel, ..by_thread(0, event) }
}

fn write(start: f64, wire: f64) -> Event {
    smb("SMB2_WRITE", start, [0.0, wire, 0.0])
}

fn assembler(events: &[Event]) -> TreeAssembler {
    let mut trees = TreeAssembler::new(1000);
    events.iter().for_each(|event| trees.add(event.clone()));
    trees
}

fn trees(events: &[Event]) -> Vec<OperationTree> {
    assembler(events).all(Vec::new(), &|key, other| key == other)
}

/// `write[SMB2_WRITE SMB2_WRITE]`
fn shape(tree: &OperationTree) -> String {
    let below: Vec<_> = tree.children.iter().map(shape).collect();
    let meanwhile = tree.meanwhile.iter().map(|event| format!("~{}", event.operation.name()));
    let below: Vec<_> = below.into_iter().chain(meanwhile).collect();
    let name = tree.event.operation.name();
    if below.is_empty() { name.to_owned() } else { format!("{name}[{}]", below.join(" ")) }
}

fn shapes(events: &[Event]) -> Vec<String> {
    trees(events).iter().map(shape).collect()
}

#[test]
fn layers_are_nested_in_whichever_order_their_operations_come() {
    let mut events = vec![
        of(&MPIIO, "write_at", 0.0, 100.0),
        syscall("write", 10.0, 40.0),
        of(&VFS, "vfs_write", 11.0, 30.0),
        write(12.0, 20.0),
        syscall("write", 60.0, 30.0),
        write(61.0, 20.0),
        by_thread(7, syscall("read", 5.0, 200.0)),
    ];
    for _ in 0..events.len() {
        events.rotate_left(1);
        assert_eq!(shapes(&events), ["write_at[write[vfs_write[SMB2_WRITE]] write[SMB2_WRITE]]", "read"]);
    }
}

#[test]
fn own_times_add_up_to_the_whole() {
    let [tree] = &trees(&[
        of(&MPIIO, "write_at", 0.0, 100.0),
        syscall("write", 10.0, 40.0),
        write(12.0, 20.0),
        syscall("write", 60.0, 30.0),
        write(61.0, 20.0),
    ])[..] else {
        panic!()
    };
    fn own(tree: &OperationTree) -> u64 {
        tree.own() + tree.children.iter().map(own).sum::<u64>()
    }
    assert_eq!((own(tree), tree.own(), tree.covered(), tree.below()), (100 * MS, 30 * MS, 70 * MS, 4));
}

#[test]
fn requests_at_the_same_time_are_beside_each_other_and_count_once() {
    let [tree] = &trees(&[syscall("write", 0.0, 100.0), write(10.0, 60.0), write(20.0, 10.0), write(50.0, 40.0)])[..]
    else {
        panic!()
    };
    assert_eq!((shape(tree).as_str(), tree.covered()), ("write[SMB2_WRITE SMB2_WRITE SMB2_WRITE]", 80 * MS));
}

#[test]
fn what_the_caller_did_not_wait_for_is_no_part_of_its_time() {
    let read_ahead = smb("SMB2_READ", 5.0, [0.0, 500.0, 0.0]);
    let [tree] = &trees(&[syscall("read", 0.0, 10.0), read_ahead])[..] else { panic!() };
    assert_eq!((shape(tree).as_str(), tree.own()), ("read[~SMB2_READ]", 10 * MS));
    // Tidied up late, but answered in time
    let late = smb("SMB2_READ", 1.0, [1.0, 7.0, 4.0]);
    assert_eq!(shapes(&[syscall("read", 0.0, 10.0), late]), ["read[SMB2_READ]"]);
}

#[test]
fn a_request_without_a_call_is_a_tree_and_an_operation_of_the_sites_own_is_where_its_time_is() {
    assert_eq!(shapes(&[write(0.0, 10.0), syscall("write", 20.0, 1.0)]), ["SMB2_WRITE", "write"]);
    let step = of(&OWN, "step", 2.0, 20.0);
    assert_eq!(shapes(&[syscall("write", 0.0, 30.0), write(5.0, 10.0), step.clone()]), ["write[step[SMB2_WRITE]]"]);
    assert_eq!(shapes(&[write(0.0, 30.0), step]), ["SMB2_WRITE[step]"]);
}

#[test]
fn a_tree_is_whole_only_when_nothing_above_it_is_under_way() {
    let mut trees = assembler(&[syscall("write", 10.0, 5.0), write(11.0, 3.0)]);
    let whole = |trees: &mut TreeAssembler, asked: u64, open: &[Event]| {
        trees.whole(asked * MS, open, &|key, other| key == other).iter().map(shape).collect::<Vec<_>>()
    };
    let open = |event: Event| Event { flags: Flags { in_flight: true, ..Flags::default() }, ..event };
    let above = open(of(&MPIIO, "write_at", 5.0, 20.0));
    assert!(whole(&mut trees, 14, &[]).is_empty(), "it had not ended then");
    assert!(whole(&mut trees, 20, std::slice::from_ref(&above)).is_empty() && trees.is_waiting());
    let others =
        [by_thread(3, above.clone()), open(of(&MPIIO, "write_at", 16.0, 4.0)), open(syscall("read", 16.0, 4.0))];
    trees.add(Event { duration: 15 * MS, ..of(&MPIIO, "write_at", 5.0, 0.0) });
    assert_eq!(whole(&mut trees, 25, &others), ["write_at[write[SMB2_WRITE]]"]);
    assert!(!trees.is_waiting());
}

#[test]
fn what_has_not_ended_is_shown_in_the_end_once() {
    let open = |event: Event| Event { flags: Flags { in_flight: true, ..Flags::default() }, ..event };
    let events = [syscall("write", 50.0, 5.0), write(10.0, 20.0)];
    let in_flight = vec![open(syscall("read", 0.0, 70.0)), open(write(40.0, 30.0)), open(syscall("write", 50.0, 20.0))];
    let trees = assembler(&events).all(in_flight, &|key, other| key == other);
    assert_eq!(trees.iter().map(shape).collect::<Vec<_>>(), ["read[SMB2_WRITE SMB2_WRITE]", "write"]);
}

#[test]
fn too_many_are_shown_without_what_is_above_them_and_that_says_so() {
    let mut trees = TreeAssembler::new(3);
    (0..4_u8).for_each(|index| trees.add(syscall("write", f64::from(index) * 10.0, 5.0)));
    let open = Event { flags: Flags { in_flight: true, ..Flags::default() }, ..of(&MPIIO, "write_at", 0.0, 99.0) };
    let same = |key: MountKey, other| key == other;
    assert_eq!(trees.whole(NEVER, &[open], &same).len(), 4);
    assert_eq!(trees.given_up(), 4);
    trees.add(of(&MPIIO, "write_at", 0.0, 100.0));
    let [tree] = &trees.whole(NEVER, &[], &same)[..] else { panic!() };
    assert!(tree.incomplete);
}

#[test]
fn what_the_kernel_did_meanwhile_is_told_beside_the_calls_on_that_mount_and_file() {
    let call = |inode, event| Event { detail: Detail::Syscall(Syscall { inode, ..Syscall::default() }), ..event };
    let nfs = |inode, event| Event { detail: Detail::Nfs(Nfs { inode, ..Nfs::default() }), ..event };
    let fsync = call(5, syscall("write", 10.0, 50.0));
    let elsewhere = Event { mount: MountKey(9), ..write(20.0, 5.0) };
    let events = [
        fsync.clone(),
        by_kernel(nfs(5, write(20.0, 5.0))),
        by_kernel(nfs(6, write(21.0, 5.0))),
        by_kernel(elsewhere),
        by_kernel(nfs(5, write(90.0, 5.0))),
    ];
    // Of the file that was written, one more came later: it is nobody's. Of others, nothing is said.
    assert_eq!(shapes(&events), ["write[~SMB2_WRITE]", "SMB2_WRITE"]);
    // Where no file is known, the mount decides.
    assert_eq!(
        shapes(&[fsync, by_kernel(write(20.0, 5.0)), by_kernel(write(55.0, 50.0))]),
        ["write[~SMB2_WRITE ~SMB2_WRITE]"]
    );
}

#[test]
fn the_kernels_work_is_kept_until_the_call_that_may_wait_for_it_has_ended() {
    let same = |key: MountKey, other| key == other;
    let open = Event { flags: Flags { in_flight: true, ..Flags::default() }, ..syscall("write", 10.0, 30.0) };
    let mut trees = assembler(&[by_thread(1, syscall("write", 0.0, 1.0)), by_kernel(write(20.0, 5.0))]);
    assert_eq!(trees.whole(40 * MS, &[open], &same).len(), 1, "the other thread's");
    trees.add(syscall("write", 10.0, 50.0));
    let whole = trees.whole(70 * MS, &[], &same);
    assert_eq!(whole.iter().map(shape).collect::<Vec<_>>(), ["write[~SMB2_WRITE]"]);
}
