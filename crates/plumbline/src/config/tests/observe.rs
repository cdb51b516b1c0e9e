//! `observe` and `summaries`: what is read, and exactly what is printed of the rest.

use super::*;

#[test]
fn observations_are_read_as_they_are_written() {
    let config = valid(
        "observe: [{every: 600, actions: [sockets, mounts]}, {every: 2h, actions: [dmesg], keep: 10d}]\nsummaries: {keep_days: 0}\n",
    );
    let shown = |index: usize| {
        let one = &config.observe[index];
        (one.name.as_str(), one.every.as_secs(), one.actions.len(), one.keep.as_secs())
    };
    assert_eq!((shown(0), shown(1)), (("10m", 600, 2, 86_400), ("2h", 7200, 1, 864_000)));
    assert!(config.keep_summaries.is_zero());
    assert_eq!(valid("audit: {enabled: true}\n").keep_summaries.as_secs(), 31 * 86_400);
}

#[test]
fn what_is_no_observation_is_refused() {
    assert_refused(&[
        ("observe: [sockets]\n", &["1:11: an observation is keys with values; write {every: 10m, actions: [sockets]}"]),
        (
            "observe: [{actions: [sockets]}]\n",
            &["1:11: the observation does not say how often; write `every: 10m`, say"],
        ),
        ("observe: [{every: 10m}]\n", &["1:11: the observation collects nothing; write `actions: [sockets]`, say"]),
        (
            "observe: [{every: 1s, actions: [sockets]}]\n",
            &["1:19: `every` is `1s`; write a time from 10s to 1d, `90s`, `10m` or `2h` say"],
        ),
        (
            "observe: [{every: 1m, actions: [sockets], keep: 1}]\n",
            &["1:49: `keep` is `1`; write a time from 1m to 3650d, `90s`, `10m` or `2h` say"],
        ),
        (
            "observe: [{every: 60s, actions: [dmesg]}, {every: 1m, actions: [sockets]}]\n",
            &["1:44: two observations are made every 1m; put their actions into one"],
        ),
        (
            "observe: [{every: 1m, actions: [sockets], for: 1m}]\n",
            &["1:43: unknown key `for`; the keys here are every, actions, keep"],
        ),
        ("summaries: {keep_days: -1}\n", &["1:24: `keep_days` is `-1`; write a number from 0 to 3650 days"]),
    ]);
}
