//! `plumbline check`: checks a configuration, and shows the rules that it makes.

mod explain;

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Result;
use model::text::printable;
use probes::{mounts::Mounts, own::Definition};

use super::{EXIT_USAGE, usage_error};
use crate::{config, view::table::Wide, watched};
use explain::DescribedOperation;

#[derive(clap::Args)]
pub struct CheckArguments {
    /// The file [default: /etc/plumbline/plumbline.yaml where it exists, else the compiled-in configuration]
    file: Option<PathBuf>,
    /// Which rules would judge this operation, and why others would not: `probe=nfs op=WRITE mount=/mnt/a process=postgres`; also
    /// server, fstype, user, cgroup, container, namespace, pod, workload, job, file
    #[arg(long, value_name = "OPERATION")]
    explain: Option<String>,
    /// One JSON array of what --explain says
    #[arg(long, requires = "explain")]
    json: bool,
    #[command(flatten)]
    wide: Wide,
}

/// Why this kernel cannot see one of the site's own operations, with the position in the configuration.
fn refusal(operation: &Definition) -> Option<String> {
    let probes::own::MissingInKernel { at: (line, column), text, fix } = probes::own::refusal(operation)?;
    let fix = if fix.is_empty() { fix } else { format!("; {fix}") };
    Some(format!("{}:{line}:{column}: {text}{fix}", printable(operation.file.as_bytes())))
}

pub fn run(arguments: &CheckArguments) -> Result<ExitCode> {
    let mounts = Mounts::current().unwrap_or_default();
    let asked = arguments.explain.as_deref().map(|text| DescribedOperation::parse(text, &mounts)).transpose();
    let asked = match asked {
        Ok(asked) => asked,
        Err(problem) => return Ok(usage_error(format!("--explain: {problem}"))),
    };
    let file = arguments.file.clone().or_else(config::installed);
    match config::check(file.as_deref(), &watched::never_touched()) {
        Ok(config) => {
            let refused: Vec<_> = config.operations.iter().filter_map(refusal).collect();
            if !refused.is_empty() {
                refused.iter().for_each(|line| eprintln!("{line}"));
                return Ok(ExitCode::from(EXIT_USAGE));
            }
            let mut out = std::io::stdout().lock();
            if let Some(asked) = asked.as_ref().filter(|_| arguments.json) {
                serde_json::to_writer_pretty(&mut out, &asked.explain(&config))?;
                writeln!(out)?;
                return Ok(ExitCode::SUCCESS);
            }
            writeln!(out, "configuration: {}", config::name_of(file.as_deref()))?;
            for file in config.files.iter().skip(1) {
                writeln!(out, "merged into it: {}", printable(file.as_bytes()))?;
            }
            if let Some(asked) = asked {
                asked.print(&mut out, &asked.explain(&config), arguments.wide.room())?;
                return Ok(ExitCode::SUCCESS);
            }
            for notice in &config.notices {
                writeln!(out, "note: {notice}")?;
            }
            for configured in &config.rules {
                let scope = Some(configured.scope.to_string()).filter(|scope| !scope.is_empty());
                let scope = scope.map(|scope| format!("; {scope}")).unwrap_or_default();
                let when = configured.when.as_ref().map(|when| format!("; {when}")).unwrap_or_default();
                writeln!(out, "{}{scope}{when}", configured.rule.describe(config.watch_interval))?;
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
