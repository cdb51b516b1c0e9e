//! `only` and `except`: what is read, and exactly what is printed of the rest.

use super::*;

/// A rule of this type and probe with this scope, from column 1 of line 3 on.
fn with(kind: &str, probe: &str, scope: &str) -> String {
    format!("anomalies:\n  r: {{type: {kind}, probe: {probe},\n{scope}}}")
}

fn refused(kind: &str, probe: &str, scope: &str) -> Vec<String> {
    let errors = parse(&with(kind, probe, scope)).err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

fn assert_one_refused(kind: &str, probe: &str, scope: &str, expected: &str) {
    assert_eq!(refused(kind, probe, scope), [format!("f.yaml:3:{expected}")], "{scope}");
}

#[test]
fn a_scope_is_read_as_it_is_written() {
    let scope = |text: &str| valid(&with("latency", "syscalls", text)).rules[0].scope.to_string();
    assert_eq!(scope("mode: all"), "");
    assert_eq!(
        scope("only: {mount: [/mnt/a/, \"/srv/*\"], user: root}, except: {process: \"kworker*\"}"),
        "only mount /mnt/a or /srv/*, user root; except process kworker*"
    );
    let all = "only: {mount: /, server: s, fstype: nfs4, user: [root, 1000], cgroup: /a, container: c, namespace: n, pod: p, workload: w, job: 7, process: p, file: f}";
    assert_eq!(
        scope(all),
        "only mount /, server s, fstype nfs4, user root or 1000, cgroup /a, container c, namespace n, pod p, workload w, job 7, process p, file f"
    );
    let id = "4d3f4d3f4d3f".repeat(5) + "4d3f";
    assert_eq!(scope(&format!("only: {{container: {id}}}")), "only container 4d3f4d3f4d3f", "as long as it is shown");
}

#[test]
fn the_rules_of_aod_may_have_one_too() {
    let text = "guardian: {anomalies: {r: {type: latency, tool: smbslower, only: {mount: /mnt/a}}}}";
    assert_eq!(valid(text).rules[0].scope.to_string(), "only mount /mnt/a");
}

#[test]
fn what_no_scope_can_be_is_refused() {
    let keys = "mount, server, fstype, user, cgroup, container, namespace, pod, workload, job, process, file";
    for (scope, expected) in [
        ("only: {mont: /a}", "8: unknown key `mont`; did you mean `mount`?".to_owned()),
        ("only: {colour: red}", format!("8: unknown key `colour`; the keys here are {keys}")),
        ("onlyy: {mount: /a}", "1: unknown key `onlyy`; did you mean `only`?".to_owned()),
        ("only: {}", format!("1: `only` has no keys; write one of {keys}, or remove it")),
        ("except:", format!("1: `except` has no keys; write one of {keys}, or remove it")),
        ("only: postgres", "7: `only` must be keys with values, not a single value".to_owned()),
        ("only: {mount: []}", "8: `mount` has no values; write one, or remove the key".to_owned()),
        ("only: {mount: }", "8: `mount` has no values; write one, or remove the key".to_owned()),
        ("only: {mount: [[/a]]}", "16: `mount` must be one word, not a list".to_owned()),
        ("only: {job: ''}", "13: an empty job matches nothing; write one, or `*` for any that is known".to_owned()),
        ("only: {mount: mnt}", "15: a mount point begins with `/`, and `mnt` does not; write the whole path".to_owned()),
        (
            "only: {cgroup: a.slice}",
            "16: the path of a cgroup begins with `/`, and `a.slice` does not; write the whole path".to_owned(),
        ),
        ("except: {user: roott}", "16: there is no user `roott` in /etc/passwd; did you mean `root`?".to_owned()),
        (
            "only: {user: nobody-has-this-name}",
            "14: there is no user `nobody-has-this-name` in /etc/passwd; write the user's number, which `id -u NAME` prints"
                .to_owned(),
        ),
        (
            "only: {process: a-process-of-a-long-name}",
            "17: the kernel keeps 15 bytes of a process's name, and `a-process-of-a-long-name` has more; write `a-process-of-a-`, say"
                .to_owned(),
        ),
        ("only: {process: [a, a]}", "21: `a` is given twice (first in line 3); remove one".to_owned()),
    ] {
        assert_one_refused("latency", "syscalls", scope, &expected);
    }
}

#[test]
fn a_pattern_without_quotes_is_refused_with_the_correction() {
    assert_one_refused(
        "latency",
        "syscalls",
        "only: {file: *.tmp}",
        "14: aliases are not supported; write the value out here, a pattern in quotes",
    );
}

#[test]
fn what_a_rule_cannot_know_is_refused() {
    let cannot = |key: &str, why: &str| format!("8: the rule `r` cannot know the {key}: {why}");
    let counted = "it judges what is counted by operation and mount, whoever asked; write `mount`, `server` or `fstype`, or remove";
    let connection =
        "a connection belongs to a server, and serves all its mounts and whoever uses them; write `server`";
    for (kind, probe, key, why) in [
        ("baseline", "nfs", "user", format!("{counted} the key")),
        ("throughput", "nfs", "file", format!("{counted} the key")),
        ("connection", "connections", "mount", connection.to_owned()),
        ("connection", "connections", "process", connection.to_owned()),
        (
            "latency",
            "cephproxy",
            "mount",
            "what probe `cephproxy` sees goes to no mount of this host; remove the key".to_owned(),
        ),
        ("latency", "smb", "file", "probe `smb` names no files; remove the key".to_owned()),
        (
            "stalled",
            "nfs",
            "file",
            "probe `nfs` does not name the files of what has not returned; remove the key".to_owned(),
        ),
        (
            "stalled",
            "vfs",
            "file",
            "probe `vfs` does not name the files of what has not returned; remove the key".to_owned(),
        ),
    ] {
        let value = if key == "user" { "root" } else { "/x" };
        assert_one_refused(kind, probe, &format!("only: {{{key}: {value}}}"), &cannot(key, &why));
    }
    let share = "acceptable_percent: 5, except: {process: sim}";
    let why = format!("33: the rule `r` cannot know the process: {counted} `acceptable_percent`");
    assert_one_refused("error", "nfs", share, &why);
    let last = "15: probe `nfs` knows no more of a file's name than what is behind the last slash; write that alone, `*.tmp` say";
    assert_one_refused("latency", "nfs", "only: {file: '/tmp/*.tmp'}", &last.replace("15:", "14:"));
}

#[test]
fn what_a_rule_can_know_is_accepted() {
    for (kind, probe, scope) in [
        ("baseline", "nfs", "only: {mount: /a, server: s, fstype: nfs4}"),
        ("throughput", "smb", "except: {server: s}"),
        ("connection", "connections", "only: {server: s, fstype: cifs}"),
        ("latency", "cephproxy", "only: {process: smbd, user: root, cgroup: /a}"),
        ("stalled", "syscalls", "only: {file: x, user: root, job: '*', container: '*'}"),
        ("stalled", "nfs", "only: {user: root, process: x, cgroup: /a}"),
        ("error", "nfs", "only: {user: root, file: x}"),
        ("error", "nfs", "acceptable_percent: 5, only: {mount: /a}"),
        ("latency", "vfs", "only: {file: 'a/*/b'}"),
    ] {
        let refused = refused(kind, probe, scope);
        assert!(refused.is_empty(), "{kind} {probe} {scope}: {refused:?}");
    }
}
