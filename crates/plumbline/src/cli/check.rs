//! `plumbline check`: is this configuration good?

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use diagnose::rule::{Pace, Rule};
use probes::mounts::Mounts;

use super::EXIT_USAGE;
use crate::{config, watched};

#[derive(clap::Args)]
pub struct Arguments {
    /// The file; without one, the compiled-in default is checked
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mounts = Mounts::current().unwrap_or_default();
    match config::check(arguments.file.as_deref(), &watched::remote_mount_points(&mounts)) {
        Ok(config) => {
            let mut out = std::io::stdout().lock();
            for notice in &config.notices {
                writeln!(out, "note: {notice}")?;
            }
            for configured in &config.rules {
                writeln!(out, "{}", told(&configured.rule, config.watch_interval))?;
            }
            for rule in &config.not_yet {
                writeln!(
                    out,
                    "{}: {} of {}, which this version does not detect yet",
                    rule.name, rule.kind, rule.probe
                )?;
            }
            writeln!(out, "ok")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => {
            for error in errors {
                eprintln!("{error}");
            }
            Ok(ExitCode::from(EXIT_USAGE))
        }
    }
}

/// A rule in words.
fn told(rule: &Rule, interval: Duration) -> String {
    let (name, probe) = (rule.name(), rule.protocol().name);
    match rule {
        Rule::Latency(rule) => format!(
            "{name}: {} operations of {probe}, {} or more over their threshold in {interval:?}, or one of {:?}",
            rule.thresholds.len(),
            rule.acceptable_count,
            rule.ceiling,
        ),
        Rule::Error(rule) => {
            let share = rule.acceptable_percent.map(|least| format!(" and {least} % of all")).unwrap_or_default();
            format!(
                "{name}: {} operations of {probe}, {} or more failures{share} in {interval:?}",
                rule.operations.len(),
                rule.acceptable_count
            )
        }
        Rule::Stall(rule) => {
            format!(
                "{name}: {} operations of {probe}, one that has not returned after {:?}",
                rule.operations.len(),
                rule.limit
            )
        }
        Rule::Connection(rule) => {
            format!("{name}: {} kinds of trouble with connections, in {interval:?}", rule.counts.len())
        }
        Rule::Baseline(rule) => format!(
            "{name}: {} operations of {probe}, {} times their own recent normal and {:?} more, for {}",
            rule.operations.len(),
            rule.factor,
            rule.least_shift,
            paced(rule.pace, interval),
        ),
        Rule::Throughput(rule) => format!(
            "{name}: {} operations of {probe}, below {:.0} % of their own recent normal throughput, for {}",
            rule.operations.len(),
            rule.share * 100.0,
            paced(rule.pace, interval),
        ),
    }
}

fn paced(pace: Pace, interval: Duration) -> String {
    format!("{} windows of {interval:?} with {} operations or more", pace.sustained, pace.operations)
}
