//! Exactly what is printed of a text that is refused: the sections and the YAML itself.

use super::*;

const TOP: &str = "the keys here are watch_interval_sec, output_dir, probes, all_filesystems, operations, anomalies, cooldown_sec, \
                   snapshot, observe, summaries, custom_actions, captures, evidence, cleanup, recorder, audit, prometheus, \
                   otlp, webhook, kubernetes_events, on_incident, peers";

#[test]
fn text_that_is_no_configuration() {
    let nothing: &[&str] = &["1:1: there is nothing in this file; write at least `{}`, which takes every default"];
    let not_keys: &[&str] = &["1:1: a configuration is keys with values; write `key: value`, one a line"];
    let alias = "aliases are not supported; write the value out here, a pattern in quotes";
    let tag = "tags are not supported; remove the word that begins with `!`";
    let unclear = "check the indentation, colons, quotes and brackets here and in the line above";
    let deep = "[".repeat(5000);
    assert_refused(&[
        ("", nothing),
        ("# a comment\n", nothing),
        ("---\n", nothing),
        ("~", nothing),
        ("plumbline", not_keys),
        ("[1, 2]", not_keys),
        ("a: [1, 2", &["1:4: this is not YAML: unclosed bracket '['; close the bracket"]),
        ("a: 'x", &["1:4: this is not YAML: unclosed quote; close the quote"]),
        ("a: b: c", &[&format!("1:5: this is not YAML: mapping values are not allowed in this context; {unclear}")]),
        (
            "audit:\n\tenabled: true\n",
            &["2:1: this is not YAML: tabs disallowed within this context (block indentation); indent with spaces"],
        ),
        ("a: \u{1}", &[&format!("1:4: this is not YAML: unexpected character: `\\u{{1}}'; {unclear}")]),
        (&deep, &["1:33: this is not YAML: recursion limit exceeded; no configuration is nested this deep"]),
        ("{}\n---\n{}", &["2:1: a second document begins here; one file is one configuration, so remove the rest"]),
        ("a: &a [*a]", &[&format!("1:8: {alias}")]),
        ("a: &x [1]\nb: [*x, *x]", &[&format!("2:5: {alias}")]),
        ("a: *nope", &[&format!("1:4: {alias}")]),
        ("a: !!str 5", &[&format!("1:4: {tag}")]),
        ("a: !x {b: c}", &[&format!("1:4: {tag}")]),
        ("<<: {a: b}", &["1:1: merge keys are not supported; write the keys out here"]),
        ("[a]: b", &["1:1: this key is not a word; write `key: value`"]),
    ]);
}

#[test]
fn keys() {
    assert_refused(&[
        (
            "audit: {}\nevidence: {max_kb: 1, max_kb: 2}\naudit: {}\n",
            &[
                "2:23: `max_kb` is given twice (first in line 2); remove one",
                "3:1: `audit` is given twice (first in line 1); remove one",
            ],
        ),
        ("watch_interval: 1", &["1:1: unknown key `watch_interval`; did you mean `watch_interval_sec`?"]),
        ("probs: {}", &["1:1: unknown key `probs`; did you mean `probes`?"]),
        ("evidence:\n  timout_sec: 5", &["2:3: unknown key `timout_sec`; did you mean `timeout_sec`?"]),
        ("\n\n\"x\\n\\e[31m\": 1", &[&format!("3:1: unknown key `x\\x0a\\x1b[31m`; {TOP}")]),
        (&format!("{}: 1", "k".repeat(99)), &[&format!("1:1: unknown key `{}...`; {TOP}", "k".repeat(64))]),
        ("{\"ü\": 1, ö: 2}", &[&format!("1:2: unknown key `ü`; {TOP}"), &format!("1:10: unknown key `ö`; {TOP}")]),
    ]);
}

