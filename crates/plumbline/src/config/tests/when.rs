//! `when` and probes on demand: what is read, and exactly what is printed of the rest.

use super::*;

/// Two rules: `r` with this `when`, at column 1 of line 3, and `other`.
fn with(when: &str) -> String {
    format!(
        "anomalies:\n  r: {{type: latency, probe: nfs,\n{when}}}\n  other: {{type: latency, probe: smb}}\n  \
         calls: {{type: latency, probe: cephproxy, when: {{incident: [r, other]}}}}\n"
    )
}

fn assert_one_refused(when: &str, expected: &str) {
    let errors = parse(&with(when)).err().unwrap_or_default();
    let printed: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(printed, [format!("f.yaml:3:{expected}")], "{when}");
}

#[test]
fn a_rule_says_whose_incidents_arm_it() {
    let written = |when: &str| {
        let config = valid(&with(when));
        config.rules[0].when.as_ref().map(ToString::to_string).unwrap_or_default()
    };
    assert_eq!(written("mode: all"), "");
    assert_eq!(
        written("when: {incident: other, within: 2m, on: server}"),
        "while other has an incident on the same server, until 120s after its last anomaly"
    );
    assert_eq!(written("when: {incident: other}"), "while other has an incident, until 60s after its last anomaly");
    assert_eq!(
        written("when: {incident: other, within: 1.5}"),
        "while other has an incident, until 1.5s after its last anomaly"
    );
}

#[test]
fn the_origins_of_a_chain_are_all_rules_above() {
    let config = valid(&with("when: {incident: other}"));
    let origins = |index: usize| config.rules[index].when.as_ref().unwrap().origins.iter().cloned().collect::<Vec<_>>();
    assert_eq!(origins(0), ["other"]);
    assert_eq!(origins(2), ["other", "r"]);
}

#[test]
fn what_arms_nothing_is_refused() {
    for (when, expected) in [
        ("when: {incident: othr}", "1: `when` names `othr`, which is no rule; did you mean `other`?"),
        (
            "when: {on: server}",
            "1: `when` does not say whose incidents arm the rule; write `incident:` and a rule's name",
        ),
        ("when: {incident: []}", "8: `incident` has no values; write the name of a rule"),
        ("when: {incident: other, for: 1m}", "25: unknown key `for`; the keys here are incident, within, on"),
        ("when: {incident: other, on: disk}", "29: there is no on `disk`; write one of host, server, mount, job"),
        (
            "when: {incident: other, within: soon}",
            "33: `within` is `soon`; write a time from 1s to 1d, `90s`, `10m` or `2h` say",
        ),
        (
            "when: {incident: other, within: 2d}",
            "33: `within` is `2d`; write a time from 1s to 1d, `90s`, `10m` or `2h` say",
        ),
        (
            "when: {incident: r}",
            "1: the rule `r` would be armed by its own incidents, at the end of a chain of `when`; name other rules",
        ),
    ] {
        assert_one_refused(when, expected);
    }
}

#[test]
fn rules_that_arm_each_other_are_refused() {
    let text = "anomalies:\n  a: {type: latency, probe: nfs, when: {incident: c}}\n  b: {type: latency, probe: nfs, when: {incident: a}}\n  \
                c: {type: latency, probe: nfs, when: {incident: b}}\n";
    let circle = |line: u32, name: &str| {
        format!(
            "{line}:34: the rule `{name}` would be armed by its own incidents, at the end of a chain of `when`; name other rules"
        )
    };
    assert_refused(&[(text, &[&*circle(2, "a"), &*circle(3, "b"), &*circle(4, "c")])]);
}

#[test]
fn a_rule_is_armed_on_what_it_can_know() {
    let refused = |rule: &str, expected: &str| {
        let text = format!("anomalies:\n  o: {{type: latency, probe: nfs}}\n  r: {{{rule}}}\n");
        assert_refused(&[(&*text, &[expected])]);
    };
    refused(
        "type: connection, when: {incident: o, on: mount}",
        "3:25: the rule `r` cannot be armed on a mount: a connection belongs to a server, and serves all its mounts; write `server`",
    );
    refused(
        "type: latency, probe: cephproxy, when: {incident: o, on: server}",
        "3:40: the rule `r` cannot be armed on a server: what its probe sees goes to no mount of this host; write `host`",
    );
    refused(
        "type: baseline, probe: nfs, when: {incident: o, on: job}",
        "3:35: the rule `r` cannot be armed on a job: it judges what is counted by operation and mount, whoever asked; write `mount`, \
         `server` or `host`",
    );
}

#[test]
fn a_probe_on_demand_needs_rules_that_are_armed() {
    let config = valid(
        "probes: {vfs: on_demand}\nanomalies:\n  o: {type: latency, probe: nfs}\n  v: {type: latency, probe: vfs, when: {incident: o}}\n",
    );
    assert_eq!(config.on_demand.iter().map(|probe| probe.name).collect::<Vec<_>>(), ["vfs"]);
    assert!(config.probes.iter().any(|probe| probe.name == "vfs"));
    assert_refused(&[(
        "probes: {vfs: on_demand}\nanomalies:\n  v: {type: latency, probe: vfs}\n",
        &[
            "1:10: the rule `v` always needs its probe, and `probes` loads `vfs` on demand; give the rule `when`, or write `vfs: true`",
        ],
    )]);
    let config = valid("probes: {vfs: on_demand}\n");
    let notice = "the probe `vfs` is never loaded: no rule with `when` is about its operations";
    assert!(config.notices.iter().any(|line| line == notice), "{:?}", config.notices);
}
