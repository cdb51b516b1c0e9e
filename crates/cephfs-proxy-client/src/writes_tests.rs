use cephfs_proxy::{layout::ALL_FLUSHED, wire::Timespec};
use proptest::prelude::*;

use super::*;

/// The mark of a version whose change time is the same number of seconds.
fn mark(version: u64) -> ChangeMark {
    ChangeMark { version, ctime: Timespec { seconds: version as i64, nanoseconds: 0 } }
}

/// What the next daemon finds.
fn found(mark: ChangeMark) -> Opened {
    Opened { mark, lineage: 9, ..Opened::default() }
}

fn allows(log: &WriteLog, mark: ChangeMark) -> bool {
    log.allows(&found(mark))
}

fn opened(version: u64) -> WriteLog {
    let mut log = WriteLog::default();
    log.opened(1, &found(mark(version)));
    log
}

/// A write of its version's bytes, answered when the daemon had begun this many flushes.
fn write(log: &mut WriteLog, version: u64, flushes: u64) {
    log.begin();
    end(log, version, flushes);
}

fn end(log: &mut WriteLog, version: u64, flushes: u64) {
    let data = Some(version.to_le_bytes().to_vec());
    let mark = if version == 0 { ChangeMark::default() } else { mark(version) };
    log.end(Fate::Written { mark, flushes, offset: 0, data });
}

fn kept(log: &WriteLog) -> Vec<u64> {
    (0..).map_while(|index| log.kept(index)).map(|(_, data)| u64::from_le_bytes(data.try_into().unwrap())).collect()
}

#[test]
fn what_no_flush_covers_is_kept_in_the_order_of_versions() {
    let mut log = opened(10);
    for version in [12, 11, 13] {
        write(&mut log, version, 0);
    }
    log.daemon_gone(0);
    assert!(log.is_to_be_restored() && allows(&log, mark(10)) && allows(&log, mark(13)));
    assert_eq!(kept(&log), [11, 12, 13]);
    for (index, version) in [4, 5, 6].into_iter().enumerate() {
        log.rewritten(index, mark(version), 0);
    }
    log.restored(2, mark(6));
    assert!(log.is_unconfirmed() && !log.is_to_be_restored());
}

#[test]
fn an_fsync_covers_what_had_ended_when_it_began_and_a_flush_what_was_answered_before() {
    let mut log = opened(10);
    write(&mut log, 11, 0);
    let ended = log.ended();
    write(&mut log, 12, 0);
    log.synced(ended);
    assert_eq!(kept(&log), [12]);
    write(&mut log, 13, 1);
    log.flushed(1);
    assert_eq!(kept(&log), [13], "the first flush had begun before it was answered");
    log.flushed(2);
    assert!(!log.is_unconfirmed());
}

#[test]
fn what_is_older_than_something_flushed_is_not_kept() {
    let mut log = opened(10);
    log.begin();
    write(&mut log, 12, 0);
    log.synced(log.ended());
    end(&mut log, 11, 0);
    assert!(kept(&log).is_empty(), "its thread was late");
    write(&mut log, 13, 5);
    write(&mut log, 14, 0);
    log.flushed(1);
    assert!(kept(&log).is_empty());
}

#[test]
fn a_file_that_others_may_have_changed_is_not_restored() {
    let ours = || {
        let mut log = opened(10);
        write(&mut log, 11, 0);
        write(&mut log, 12, 0);
        log
    };
    assert!(allows(&ours(), mark(11)));
    assert!(!allows(&ours(), mark(13)), "a version that this process does not know");
    let later = ChangeMark { version: 11, ..mark(13) };
    assert!(!allows(&ours(), later), "after the last write");
    assert!(!allows(&ours(), ChangeMark { version: 12, ..mark(11) }), "another change has that version");
    assert!(!allows(&ours(), ChangeMark::default()), "not known");
    assert!(
        !ours().allows(&Opened { lineage: 8, ..found(mark(11)) }),
        "the cluster had ended the daemon's session before"
    );
    let mut behind = WriteLog::default();
    behind.opened(1, &found(ChangeMark { version: 10, ..mark(99) }));
    write(&mut behind, 11, 0);
    write(&mut behind, 12, 0);
    assert!(allows(&behind, mark(11)));
    let ahead = ChangeMark { version: 11, ..mark(99) };
    assert!(!allows(&behind, ahead), "a clock was ahead, and the time of a later change does not show");
    let mut gap = ours();
    write(&mut gap, 14, 0);
    assert!(!allows(&gap, mark(10)));
    let mut unknown = ours();
    write(&mut unknown, 0, 0);
    assert!(!allows(&unknown, mark(10)));
    unknown.flushed(1);
    write(&mut unknown, 14, 1);
    assert!(allows(&unknown, mark(12)), "what is flushed does not matter any more");
    let mut overtaken = ours();
    overtaken.begin();
    overtaken.changed(mark(20));
    assert!(!allows(&overtaken, mark(20)), "a change beside kept writes tells nothing");
}

