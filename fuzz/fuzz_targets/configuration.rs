//! A configuration file: either valid in every part, or refused line by line, each with a place that is in the file.

#![no_main]

use std::any::Any;

use diagnose::{
    baseline::BaselineRule, connection::ConnectionRule, error::ErrorRule, expression::ExpressionRule,
    latency::LatencyRule, rule::Rule, stall::StallRule, throughput::ThroughputRule,
};
use plumbline::config::{Config, KnownNames};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Config::parse(text, "fuzzed.yaml", &KnownNames::to_this_program()) {
        Ok(config) => {
            assert!(config.output_dir.is_absolute());
            assert!(!config.probes.is_empty() && !config.watch_interval.is_zero());
            for configured in &config.rules {
                assert!(judges_something(&*configured.rule), "{:?}", configured.rule);
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

/// Whether a rule has something to judge, and limits that make sense.
fn judges_something(rule: &dyn Rule) -> bool {
    let any: &dyn Any = rule;
    if let Some(rule) = any.downcast_ref::<LatencyRule>() {
        !rule.thresholds.is_empty() && rule.acceptable_count > 0
    } else if let Some(rule) = any.downcast_ref::<ErrorRule>() {
        !rule.operations.is_empty() && rule.acceptable_count > 0
    } else if let Some(rule) = any.downcast_ref::<StallRule>() {
        !rule.operations.is_empty() && !rule.limit.is_zero()
    } else if let Some(rule) = any.downcast_ref::<ConnectionRule>() {
        !rule.counts.is_empty() && rule.counts.values().all(|count| *count > 0)
    } else if let Some(rule) = any.downcast_ref::<BaselineRule>() {
        !rule.operations.is_empty() && rule.factor > 1.0 && rule.pace.warm_up <= rule.pace.history
    } else if let Some(rule) = any.downcast_ref::<ThroughputRule>() {
        !rule.operations.is_empty() && rule.share < 1.0 && rule.pace.warm_up <= rule.pace.history
    } else if let Some(rule) = any.downcast_ref::<ExpressionRule>() {
        !rule.operations.is_empty() && rule.windows > 0
    } else {
        panic!("this target knows no rules of kind {}", rule.kind())
    }
}

fn one_line(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