#[test]
fn numbers() {
    let interval = "write a number from 0.01 to 86400 seconds";
    for wrong in
        ["0", "-1", "86401", ".nan", "NaN", ".inf", "1e300", "1e999", "-1e999", "0x10", "one", "1s", "1,5", "+"]
    {
        let text = format!("watch_interval_sec: {wrong}");
        assert_refused(&[(&text, &[&format!("1:21: `watch_interval_sec` is `{wrong}`; {interval}")])]);
    }
    assert_refused(&[
        (
            "watch_interval_sec: \"1\"",
            &[&format!("1:21: `watch_interval_sec` is `1` (in quotes it is text); {interval}")],
        ),
        ("watch_interval_sec: [1]", &["1:21: `watch_interval_sec` must be one word, not a list"]),
        ("watch_interval_sec: {a: 1}", &["1:21: `watch_interval_sec` must be one word, not keys with values"]),
        ("watch_interval_sec:", &["1:1: `watch_interval_sec` has no value; write one or remove the key"]),
        ("cooldown_sec: -5", &["1:15: `cooldown_sec` is `-5`; write a number from 0 to 86400 seconds"]),
        (
            "evidence: {timeout_sec: 0, max_kb: 99999999999, concurrency: 1.5, recorder_sec: 301}",
            &[
                "1:25: `timeout_sec` is `0`; write a number from 0.1 to 300 seconds",
                "1:36: `max_kb` is `99999999999`; write a whole number from 1 to 65536",
                "1:62: `concurrency` is `1.5`; write a whole number from 1 to 16",
                "1:81: `recorder_sec` is `301`; write a number from 0 to 300 seconds",
            ],
        ),
        (
            "recorder: {keep_minutes: 20000, keep_mb: 0}\n",
            &[
                "1:26: `keep_minutes` is `20000`; write a number from 0 to 10080 minutes",
                "1:42: `keep_mb` is `0`; write a number from 1 to 1048576 MiB",
            ],
        ),
        (
            "recorder: {keep_minutes: 1, keep_mb: 200}\n",
            &[
                "1:38: `keep_mb` is more than half of `max_total_log_size_mb`, and incidents need room as well; write at most 128, \
               or raise that",
            ],
        ),
        (
            "cleanup:\n  cleanup_interval_sec: 0\n  max_log_age_days: 0\n  max_total_log_size_mb: -1\n",
            &[
                "2:25: `cleanup_interval_sec` is `0`; write a number from 0.01 to 86400 seconds",
                "3:21: `max_log_age_days` is `0`; write a number from 0.001 to 3650 days",
                "4:26: `max_total_log_size_mb` is `-1`; write a number from 0.1 to 1048576 MiB",
            ],
        ),
    ]);
}

#[test]
fn values_of_the_wrong_kind() {
    assert_refused(&[
        ("all_filesystems: maybe", &["1:18: `all_filesystems` is `maybe`; write true or false"]),
        ("all_filesystems: 1", &["1:18: `all_filesystems` is `1`; write true or false"]),
        ("audit: {enabled: \"true\"}", &["1:18: `enabled` is `true`; write true or false"]),
        ("audit: true", &["1:8: `audit` must be keys with values, not a single value"]),
        ("evidence: [5]", &["1:11: `evidence` must be keys with values, not a list"]),
        ("anomalies: 5", &["1:12: `anomalies` must be keys with values, not a single value"]),
        ("probes: {smbb: true}", &["1:10: unknown key `smbb`; did you mean `smb`?"]),
        ("probes: {smb: 2}", &["1:15: `smb` is `2`; write true or false"]),
        (
            "probes: {smb: false, syscalls: false, nfs: false, vfs: false, connections: false, mpiio: false, tcp: false, cephproxy: false, fuse: false, server: false, ceph: false}",
            &[
                "1:1: every probe is switched off; switch one of smb, syscalls, nfs, vfs, connections, mpiio, tcp, cephproxy, fuse, server, ceph on",
            ],
        ),
    ]);
}

