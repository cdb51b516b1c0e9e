//! Captures: what they are without their keys, who may name them, and what AOD's become.

use super::{
    super::{CaptureConfig, CaptureKind, CommandConfig, Hosts, PacketsConfig, TraceMemory, TracepointsConfig},
    *,
};

const SECOND: &str = include_str!("aod_second.yaml");

/// A configuration whose snapshot names the capture `c`, which has these keys.
fn with(keys: &str) -> String {
    format!("captures: {{c: {{{keys}}}}}\nsnapshot: {{actions: [c]}}")
}

fn one(keys: &str) -> CaptureConfig {
    let [capture] = <[_; 1]>::try_from(valid(&with(keys)).captures).expect("one capture");
    capture
}

#[test]
fn what_a_capture_leaves_out_has_its_default() {
    let packets = PacketsConfig { interface: None, hosts: Hosts::Mounts, ports: vec![], snap: None, memory: 4 << 20 };
    let kind = CaptureKind::Packets(packets);
    let expected = CaptureConfig { name: "c".into(), before: ms(10_000), after: ms(5000), kind };
    assert_eq!(one("type: packets"), expected);
    let all = "type: packets, interface: any, hosts: mounts, ports: [], snap_bytes: headers, memory_mb: 4, before_sec: 10, after_sec: 5";
    assert_eq!(one(all), expected);
    let events = vec!["nfs".to_owned(), "sunrpc:rpc_task_*".to_owned()];
    let tracepoints = TracepointsConfig { events, memory: TraceMemory::All(4 << 20) };
    assert_eq!(
        one("type: tracepoints, events: [nfs, 'sunrpc:rpc_task_*']").kind,
        CaptureKind::Tracepoints(tracepoints)
    );
    let command = CommandConfig { command: vec!["x".into()], files: "*".into(), max_bytes: 16 << 20 };
    assert_eq!(one("type: command, command: [x]").kind, CaptureKind::Command(command));
    assert_eq!(Config::compiled_in().expect("valid").captures, []);
}

#[test]
fn a_capture_runs_if_a_rule_or_the_snapshot_names_it() {
    let rule = "anomalies: {r: {type: latency, probe: nfs, actions: [dmesg, {p: {after_sec: 30}}]}}";
    let config = valid(&format!("captures: {{p: {{type: packets}}, q: {{type: packets}}}}\n{rule}"));
    assert_eq!(config.captures.iter().map(|capture| &*capture.name).collect::<Vec<_>>(), ["p"]);
    assert_eq!(config.notices, ["the capture `q` does not run: no rule names it in its `actions`"]);
    let of: Vec<_> =
        config.captures_of(&config.rules[0].actions).map(|(capture, after)| (&*capture.name, after)).collect();
    assert_eq!(of, [("p", ms(30_000))]);
    assert_eq!(config.resolve(&config.rules[0].actions).len(), 1, "dmesg alone is an action of the collector's own");
    let as_map = valid("captures: {p: {type: packets}}\nsnapshot: {actions: {dmesg: , p: {after_sec: 0}}}");
    assert_eq!(as_map.snapshot[1].after, Some(ms(0)));
}

