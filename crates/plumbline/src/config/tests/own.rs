//! Operations of the site's own: what is accepted, and exactly what is printed of the rest.

use probes::own::{OwnHook, ValueRoot};

use super::*;

const MINE: &str = "operations:
  site9p:
    READ:
      begin: {fentry: p9_client_read}
      bytes: return
      status: end.err
      file: args.fid->dentry
  disk:
    REQUEST:
      begin: {tracepoint: \"block:block_rq_issue\"}
      end: {tracepoint: \"block:block_rq_complete\"}
      key: [args.dev, args.sector]
";

#[test]
fn an_operation_is_a_probe_with_rules_of_its_own() {
    let config = valid(&format!("{MINE}anomalies: {{slow: {{type: latency, probe: site9p, track_commands: [READ]}}}}"));
    let [read, request] = config.operations.as_slice() else { panic!("{:?}", config.operations) };
    assert_eq!((read.protocol.as_str(), read.operation.as_str(), read.file.as_str()), ("site9p", "READ", "f.yaml"));
    assert!(matches!(&read.end.value, OwnHook::Function { name, returns: true, .. } if name == "p9_client_read"));
    assert_eq!((read.begin.line, read.begin.column), (4, 23));
    assert!(read.key.is_empty() && read.mount.is_none());
    assert_eq!(request.key.len(), 2);
    assert!(request.key.iter().all(|(begin, end)| begin == end && begin.value.root == ValueRoot::Begin));
    assert_eq!(config.rules[0].rule.protocol().name, "site9p");
    assert!(config.probes.iter().any(|probe| probe.name == "disk"), "on unless switched off");
    assert_eq!(thresholds(&config, "slow").into_iter().collect::<Vec<_>>(), [("READ", 10)]);
}

#[test]
fn one_can_be_switched_off() {
    let config = valid(&format!("{MINE}probes: {{disk: false}}"));
    assert!(!config.probes.iter().any(|probe| probe.name == "disk"));
    assert!(config.probes.iter().any(|probe| probe.name == "site9p"));
}

#[test]
fn what_is_wrong_has_its_place() {
    let of = |rest: &str| format!("operations: {{p: {{OP: {{{rest}}}}}}}");
    let begin = "begin: {fentry: f}, ";
    let cases = [
        ("", "1:18: the operation `OP` has no beginning; write `begin: {fentry: FUNCTION}`, or another hook"),
        ("begin: {fentri: f}", "1:31: there is no hook `fentri`; did you mean `fentry`?"),
        ("begin: {fentry: \"a b\"}", "1:39: `a b` is no function of the kernel; write its name, or MODULE:NAME"),
        (
            "begin: {fexit: f}",
            "1:38: an operation cannot begin where a function returns; write fentry, kprobe or uprobe",
        ),
        ("begin: {tracepoint: \"a:b\"}", "1:18: the operation `OP` has no end; write `end:` and a hook"),
        ("begin: {fentry: f}, bites: return", "1:43: unknown key `bites`; did you mean `bytes`?"),
        (
            &format!("{begin}bytes: count"),
            "1:50: `count` is no value; write `return`, or an argument such as args.count or end.req->size",
        ),
        (
            &format!("{begin}key: return"),
            "1:48: a key is the thread, or arguments that both hooks have; write `thread` or args.NAME",
        ),
    ];
    for (rest, expected) in cases {
        let errors = parse(&of(rest)).err().unwrap_or_default();
        let printed: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert!(printed.iter().any(|line| *line == format!("f.yaml:{expected}")), "{rest}: {printed:#?}");
    }
    assert_refused(&[
        ("operations: {smb: {A: {begin: {fentry: f}}}}", &["1:14: `smb` is a probe already; give yours another name"]),
        (
            "operations: {\"a-b\": {A: {begin: {fentry: f}}}}",
            &["1:14: `a-b` cannot be a name; write 1 to 15 letters, digits or `_`"],
        ),
    ]);
}

#[test]
fn they_are_limited_in_number() {
    let many = |count: usize| {
        let one = |number| format!("O{number}: {{begin: {{fentry: f}}}}");
        format!("operations: {{p: {{{}}}}}", (0..count).map(one).collect::<Vec<_>>().join(", "))
    };
    assert_eq!(valid(&many(32)).operations.len(), 32);
    assert_refused(&[(&many(33), &["1:1: these are 33 operations; define at most 32"])]);
}
