//! Exactly what is printed of a rule that is refused.

use super::*;

const NAME: &str = "write 1 to 64 letters, digits, `_` or `-`";

#[test]
fn what_every_rule_needs() {
    let long = format!("anomalies: {{{}: {{type: latency, probe: smb}}}}", "n".repeat(65));
    assert_refused(&[
        ("anomalies: {a: 5}", &["1:16: the rule `a` must be keys with values, not a single value"]),
        ("anomalies: {a: }", &["1:13: the rule `a` has no type; write `type: latency`"]),
        (
            "anomalies: {a: {type: latency}}",
            &[
                "1:13: the rule `a` has no probe; write `probe:` and one of smb, syscalls, nfs, vfs, connections, mpiio, tcp, cephproxy, fuse, server, ceph",
            ],
        ),
        ("anomalies: {a: {type: latancy, probe: smb}}", &["1:23: there is no type `latancy`; did you mean `latency`?"]),
        ("anomalies: {a: {type: latency, probe: smbb}}", &["1:39: there is no probe `smbb`; did you mean `smb`?"]),
        (
            "anomalies: {a: {type: latency, probe: lustre}}",
            &[
                "1:39: there is no probe `lustre`; write one of smb, syscalls, nfs, vfs, connections, mpiio, tcp, cephproxy, fuse, server, ceph",
            ],
        ),
        (
            "anomalies: {a: {type: latency, probe: smb, tool: smbslower}}",
            &["1:44: `tool` is AOD's word for `probe`, and both are here; remove `tool`"],
        ),
        ("anomalies: {a b: {type: latency, probe: smb}}", &[&format!("1:13: `a b` cannot be a name; {NAME}")]),
        ("anomalies: {\"\": {type: latency, probe: smb}}", &[&format!("1:13: `` cannot be a name; {NAME}")]),
        (&long, &[&format!("1:13: `{}...` cannot be a name; {NAME}", "n".repeat(64))]),
    ]);
}

/// Asserts what is printed of a rule about SMB latencies whose fifth line and following are `body`.
fn assert_rule_refused(cases: &[(&str, &[&str])]) {
    for (body, expected) in cases {
        let text = format!("anomalies:\n  r:\n    type: latency\n    probe: smb\n{body}");
        assert_refused(&[(&text, expected)]);
    }
}

#[test]
fn numbers_of_a_rule() {
    let count = "write a whole number from 1 to 1000000";
    let ms = "write a number from 0 to 86400000 ms";
    assert_rule_refused(&[
        ("    acceptable_count: 0", &[&format!("5:23: `acceptable_count` is `0`; {count}")]),
        ("    acceptable_count: 1000001", &[&format!("5:23: `acceptable_count` is `1000001`; {count}")]),
        ("    acceptable_count: ten", &[&format!("5:23: `acceptable_count` is `ten`; {count}")]),
        ("    acceptable_count: 2.5", &[&format!("5:23: `acceptable_count` is `2.5`; {count}")]),
        ("    default_threshold_ms: -1", &[&format!("5:27: `default_threshold_ms` is `-1`; {ms}")]),
        ("    default_threshold_ms: 1e300", &[&format!("5:27: `default_threshold_ms` is `1e300`; {ms}")]),
        ("    ceiling_ms: 0", &["5:17: `ceiling_ms` is `0`; write a number from 0.001 to 86400000 ms"]),
    ]);
}

#[test]
fn commands_of_a_rule() {
    assert_rule_refused(&[
        (
            "    track_commands: [{command: SMB2_WRIET, threshold: 50}]",
            &["5:32: probe `smb` has no command `SMB2_WRIET`; did you mean `SMB2_WRITE`?"],
        ),
        ("    track_commands: [wriet]", &["5:22: probe `smb` has no command `wriet`; did you mean `WRITE`?"]),
        (
            "    track_commands: [{command: fsync}]",
            &[
                "5:32: probe `smb` has no command `fsync`; it is one of probe `syscalls`: move it to a rule with `probe: syscalls`",
            ],
        ),
        ("    track_commands: [{threshold: 5}]", &["5:22: no command is named here; write `command: NAME`"]),
        (
            "    track_commands: [{command: READ, threshold: -5}]",
            &["5:49: `threshold` is `-5`; write a number from 0 to 86400000 ms"],
        ),
        (
            "    track_commands: [{command: READ, treshold: 5}]",
            &["5:38: unknown key `treshold`; did you mean `threshold`?"],
        ),
        (
            "    track_commands:\n      - command: SMB2_READ\n      - command: read",
            &["7:18: `SMB2_READ` is given twice (first in line 6); remove one"],
        ),
        (
            "    track_commands: [SMB2_READ]\n    exclude_commands: [READ]",
            &["6:24: `SMB2_READ` is excluded here but tracked in line 5; remove one"],
        ),
        (
            "    exclude_commands: [{command: READ, threshold: 5}]",
            &["5:40: unknown key `threshold`; the keys here are command"],
        ),
        (
            "    track_commands: {command: READ}",
            &["5:21: `track_commands` must be a list, not keys with values; write [a, b]"],
        ),
        ("    track_commands: [~]", &["5:22: a command has no value; write one"]),
    ]);
}

