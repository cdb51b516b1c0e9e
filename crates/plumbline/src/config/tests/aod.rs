//! AOD's two forms load unchanged and mean what they mean there.

use std::path::Path;

use diagnose::{
    connection::ConnectionRule,
    error::{Codes, ErrorRule},
};
use model::Code;

use super::{
    super::{ConfiguredAction, Retention},
    *,
};

const FIRST: &str = include_str!("aod_first.yaml");
const SECOND: &str = include_str!("aod_second.yaml");

/// A configuration of AOD's with one rule; `keys` are its lines from the sixth on, in column 7.
fn rule(keys: &[&str]) -> String {
    published("type: LATENCY\n      tool: SMB Slower", keys)
}

fn published(kind: &str, keys: &[&str]) -> String {
    format!("guardian:\n  anomalies:\n    r:\n      {kind}\n      {}\n", keys.join("\n      "))
}

fn names(actions: &[ConfiguredAction]) -> Vec<&str> {
    actions.iter().map(|action| action.name.as_str()).collect()
}

#[test]
fn the_published_form_loads_unchanged() {
    let config = valid(FIRST);
    assert_eq!(config.watch_interval, ms(1000));
    assert_eq!(config.output_dir, Path::new("/var/log/aod"));
    assert_eq!(names(&config.snapshot), ["dmesg"]);
    let kept = Retention { interval: ms(60_000), max_age: ms(172_800_000), max_bytes: 524_288 };
    assert_eq!(config.cleanup, kept);
    assert!(config.audit);

    let [latency, error] = config.rules.as_slice() else { panic!("{:?}", config.rules) };
    assert_eq!((latency.rule.name(), latency.rule.protocol().name), ("latency", "smb"));
    let rule = super::latency(&config, "latency");
    assert_eq!((rule.acceptable_count, rule.ceiling), (10, ms(1000)));
    let all = ["dmesg", "journalctl", "debugdata", "stats", "mounts", "smbinfo", "syslogs"];
    assert_eq!(names(&latency.actions), all);

    let error: &ErrorRule = of_kind(error);
    assert_eq!((error.name(), error.protocol().name, error.acceptable_count), ("error", "smb", 10));
    assert_eq!(error.operations.len(), 20);
    assert_eq!(error.codes, Codes::Only([Code::Errno(5), Code::Errno(13)].into()));
}

#[test]
fn the_newer_form_loads_unchanged() {
    let config = valid(SECOND);
    assert_eq!(config.watch_interval, ms(60_000));
    let [latency, sockets, error] = config.rules.as_slice() else { panic!("{:?}", config.rules) };
    assert_eq!(latency.rule.name(), "smb_latency");
    let rule: &ConnectionRule = of_kind(sockets);
    assert_eq!((rule.name(), rule.protocol().name, rule.counts.len()), ("smb_sockconn", "connections", 14));
    assert_eq!(thresholds(&config, "smb_latency")["SMB2_WRITE"], 50);
    let args = ["-s", "65536", "-B", "10240", "-C", "2", "-W", "100"].map(str::to_owned).to_vec();
    assert_eq!(latency.actions[1], ConfiguredAction { name: "tcpdump".into(), args, after: None });

    assert_eq!(config.not_yet.len(), 0);
    assert_eq!(names(&error.actions), ["dmesg", "trace-cmd"]);
    let error: &ErrorRule = of_kind(error);
    assert_eq!((error.name(), error.protocol().name, error.acceptable_count), ("nfs_error", "nfs", 5));
    assert_eq!(error.codes, Codes::Only([Code::Status(10025), Code::Status(10024)].into()));
}

#[test]
fn a_rule_by_nfsslower_judges_the_calls_of_the_nfs_client() {
    let config = valid("anomalies:\n  nfs:\n    latency: {tool: nfsslower, default_threshold_ms: 30}");
    let [latency] = config.rules.as_slice() else { panic!("{:?}", config.rules) };
    assert_eq!((latency.rule.name(), latency.rule.protocol().name), ("nfs_latency", "nfs"));
    assert_eq!(thresholds(&config, "nfs_latency")["GETATTR"], 30);
    assert_eq!(config.not_yet.len(), 0);
}

