//! The three modes, by table: which operations are judged, and at which threshold.

use diagnose::connection::ConnectionRule;
use model::Protocol;

use super::{
    super::modes::{ListMode, OperationSelection},
    *,
};

static ANY: Protocol =
    Protocol { name: "any", operations: &["read", "write", "wait"], waits_by_design: &[2], ..Protocol::BY_ERRNO };

type Tracked = (&'static str, Option<u64>);
/// Mode, tracked, excluded, whether waiting operations count unnamed; and what is judged at how many milliseconds.
type ModeRow = (ListMode, &'static [Tracked], &'static [&'static str], bool, &'static [(&'static str, u128)]);

/// Thresholds with the default at 10 ms: `read` tracked without, `write` and `wait` with a threshold of their own.
fn judged(mode: ListMode, track: &[Tracked], exclude: &[&str], waiting_too: bool) -> Vec<(&'static str, u128)> {
    let operation = |name: &str| ANY.operation(name).expect("an operation");
    let track: Vec<_> = track.iter().map(|(name, own)| (operation(name), own.map(ms))).collect();
    let exclude: Vec<_> = exclude.iter().map(|name| operation(name)).collect();
    let selection =
        OperationSelection { mode, default_threshold: ms(10), track: &track, exclude: &exclude, waiting_too };
    selection.thresholds(&ANY).iter().map(|(operation, time)| (operation.name(), time.as_millis())).collect()
}

#[test]
fn the_modes_say_which_operations_are_judged() {
    use ListMode::{All, ExcludeOnly, TrackOnly};
    const BOTH: &[Tracked] = &[("read", None), ("write", Some(50))];
    let table: [ModeRow; 12] = [
        (All, &[], &[], true, &[("read", 10), ("write", 10), ("wait", 10)]),
        (All, &[], &[], false, &[("read", 10), ("write", 10)]),
        (All, BOTH, &[], false, &[("read", 10), ("write", 50)]),
        (All, &[("write", Some(50))], &["read"], false, &[("write", 50)]),
        (All, &[("wait", None)], &["read"], false, &[("write", 10), ("wait", 10)]),
        (All, &[], &["read", "write"], false, &[]),
        (TrackOnly, BOTH, &[], false, &[("read", 10), ("write", 50)]),
        (TrackOnly, &[("wait", Some(0))], &["read"], false, &[("wait", 0)]),
        (TrackOnly, &[], &[], true, &[]),
        (ExcludeOnly, &[], &["read"], true, &[("write", 10), ("wait", 10)]),
        (ExcludeOnly, &[], &["read"], false, &[("write", 10)]),
        (ExcludeOnly, BOTH, &[], false, &[("read", 10), ("write", 10)]),
    ];
    for (mode, track, exclude, waiting_too, expected) in table {
        let judged = judged(mode, track, exclude, waiting_too);
        assert_eq!(judged, expected, "{mode:?} track {track:?} exclude {exclude:?} waiting too {waiting_too}");
    }
}

#[test]
fn a_rule_of_ours_judges_waiting_commands_only_by_name() {
    let rule = |body: &str| {
        let config = valid(&format!("anomalies: {{r: {{type: latency, probe: smb{body}}}}}"));
        let rule = super::latency(&config, "r");
        assert_eq!((rule.acceptable_count, rule.ceiling), (10, ms(1000)));
        thresholds(&config, "r")
    };
    let waiting = ["SMB2_LOCK", "SMB2_CHANGE_NOTIFY", "SMB2_SERVER_TO_CLIENT_NOTIFICATION"];
    let all = rule("");
    assert_eq!(all.len(), 17);
    assert!(all.values().all(|threshold| *threshold == 10) && waiting.iter().all(|name| !all.contains_key(name)));
    assert_eq!(rule(", mode: excludeonly, exclude_commands: [echo]").len(), 16);
    let named = rule(", track_commands: [{command: SMB2_LOCK, threshold: 5000}]");
    assert_eq!((named.len(), named["SMB2_LOCK"]), (18, 5000));
}

#[test]
fn a_rule_about_connections_has_a_count_for_each_kind() {
    let counts = |body: &str| {
        let config = valid(&format!("anomalies: {{r: {{type: connection{body}}}}}"));
        let rule: &ConnectionRule = of_kind(&config.rules[0]);
        rule.counts.iter().map(|(operation, count)| (operation.name(), *count)).collect::<BTreeMap<_, _>>()
    };
    let all = counts("");
    assert_eq!((all.len(), all["TCP_RETRANSMIT"], all["RPC_RETRANSMIT"], all["RECONNECT"]), (14, 50, 10, 1));
    let own = counts(", acceptable_count: 3, track_commands: [{command: TCP_RESET_SENT, count: 7}, TCP_RESET]");
    assert_eq!((own.len(), own["TCP_RESET_SENT"], own["TCP_RESET"], own["TCP_RETRANSMIT"]), (15, 7, 3, 3));
    assert_eq!(counts(", mode: trackonly, track_commands: [lease_lost]"), [("LEASE_LOST", 1)].into());
    assert_eq!(counts(", mode: excludeonly, exclude_commands: [RECONNECT]").len(), 13);
    let percent = |body: &str| {
        let config = valid(&format!("anomalies: {{r: {{type: connection{body}}}}}"));
        of_kind::<ConnectionRule>(&config.rules[0]).loss_percent
    };
    assert_eq!([percent(""), percent(", loss_percent: 2.5")], [0.5, 2.5]);
}