#[test]
fn a_write_in_doubt_needs_an_unchanged_file() {
    let mut log = opened(10);
    log.begin();
    log.daemon_gone(0);
    assert!(log.is_ending());
    log.end(Fate::Unknown);
    assert!(log.is_to_be_restored() && !log.is_ending());
    assert!(allows(&log, mark(10)) && !allows(&log, mark(11)));
    let mut untouched = opened(10);
    untouched.begin();
    untouched.daemon_gone(0);
    untouched.end(Fate::NotDone);
    assert!(!untouched.is_to_be_restored());
    let mut late = opened(10);
    late.begin();
    late.daemon_gone(0);
    end(&mut late, 11, 0);
    assert!(late.is_to_be_restored());
    assert_eq!(kept(&late), [11], "its thread took the answer after the daemon's end");
    let mut later = opened(10);
    later.begin();
    later.daemon_gone(0);
    assert!(later.is_to_be_restored(), "its first write may be answered");
}

#[test]
fn an_orderly_end_loses_nothing() {
    let mut log = opened(10);
    write(&mut log, 0, 0);
    log.begin();
    log.daemon_gone(ALL_FLUSHED);
    end(&mut log, 12, 0);
    assert!(!log.is_to_be_restored() && !log.is_unconfirmed());
}

#[test]
fn a_restoration_that_is_interrupted_begins_anew() {
    let mut log = opened(10);
    write(&mut log, 11, 0);
    write(&mut log, 12, 0);
    log.daemon_gone(0);
    log.rewritten(0, mark(30), 0);
    // The end of the second daemon, orderly or not, is not the end of this connection's daemon.
    assert!(log.is_to_be_restored() && allows(&log, mark(30)) && allows(&log, mark(10)) && !allows(&log, mark(31)));
    assert_eq!(kept(&log), [11, 12]);
}

#[test]
fn who_is_late_to_notice_an_opening_does_not_take_a_file_back_to_a_daemon_that_is_gone() {
    let mut log = opened(10);
    log.daemon_gone(0);
    log.opened(2, &found(mark(10)));
    write(&mut log, 11, 0);
    log.opened(1, &Opened { lineage: 8, ..found(mark(10)) });
    assert_eq!((log.link, kept(&log)), (2, vec![11]));
    log.daemon_gone(0);
    assert!(log.is_to_be_restored() && allows(&log, mark(11)));
}

#[test]
fn a_file_that_ends_daemons_is_given_up() {
    let mut log = opened(10);
    write(&mut log, 11, 0);
    log.daemon_gone(0);
    assert_eq!([(); 4].map(|()| log.try_to_restore()), [true, true, true, false]);
    log.restored(5, mark(11));
    assert!(log.try_to_restore());
}

#[test]
fn one_stands_for_all_that_cannot_be_written_again() {
    let mut log = opened(10);
    for flushes in [3, 1, 2] {
        write(&mut log, 0, flushes);
    }
    assert_eq!(log.kept.len(), 1);
    log.flushed(3);
    assert!(log.is_unconfirmed());
    log.flushed(4);
    assert!(!log.is_unconfirmed());
}

#[test]
fn what_is_kept_is_counted_and_given_back() {
    let before = ALL.load(Ordering::Relaxed);
    let mut log = opened(10);
    log.begin();
    log.end(Fate::Written { mark: mark(11), flushes: 0, offset: 0, data: Some(vec![0; 5 << 20]) });
    assert!(ALL.load(Ordering::Relaxed) >= before + (5 << 20));
    drop(log);
    assert!(WriteLog::has_room(1 << 20) && !WriteLog::has_room(MOST_KEPT));
}

/// The events at a file that two parties write: this process, through the daemon, and somebody else.
#[derive(Debug, Clone, Copy)]
enum Step {
    Write,
    /// A write whose answer this process takes only later.
    Late,
    Take,
    Other,
    Flush,
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    use Step::{Flush, Late, Other, Sync, Take, Write};
    prop::sample::select(vec![Write, Write, Write, Write, Late, Take, Take, Other, Flush, Sync])
}

proptest! {
    /// The file is one number, the last number written to it. If a restoration is allowed, the file contains the same number as before the kill.
    #[test]
    fn what_is_restored_is_what_there_was(steps in prop::collection::vec(step(), 0..40), metadata: bool) {
        let (mut log, mut version, mut on_disk, mut flushes) = (opened(1), 1, 1, 0);
        let mut late = Vec::new();
        for step in steps {
            match step {
                Step::Write => {
                    version += 1;
                    write(&mut log, version, flushes);
                }
                Step::Late => {
                    version += 1;
                    log.begin();
                    late.push(version);
                }
                Step::Take => if let Some(version) = late.pop() {
                    end(&mut log, version, flushes);
                },
                Step::Other => {
                    // Ceph receives this process's writes before somebody else may write.
                    version += 1;
                    on_disk = version;
                }
                Step::Flush => {
                    flushes += 1;
                    on_disk = version;
                    log.flushed(flushes);
                }
                Step::Sync => {
                    let ended = log.ended();
                    on_disk = version;
                    log.synced(ended);
                }
            }
        }
        log.daemon_gone(flushes);
        for version in late {
            end(&mut log, version, flushes);
        }
        // A metadata server may know of a later version than the version of the data on disk.
        let found = mark(if metadata { version } else { on_disk });
        if !log.is_to_be_restored() {
            prop_assert_eq!(on_disk, version);
        } else if allows(&log, found) {
            prop_assert_eq!(kept(&log).last().copied(), Some(version));
        }
        // A write by somebody else, after the cluster has ended the daemon's session.
        let changed = ChangeMark { version: found.version + 1, ..mark(version + 1) };
        prop_assert!(!allows(&log, changed));
    }
}