#[test]
fn each_renamed_key_is_told_once() {
    assert_eq!(
        valid(FIRST).notices,
        [
            "`aod_output_dir` is `output_dir` here",
            "`watcher` is `snapshot` here",
            "`guardian.anomalies` is `anomalies` here",
            "`tool: smb slower` is `probe: smb` here",
            "the rule `latency` judges SMB2_LOCK, SMB2_CHANGE_NOTIFY, SMB2_SERVER_TO_CLIENT_NOTIFICATION too, as AOD does, \
             though they wait by design; exclude them, or write `probe` for `tool`",
            "`tool: smbiosnoop` is `probe: smb` here",
        ]
    );
    assert_eq!(
        valid(SECOND).notices,
        [
            "`aod_output_dir` is `output_dir` here",
            "`anomalies.smb.latency` is the rule `smb_latency` here",
            "`anomalies.smb.sockconn` is the rule `smb_sockconn` here",
            "`anomalies.nfs.error` is the rule `nfs_error` here",
            "`track_errors` is `track_codes` here",
            "`tcpdump` is a capture here, `tcpdump`: packets, interface any, servers of mounts, 65536 bytes of each; the last \
             10240 KiB of them, in memory in place of the files of -C and -W",
            "`tool: smbslower` is `probe: smb` here",
            "the rule `smb_latency` judges SMB2_LOCK, SMB2_CHANGE_NOTIFY, SMB2_SERVER_TO_CLIENT_NOTIFICATION too, as AOD \
             does, though they wait by design; exclude them, or write `probe` for `tool`",
            "`tool: ss` is `probe: connections` here",
            "`trace-cmd` is a capture here, `trace-cmd`: tracepoints of nfs, sunrpc, 1024 KiB for each processor",
            "`tool: nfsiosnoop` is `probe: nfs` here",
            "the rule `nfs_error` counts what its list tracks, and nothing else",
        ]
    );
}

#[test]
fn all_judges_every_command_the_excluded_not_at_all() {
    let track = "track_commands: [{command: SMB2_READ}, {command: SMB2_WRITE, threshold: 50}]";
    let config = valid(&rule(&[track, "exclude_commands: [SMB2_LOCK]"]));
    let thresholds = thresholds(&config, "r");
    assert_eq!(thresholds.len(), 19);
    assert_eq!((thresholds["SMB2_READ"], thresholds["SMB2_WRITE"], thresholds["SMB2_CHANGE_NOTIFY"]), (10, 50, 10));
    assert!(!thresholds.contains_key("SMB2_LOCK"));
}

#[test]
fn the_list_that_a_mode_has_no_use_for_is_ignored_with_a_warning() {
    let track = "track_commands: [{command: SMB2_READ, threshold: 99}]";
    let config = valid(&rule(&["mode: TrackOnly", track, "exclude_commands: [SMB2_READ, NOPE]"]));
    assert_eq!(thresholds(&config, "r"), BTreeMap::from([("SMB2_READ", 99)]));
    let warning = "the rule `r`: `exclude_commands` is ignored in mode trackonly, as AOD does";
    assert!(config.notices.iter().any(|notice| notice == warning), "{:?}", config.notices);

    let config = valid(&rule(&["mode: excludeonly", track, "exclude_commands: [SMB2_ECHO]"]));
    let thresholds = thresholds(&config, "r");
    assert_eq!((thresholds.len(), thresholds["SMB2_READ"]), (19, 10));
    let warning = "the rule `r`: `track_commands` is ignored in mode excludeonly, as AOD does";
    assert!(config.notices.iter().any(|notice| notice == warning), "{:?}", config.notices);
}

#[test]
fn a_threshold_above_the_ceiling_is_told() {
    let config = valid(&rule(&["mode: trackonly", "track_commands: [{command: SMB2_READ, threshold: 2000}]"]));
    let warning =
        "the rule `r`: one SMB2_READ over the ceiling of 1000 ms is an anomaly, though its threshold is 2000 ms";
    assert_eq!(config.notices.last().map(String::as_str), Some(warning));
}

#[test]
fn keys_of_ours_may_stand_in_a_file_of_aods() {
    let config = valid(&format!("{}cooldown_sec: 5\nevidence: {{concurrency: 1}}", rule(&["ceiling_ms: 3000"])));
    assert_eq!(
        (config.cooldown, config.evidence.concurrency, super::latency(&config, "r").ceiling),
        (ms(5000), 1, ms(3000))
    );
}

#[test]
fn what_aod_refuses_in_a_rule_about_latency_is_refused() {
    let cases: [(&[&str], &str); 6] = [
        (
            &["track_commands: [{command: SMB2_WRIET}]"],
            "6:34: probe `smb` has no command `SMB2_WRIET`; did you mean `SMB2_WRITE`?",
        ),
        (&["exclude_commands: [NOPE]"], "6:26: probe `smb` has no command `NOPE`; its commands are SMB2_NEGOTIATE, "),
        (&["track_commands: [READ, READ]"], "6:30: `SMB2_READ` is given twice (first in line 6); remove one"),
        (
            &["track_commands:", "- command: READ", "  threshold: -1"],
            "8:20: `threshold` is `-1`; write a number from 0 to 86400000 ms",
        ),
        (
            &["track_commands: [READ]", "exclude_commands: [READ]"],
            "7:26: `SMB2_READ` is excluded here but tracked in line 6; remove one",
        ),
        (&["mode: trackonly"], "6:13: the rule `r` has nothing left to track; change `mode` or its lists"),
    ];
    for (keys, expected) in cases {
        let errors = parse(&rule(keys)).expect_err(expected);
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(error.to_string().starts_with(&format!("f.yaml:{expected}")), "{error} is not {expected}");
    }
}

