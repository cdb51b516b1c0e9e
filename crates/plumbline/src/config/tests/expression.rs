//! Rules that are an expression of the operator's own.

use diagnose::expression::{ExpressionRule, Figure, Per};
use proptest::prelude::*;

use super::*;

const FIGURES: &str = "the figures are count, rate, errors, bytes, in_flight, p50, p90, p99, mean, max, normal.p50, normal.p90, \
                       normal.p99, normal.mean";

/// A rule of the probe smb with these further keys.
fn rule(keys: &str) -> String {
    format!("anomalies:\n  r:\n    type: expression\n    probe: smb\n    {keys}\n")
}

#[test]
fn a_rule_is_read_with_its_defaults() {
    let config = valid(&rule("expression: p99 > 3 * normal.p99 && errors > 0"));
    let read: &ExpressionRule = of_kind(&config.rules[0]);
    assert_eq!(
        (read.expression.text(), read.per, read.windows),
        ("p99 > 3 * normal.p99 && errors > 0", Per::Operation, 1)
    );
    let figures: Vec<_> = read.expression.figures().iter().map(|figure| figure.name()).collect();
    assert_eq!(figures, ["errors", "p99", "normal.p99"]);
    assert_eq!(Figure::named("errors"), Some(Figure::Errors));
    let names: Vec<_> = read.operations.iter().map(|operation| operation.name()).collect();
    assert!(names.contains(&"SMB2_READ") && !names.contains(&"SMB2_CHANGE_NOTIFY"), "{names:?}");
    let described = config.rules[0].rule.describe(config.watch_interval);
    assert_eq!(described, format!("r: {} operations of smb, p99 > 3 * normal.p99 && errors > 0 in 1s", names.len()));
    let keys = [
        "expression: 'rate > 5'",
        "per: mount",
        "windows: 4",
        "mode: trackonly",
        "track_commands: [SMB2_WRITE]",
        "only: {mount: /a}",
    ];
    let config = valid(&rule(&keys.join("\n    ")));
    let read: &ExpressionRule = of_kind(&config.rules[0]);
    assert_eq!((read.operations.len(), read.per, read.windows), (1, Per::Mount, 4));
    assert_eq!(config.rules[0].scope.to_string(), "only mount /a");
}

#[test]
fn mistakes_of_an_expression_are_told_where_they_are() {
    let figures: &str = &format!("5:25: there is no figure `latency`; {FIGURES}");
    let cases: [(&str, &[&str]); 13] = [
        ("windows: 2", &["2:3: the rule `r` has no expression; write `expression: p99 > 100 && errors > 0`, say"]),
        ("expression: p99 > 3 * normal.p98", &["5:27: there is no figure `normal.p98`; did you mean `normal.p90`?"]),
        ("expression: p99 > 3 && latency > 5", &[&figures.replace("5:25", "5:28")]),
        ("expression: 'p99 > 3 and errors > 0'", &["5:26: `and` is not expected here; write `&&` for it"]),
        (
            "expression: \"p99 > 3 &&\"",
            &["5:28: the expression ends too early; a figure, a number or a bracket belongs here"],
        ),
        (
            "expression: p99 >\n      3 &&\n      errrs > 0",
            &["7:7: there is no figure `errrs`; did you mean `errors`?"],
        ),
        (
            "expression: >\n      p99 > 3 &&\n      errrs > 0",
            &["7:7: there is no figure `errrs`; did you mean `errors`?"],
        ),
        (
            "expression: |\n      p99 > 3 &&\n\n      errrs > 0",
            &["8:7: there is no figure `errrs`; did you mean `errors`?"],
        ),
        // What stands in the file is not what is meant.
        ("expression: \"p99 \\x3e errrs\"", &["5:17: there is no figure `errrs`; did you mean `errors`?"]),
        ("expression: p99", &["5:17: an expression must be true or false, and this is a number"]),
        (
            "expression: 1 < 2",
            &[
                "5:17: the expression names no figure, so it is always the same; compare one, such as p99, with a number",
            ],
        ),
        ("expression: [p99 > 3]", &["5:17: `expression` must be one word, not a list"]),
        (
            "expression: p99 > 3\n    per: host\n    windows: 0\n    acceptable_count: 3",
            &[
                "6:10: there is no per `host`; write one of operation, mount, rule",
                "7:14: `windows` is `0`; write a whole number from 1 to 100",
                "8:5: unknown key `acceptable_count`; the keys here are type, probe, tool, mode, actions, only, except, when, expression, \
                 per, windows, track_commands, exclude_commands",
            ],
        ),
    ];
    for (keys, expected) in cases {
        assert_refused(&[(&rule(keys), expected)]);
    }
}

#[test]
fn what_such_a_rule_can_know() {
    valid(&rule("expression: p99 > 3\n    only: {server: a}\n    except: {fstype: cifs}"));
    assert_refused(&[
        (
            &rule("expression: p99 > 3\n    only: {process: x}"),
            &[
                "6:12: the rule `r` cannot know the process: it judges what is counted by operation and mount, whoever asked; write \
               `mount`, `server` or `fstype`, or remove the key",
            ],
        ),
        (
            "anomalies: {r: {type: expression, probe: connections, expression: count > 3}}",
            &["1:42: what probe `connections` sees has no figures; write `type: connection`, or another probe"],
        ),
    ]);
}

proptest! {
    #[test]
    fn no_expression_panics_however_it_is_written(text in any::<String>(), block in any::<bool>()) {
        let text = if block { format!("|\n      {}", text.replace('\n', "\n      ")) } else { text };
        let _ = parse(&rule(&format!("expression: {text}")));
        let quoted = serde_json::to_string(&text).expect("JSON");
        let _ = parse(&rule(&format!("expression: {quoted}")));
    }
}