#[test]
fn what_is_wrong_with_a_capture_is_told_in_its_place() {
    assert_refused(&[
        ("captures: {c: {}}", &["1:12: the capture `c` has no type; write `type: packets`, tracepoints or command"]),
        ("captures: {c: {type: packet}}", &["1:22: there is no type `packet`; did you mean `packets`?"]),
        ("captures: {dmesg: {type: packets}}", &["1:12: `dmesg` is an action already; give the capture another name"]),
        (
            "captures: {tcpdump: {type: packets}}",
            &["1:12: `tcpdump` is an action already; give the capture another name"],
        ),
        (
            "captures: {events: {type: packets}}",
            &["1:12: `events` is the name of another file of a bundle; give the capture another name"],
        ),
        (
            &with("type: packets, snap_byte: 9, memory_mb: 0, ports: [x], hosts: [h], interface: a/b"),
            &[
                "1:31: unknown key `snap_byte`; did you mean `snap_bytes`?",
                "1:56: `memory_mb` is `0`; write a number from 1 to 1024 MiB",
                "1:67: `x` is no port; write a number from 1 to 65535",
                "1:79: `h` is no address; write one such as 192.0.2.1 or 2001:db8::1",
                "1:94: `a/b` cannot be the name of an interface; write one such as eth0, or any",
            ],
        ),
        (
            &with("type: packets, snap_bytes: 63"),
            &["1:43: `snap_bytes` is `63`; write a whole number from 64 to 65536"],
        ),
        (&with("type: tracepoints"), &["1:12: the capture `c` has no events; write `events: [nfs, sunrpc]`"]),
        (
            &with("type: tracepoints, events: ['!nfs', 'a:b:c', '']"),
            &[
                "1:44: `!nfs` cannot be a tracepoint; write SYSTEM, SYSTEM:EVENT or SYSTEM:EV*",
                "1:52: `a:b:c` cannot be a tracepoint; write SYSTEM, SYSTEM:EVENT or SYSTEM:EV*",
                "1:61: `` cannot be a tracepoint; write SYSTEM, SYSTEM:EVENT or SYSTEM:EV*",
            ],
        ),
        (
            &with("type: command, command: [x], files: a/*"),
            &[
                "1:52: `files` is a pattern of names in the command's own directory, without `/`; write one such as *.pcap*",
            ],
        ),
        (
            &with("type: command, command: [x], max_mb: 200"),
            &[
                "1:1: the files of captures (`max_mb`) and of the recorder may be more than half of `max_total_log_size_mb`, \
                 and incidents need room as well; write less, or raise that",
            ],
        ),
        (
            "captures: {p: {type: packets}}\nsnapshot: {actions: {p: [-s, 9]}}",
            &["2:22: the capture `p` takes no arguments; put them under `captures`"],
        ),
        (
            "snapshot: {actions: {dmesg: {after_sec: 1}}}",
            &["1:22: only a capture has keys, and `dmesg` is none; write the name alone"],
        ),
    ]);
}

#[test]
fn aods_captures_become_ours_with_what_their_arguments_say() {
    let config = valid(SECOND);
    let [tcpdump, trace_cmd] = config.captures.as_slice() else { panic!("{:?}", config.captures) };
    let packets =
        PacketsConfig { interface: None, hosts: Hosts::Mounts, ports: vec![], snap: Some(65_536), memory: 10 << 20 };
    assert_eq!((&*tcpdump.name, &tcpdump.kind), ("tcpdump", &CaptureKind::Packets(packets)));
    let events = vec!["nfs".to_owned(), "sunrpc".to_owned()];
    let tracepoints = TracepointsConfig { events, memory: TraceMemory::EachProcessor(1 << 20) };
    assert_eq!((&*trace_cmd.name, &trace_cmd.kind), ("trace-cmd", &CaptureKind::Tracepoints(tracepoints)));
}

#[test]
fn aods_captures_with_other_arguments_are_others_and_what_is_not_honoured_is_told() {
    let actions = |args: &str| format!("actions: {{tcpdump: {args}}}");
    let (one, other) = (actions("[-i, eth0, -ns0, port, '445']"), actions("[-G, '60', -I, greater, '9']"));
    let rule = |name: &str, actions: &str| format!("  {name}: {{type: latency, probe: smb, {actions}}}\n");
    let config = valid(&format!("anomalies:\n{}{}{}", rule("a", &one), rule("b", &other), rule("c", &one)));
    let names: Vec<_> = config.rules.iter().map(|rule| &*rule.actions[0].name).collect();
    assert_eq!(names, ["tcpdump", "tcpdump_2", "tcpdump"]);
    let CaptureKind::Packets(first) = &config.captures[0].kind else { panic!("{:?}", config.captures) };
    assert_eq!((first.interface.as_deref(), &first.hosts, &*first.ports), (Some("eth0"), &Hosts::Any, &[445][..]));
    assert_eq!(
        config.notices,
        [
            "`tcpdump` is a capture here, `tcpdump`: packets, interface eth0, any host, 65536 bytes of each; the last 2048 KiB of \
             them, in memory",
            "`tcpdump`: `-G 60` is left out: the capture has its own way",
            "`tcpdump`: `-I` is left out: the capture has its own way",
            "`tcpdump`: `greater 9` is left out: only hosts (by address) and ports are understood, joined by `and` and `or`; the \
             servers of mounts are captured",
            "`tcpdump` is a capture here, `tcpdump_2`: packets, interface any, servers of mounts, 65536 bytes of each; the last \
             2048 KiB of them, in memory",
        ]
    );
}
