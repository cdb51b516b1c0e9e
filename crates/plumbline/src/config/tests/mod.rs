//! What the configuration accepts, what it makes of it, and what it says of the rest.

mod aod;
mod captures;
mod compiled_in;
mod conf_d;
mod expression;
mod files;
mod modes;
mod observe;
mod own;
mod properties;
mod refused;
mod refused_rules;
mod scope;
mod when;

use std::{any::Any, collections::BTreeMap, time::Duration};

use diagnose::{latency::LatencyRule, rule::Rule};

use super::{Config, ConfigError, ConfiguredRule, KnownNames};

/// Reads a text as `f.yaml`.
fn parse(text: &str) -> Result<Config, Vec<ConfigError>> {
    Config::parse(text, "f.yaml", &KnownNames::to_this_program())
}

/// Reads a text that is valid.
fn valid(text: &str) -> Config {
    parse(text).unwrap_or_else(|errors| panic!("{text}\nis refused: {errors:#?}"))
}

/// Asserts exactly what is printed of each text, after `f.yaml:`.
fn assert_refused(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let errors = parse(text).err().unwrap_or_default();
        let printed: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let expected: Vec<_> = expected.iter().map(|line| format!("f.yaml:{line}")).collect();
        assert_eq!(printed, expected, "for the text {text:?}");
    }
}

/// The rule as what it is.
fn of_kind<R: Rule>(configured: &ConfiguredRule) -> &R {
    let any: &dyn Any = &*configured.rule;
    any.downcast_ref().unwrap_or_else(|| panic!("{configured:?}"))
}

/// The rule called `name`, which is about latency.
fn latency<'c>(config: &'c Config, name: &str) -> &'c LatencyRule {
    let rule = config.rules.iter().find(|configured| configured.rule.name() == name).expect("the rule is there");
    of_kind(rule)
}

/// The thresholds of the rule called `name`, in milliseconds.
fn thresholds(config: &Config, name: &str) -> BTreeMap<&'static str, u128> {
    latency(config, name).thresholds.iter().map(|(operation, time)| (operation.name(), time.as_millis())).collect()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
