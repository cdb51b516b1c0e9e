//! A configuration file: either valid in every part, or refused line by line, each with a place that is in the file.

#![no_main]

use diagnose::rule::Rule;
use plumbline::config::{Config, KnownNames};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Config::parse(text, "fuzzed.yaml", &KnownNames::to_this_program()) {
        Ok(config) => {
            assert!(config.output_dir.is_absolute());
            assert!(!config.probes.is_empty() && !config.watch_interval.is_zero());
            for configured in &config.rules {
                let judges_something = match &configured.rule {
                    Rule::Latency(rule) => !rule.thresholds.is_empty() && rule.acceptable_count > 0,
                    Rule::Error(rule) => !rule.operations.is_empty() && rule.acceptable_count > 0,
                    Rule::Stall(rule) => !rule.operations.is_empty() && !rule.limit.is_zero(),
                    Rule::Connection(rule) => !rule.counts.is_empty() && rule.counts.values().all(|count| *count > 0),
                    Rule::Baseline(rule) => {
                        !rule.operations.is_empty() && rule.factor > 1.0 && rule.pace.warm_up <= rule.pace.history
                    }
                    Rule::Throughput(rule) => {
                        !rule.operations.is_empty() && rule.share < 1.0 && rule.pace.warm_up <= rule.pace.history
                    }
                };
                assert!(judges_something);
                config.resolve(&configured.actions);
            }
            config.notices.iter().for_each(|notice| one_line(notice));
        }
        Err(errors) => {
            assert!((1..=101).contains(&errors.len()));
            for error in errors {
                one_line(&error.to_string());
                let at = error.at.expect("a text that was read has places");
                // Just behind the end is a place, too.
                assert!(
                    at.line >= 1
                        && at.line <= text.chars().filter(|c| "\n\r\u{85}\u{2028}\u{2029}".contains(*c)).count() + 2
                );
                assert!(at.column >= 1 && at.column <= text.chars().count() + 2, "{error}");
            }
        }
    }
});

fn one_line(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
