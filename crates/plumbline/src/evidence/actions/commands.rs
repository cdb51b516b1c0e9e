//! Actions that run a program.

use std::path::Path;

use anyhow::Result;

use super::ActionInput;
use crate::evidence::command;
use crate::evidence::output::Output;
use crate::watched;

/// The journal of the last minutes.
pub const JOURNALCTL: &str = "journalctl --no-pager --output=short-iso-precise --since=-10min --lines=5000";

/// The journal's entries of the last minutes.
pub fn journalctl(task: &ActionInput, out: &mut Output) -> Result<()> {
    watched::refuse(Path::new("/var/log/journal"))?;
    let argv: Vec<String> = JOURNALCTL.split(' ').map(str::to_owned).chain(task.args.iter().cloned()).collect();
    command::run(&argv, out)
}