#[test]
fn what_aod_refuses_in_a_rule_about_errors_is_refused() {
    let error = |keys: &[&str]| published("type: error\n      tool: smbiosnoop", keys);
    assert_refused(&[
        (
            &error(&["track_codes: [EACES, EIO, EIO, NFS4ERR_STALE]"]),
            &[
                "6:21: there is no error code `EACES`; did you mean `EACCES`?",
                "6:33: `EIO` is given twice (first in line 6); remove one",
                "6:38: there is no error code `NFS4ERR_STALE`; write a name such as EIO or STATUS_DISK_FULL",
            ],
        ),
        (
            &error(&["track_codes: [EIO, EWOULDBLOCK]", "exclude_codes: [EIO]"]),
            &["7:23: `EIO` is excluded here but tracked in line 6; remove one"],
        ),
        (&error(&["mode: trackonly"]), &["6:13: the rule `r` has nothing left to track; change `mode` or its lists"]),
        (
            &error(&["track_commands: [{command: NOPE_WRITE}]", "default_threshold_ms: 5"]),
            &[
                &format!("6:34: probe `smb` has no command `NOPE_WRITE`; its commands are {}", smb_commands()),
                "7:7: unknown key `default_threshold_ms`; the keys here are type, probe, tool, mode, actions, only, except, when, \
                 acceptable_count, acceptable_percent, track_commands, exclude_commands, track_codes, exclude_codes",
            ],
        ),
        (
            "anomalies:\n  nfs:\n    error:\n      tool: nfsiosnoop\n      track_errors: [NFS4ERR_STALE, EIO, NFS4ERR_]",
            &["5:42: there is no error code `NFS4ERR_`; write a name such as EIO or NFS4ERR_STALE"],
        ),
    ]);
}

#[test]
fn a_rule_about_errors_that_names_no_code_is_about_all_of_them() {
    let config =
        valid(&published("type: ERROR\n      tool: smbiosnoop", &["exclude_codes: [ENOTSUP, STATUS_DISK_FULL]"]));
    let rule: &ErrorRule = of_kind(&config.rules[0]);
    let Codes::AllBut(left_out) = &rule.codes else { panic!("{:?}", rule.codes) };
    let excluded = [Code::Errno(95), Code::Status(0xC000_007F)];
    let ordinary = probes::protocol("smb").unwrap().ordinary.iter().copied();
    assert_eq!(*left_out, excluded.into_iter().chain(ordinary).collect());
}

#[test]
fn an_ordinary_failure_counts_if_it_is_tracked_by_either_name() {
    let codes = |lists: &[&str]| {
        let config = valid(&published("type: error\n      tool: smbiosnoop", lists));
        let rule: &ErrorRule = of_kind(&config.rules[0]);
        rule.codes.clone()
    };
    let not_found = Code::Status(0xC000_0034);
    let counts = |codes: &Codes| codes.include(probes::protocol("smb").unwrap(), not_found);
    assert!(!counts(&codes(&["mode: all"])));
    assert!(counts(&codes(&["mode: all", "track_codes: [ENOENT]"])));
    assert!(counts(&codes(&["mode: all", "track_codes: [STATUS_OBJECT_NAME_NOT_FOUND]"])));
    assert!(counts(&codes(&["mode: trackonly", "track_codes: [ENOENT]"])));
    assert!(!counts(&codes(&["mode: trackonly", "track_codes: [EIO]"])));
}

fn smb_commands() -> String {
    probes::protocol("smb").unwrap().operations.join(", ")
}

#[test]
fn keys_that_say_the_same_twice() {
    assert_refused(&[
        (
            "guardian: {anomalies: {}}\nanomalies: {}",
            &["1:1: `guardian` holds the `anomalies`, which also stand in line 2; remove one"],
        ),
        (
            "aod_output_dir: /a\noutput_dir: /b",
            &["1:1: `aod_output_dir` is the same as `output_dir`, which stands in line 2; remove one"],
        ),
        (
            "anomalies:\n  smb:\n    latency: {tool: smbslower}\n  smb_latency: {type: latency, probe: smb}",
            &["4:3: the rule `smb_latency` is given twice; rename one"],
        ),
        (
            "anomalies:\n  smb:\n    latency: {tool: smbslower, type: latency, probe: smb}",
            &[
                "3:15: `tool` is AOD's word for `probe`, and both are here; remove `tool`",
                "3:32: the rule's type is its key, `latency`; remove this",
            ],
        ),
    ]);
}

#[test]
fn slips_in_aods_own_words() {
    assert_refused(&[
        ("gaurdian: {}", &["1:1: unknown key `gaurdian`; did you mean `guardian`?"]),
        ("guardian: {anomaly: {}}", &["1:12: unknown key `anomaly`; did you mean `anomalies`?"]),
        (
            "anomalies:\n  smb:\n    latencyy: {tool: smbslower}",
            &["3:5: there is no type `latencyy`; did you mean `latency`?"],
        ),
        (
            "anomalies:\n  smb:\n    latency: {tool: smbslwer}",
            &["3:21: there is no tool `smbslwer`; did you mean `smbslower`?"],
        ),
        (
            "anomalies:\n  nfs:\n    sockconn: {tool: nfsslower}",
            &["3:22: probe `nfs` sees no connections; write `probe: connections`"],
        ),
    ]);
}