#[test]
fn the_output_directory_as_a_path() {
    let dir = "the output directory";
    assert_refused(&[
        ("output_dir: logs", &[&format!("1:13: {dir} `logs` is not absolute; begin it with `/`")]),
        (
            "output_dir: /",
            &[&format!(
                "1:13: {dir} `/` is the root directory; write a directory of its own, such as /var/log/plumbline"
            )],
        ),
        ("output_dir: /var/../etc", &[&format!("1:13: {dir} `/var/../etc` has `..` in it; write the path without")]),
        ("output_dir: \"/a\\0b\"", &[&format!("1:13: {dir} `/a\\x00b` has a NUL byte in it; remove it")]),
        ("aod_output_dir: logs", &[&format!("1:17: {dir} `logs` is not absolute; begin it with `/`")]),
    ]);
}

#[test]
fn actions() {
    let all = KnownNames::to_this_program().actions.join(", ");
    assert_refused(&[
        ("snapshot: {actions: [dmseg]}", &["1:22: there is no action `dmseg`; did you mean `dmesg`?"]),
        (
            "snapshot: {actions: [frobnicate]}",
            &[&format!(
                "1:22: there is no action `frobnicate`; the actions are {all}, tcpdump, trace-cmd; or define it under \
                 `custom_actions`"
            )],
        ),
        ("snapshot: {actions: [dmesg, dmesg]}", &["1:29: the action `dmesg` is given twice; remove one"]),
        (
            "snapshot: {actions: {dmesg: [x]}}",
            &["1:22: the action `dmesg` takes no arguments; define a command under `custom_actions`"],
        ),
        ("snapshot: {actions: dmesg}", &["1:21: `actions` must be a list, not a single value; write [a, b]"]),
        ("snapshot: {actions: [[x]]}", &["1:22: an action must be one word, not a list"]),
        ("snapshot: {action: [dmesg]}", &["1:12: unknown key `action`; did you mean `actions`?"]),
    ]);
}

#[test]
fn custom_actions() {
    assert_refused(&[
        ("custom_actions: {dmesg: {command: [x]}}", &["1:18: `dmesg` is an action already; give yours another name"]),
        ("custom_actions: {x: }", &["1:18: the action `x` has no command; write `command: [program, argument]`"]),
        ("custom_actions: {x: {command: []}}", &["1:31: `command` is empty; write [program, argument]"]),
        ("custom_actions: {x: {command: ls}}", &["1:31: `command` must be a list, not a single value; write [a, b]"]),
        (
            "custom_actions: {x: {command: [./ls]}}",
            &["1:31: `./ls` depends on the working directory; write a name or an absolute path"],
        ),
        ("custom_actions: {x: {command: [ls, [a]]}}", &["1:36: an argument must be one word, not a list"]),
        (
            "custom_actions: {x: {command: [ls, \"a\\0\"]}}",
            &["1:31: `command` has a NUL byte in it; remove it: no argument can hold one"],
        ),
        (
            "custom_actions: {../x: {command: [ls], timeout_sec: 999, max_kb: 0, foo: 1}}",
            &[
                "1:18: `../x` cannot be a name; write 1 to 64 letters, digits, `_` or `-`",
                "1:53: `timeout_sec` is `999`; write a number from 0.1 to 300 seconds",
                "1:66: `max_kb` is `0`; write a whole number from 1 to 65536",
                "1:69: unknown key `foo`; the keys here are command, timeout_sec, max_kb, max_memory_mb",
            ],
        ),
        (
            "custom_actions: {x: {command: [ls]}}\nsnapshot: {actions: {x: [-l]}}",
            &["2:22: the action `x` takes no arguments; put them into its `command`"],
        ),
    ]);
}

#[test]
fn no_more_errors_than_anybody_reads() {
    let text: String = (0..500).map(|n| format!("key{n}: 1\n")).collect();
    let errors = parse(&text).expect_err("unknown keys");
    assert_eq!(errors.len(), 101);
    assert_eq!(errors[100].to_string(), "f.yaml:101:1: more mistakes follow; correct those above first");
}