#[test]
fn a_command_that_nothing_resembles_is_answered_with_all_there_are() {
    assert_refused(&[(
        "anomalies: {r: {type: latency, probe: syscalls, track_commands: [\"a\\nb\"]}}",
        &[
            "1:66: probe `syscalls` has no command `a\\x0ab`; its commands are read, write, open, close, fsync, stat, readdir",
        ],
    )]);
}

#[test]
fn modes_that_contradict_the_lists() {
    let nothing_left = "the rule `r` has nothing left to track; change `mode` or its lists";
    assert_rule_refused(&[
        ("    mode: trackonli", &["5:11: there is no mode `trackonli`; did you mean `trackonly`?"]),
        ("    mode: some", &["5:11: there is no mode `some`; write one of all, trackonly, excludeonly"]),
        (
            "    mode: trackonly\n    track_commands: [READ]\n    exclude_commands: [WRITE]",
            &["7:5: `exclude_commands` contradicts `mode: trackonly`; remove it, or write `mode: all`"],
        ),
        (
            "    mode: excludeonly\n    track_commands: [READ]",
            &["6:5: `track_commands` contradicts `mode: excludeonly`; remove it, or write `mode: all`"],
        ),
        ("    mode: trackonly", &[&format!("5:11: {nothing_left}")]),
        (
            "    exclude_commands: [NEGOTIATE, SESSION_SETUP, LOGOFF, TREE_CONNECT, TREE_DISCONNECT, CREATE, CLOSE, FLUSH, \
             READ, WRITE, IOCTL, CANCEL, ECHO, QUERY_DIRECTORY, QUERY_INFO, SET_INFO, OPLOCK_BREAK]",
            &[&format!("2:3: {nothing_left}")],
        ),
    ]);
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let text = "\
watch_interval_sec: 0
foo: 1
output_dir: logs
anomalies:
  r:
    type: latency
    probe: smb
    mode: trackonli
    acceptable_count: -3
    track_commands: [{command: SMB2_WRIET, threshold: -1}]
    actions: [dmseg]
";
    let lines: Vec<_> = parse(text).expect_err("all of it").iter().map(|error| error.at.map(|at| at.line)).collect();
    assert_eq!(lines, [1, 2, 3, 8, 9, 10, 10, 11].map(Some));
}

#[test]
fn numbers_of_a_rule_about_its_own_normal() {
    let refused = |kind: &str, body: &str, expected: &str| {
        let text = format!("anomalies:\n  r:\n    type: {kind}\n    probe: smb\n    {body}");
        assert_refused(&[(&text, &[expected])]);
    };
    refused("baseline", "factor: 1", "5:13: `factor` is `1`; write a number from 1.1 to 1000 times the normal");
    refused("baseline", "min_shift_ms: -1", "5:19: `min_shift_ms` is `-1`; write a number from 0 to 86400000 ms");
    refused("baseline", "windows: 0", "5:14: `windows` is `0`; write a whole number from 1 to 100");
    refused(
        "baseline",
        "history_windows: 5000",
        "5:22: `history_windows` is `5000`; write a whole number from 10 to 3600",
    );
    refused(
        "baseline",
        "fall_to_percent: 10",
        concat!(
            "5:5: unknown key `fall_to_percent`; the keys here are type, probe, tool, mode, actions, only, except, when, factor, min_shift_ms, ",
            "min_operations, windows, warm_up_windows, history_windows, track_commands, exclude_commands"
        ),
    );
    refused(
        "throughput",
        "fall_to_percent: 0.1",
        "5:22: `fall_to_percent` is `0.1`; write a number from 1 to 90 per cent",
    );
    refused(
        "throughput",
        "min_mb_per_second: 5",
        "5:5: unknown key `min_mb_per_second`; did you mean `min_mb_per_sec`?",
    );
    refused(
        "throughput",
        "warm_up_windows: 400",
        concat!(
            "5:22: `warm_up_windows` is 400, more than `history_windows`, which is 300: it would learn for ever; make the one ",
            "smaller or the other larger"
        ),
    );
    refused(
        "throughput",
        "mode: trackonly",
        "5:11: the rule `r` has nothing left to track; change `mode` or its lists",
    );
}