#[test]
fn publishing() {
    let cure = "write an address and a port, such as 127.0.0.1:9437 or [::1]:9437, or off";
    assert_refused(&[
        ("prometheus: {listen: 9437}", &[&format!("1:22: `listen` is `9437`; {cure}")]),
        ("prometheus: {listen: 127.0.0.1:0}", &[&format!("1:22: `listen` is `127.0.0.1:0`; {cure}")]),
        ("prometheus: {listen: localhost:9437}", &[&format!("1:22: `listen` is `localhost:9437`; {cure}")]),
        ("prometheus: {listen: 'off'}", &[&format!("1:22: `listen` is `off`; {cure}")]),
        ("prometheus: {listen: }", &["1:14: `listen` has no value; write one or remove the key"]),
        ("prometheus: {listn: off}", &["1:14: unknown key `listn`; did you mean `listen`?"]),
        ("prometheus:\n  max_series: 0", &["2:15: `max_series` is `0`; write a whole number from 1 to 4096"]),
        (
            "otlp: {endpoint: collector:4317}",
            &["1:18: `endpoint` is `collector:4317`; begin it with http:// or https://"],
        ),
        ("otlp: {endpoint: 'a b'}", &["1:18: `endpoint` is `a b`; write http://HOST:PORT, or off"]),
        (
            "otlp: {endpoint: 'http://collector'}",
            &[
                "1:18: `endpoint` is `http://collector`; write the port, too: 4317 for grpc and 4318 for http, as a rule",
            ],
        ),
        (
            "otlp: {endpoint: 'ftp://collector:1'}",
            &["1:18: `endpoint` is `ftp://collector:1`; begin it with http:// or https://"],
        ),
        (
            "otlp: {endpoint: 'http://a:b@collector:1'}",
            &["1:18: `endpoint` is `http://a:b@collector:1`; write passwords into `headers`"],
        ),
        (
            "otlp: {endpoint: 'http://collector:1/x'}",
            &["1:18: `endpoint` is `http://collector:1/x`; remove the path: gRPC has its own"],
        ),
        ("webhook: {url: example.org/x}", &["1:16: `url` is `example.org/x`; write http://HOST:PORT, or off"]),
        ("webhook: {timeout_sec: 0}", &["1:24: `timeout_sec` is `0`; write a number from 0.1 to 60 seconds"]),
        (
            "peers: {listen: \"0.0.0.0:9438\", key: k.pem}",
            &["1:38: `key` is `k.pem`; write the absolute path of a file, or off"],
        ),
        (
            "peers: {ask: 9438, certificate: /c, authority: /a}",
            &[
                "1:14: `key` is off, and peers prove who they are by certificates; write the path of a file (docs/server.md)",
            ],
        ),
        (
            "peers: {listen: 9438, ask: 99999}",
            &[
                "1:17: `listen` is `9438`; write an address and a port, such as 0.0.0.0:9438 or 10.0.0.5:9438, or off",
                "1:28: `ask` is no port; write the port at which the daemons of all servers listen, such as 9438, or {SERVER: HOST:PORT}, or off",
            ],
        ),
        (
            "peers: {ask: {filer1: filer1}, insecure: true}",
            &[
                "1:23: the daemon of `filer1` is at `filer1`; write HOST:PORT, such as filer1:9438",
                "1:32: unknown key `insecure`; the keys here are listen, ask, timeout_sec, certificate, key, authority",
            ],
        ),
        ("otlp: {protocol: grcp}", &["1:18: there is no protocol `grcp`; did you mean `grpc`?"]),
        ("otlp: {interval_sec: 0.5}", &["1:22: `interval_sec` is `0.5`; write a number from 1 to 3600 seconds"]),
        (
            "otlp:\n  headers: {a b: x, te: x, ok: \"\\x01\"}",
            &[
                "2:13: the header `a b` is no name of a header; letters, digits and hyphens are",
                "2:21: the header `te` is not for you to set; remove it",
                "2:28: the header `ok` has a value that no header can have; write printable characters",
            ],
        ),
    ]);
}
