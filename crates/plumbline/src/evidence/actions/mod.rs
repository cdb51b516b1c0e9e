//! The actions: what can be collected besides events. Adding one is a function and a line in [`ACTIONS`].
//!
//! None of them touches a watched mount: no stat, open, readdir or statfs on it, and nothing that makes the kernel do
//! so. What is known of a mount without that comes from BPF iterators and /proc.

mod commands;
mod files;
mod kernel_log;
mod mounts;
mod open_files;
mod processes;
mod procfs;
mod sockets;

use std::io::Write;

use anyhow::Result;

use super::output::Output;
use super::{ActionSpec, Scope, command};

/// Something that the program knows how to collect.
pub struct Action {
    /// Its name in the configuration and, with `.txt`, in the bundle.
    pub name: &'static str,
    /// What it reads or runs, for the manifest.
    pub source: &'static str,
    collect: fn(&Task, &mut Output) -> Result<()>,
}

/// What an action is told.
pub struct Task<'a> {
    /// What the incident is about.
    pub scope: &'a Scope,
    /// Arguments from the configuration.
    pub args: &'a [String],
}

/// Every built-in action. Any other name is a command of the user's own.
pub const ACTIONS: &[Action] = &[
    Action { name: "dmesg", source: "/dev/kmsg", collect: kernel_log::dmesg },
    Action { name: "journalctl", source: commands::JOURNALCTL, collect: commands::journalctl },
    Action { name: "syslogs", source: "/var/log/syslog /var/log/messages", collect: files::syslogs },
    Action { name: "debugdata", source: "/proc/fs/cifs/DebugData", collect: files::debugdata },
    Action { name: "stats", source: "/proc/fs/cifs/Stats /proc/net/rpc/nfs", collect: files::stats },
    Action { name: "smbinfo", source: "/proc/fs/cifs /proc/self/mountinfo", collect: files::smbinfo },
    Action { name: "mounts", source: "/proc/self/mountinfo", collect: files::mounts },
    Action { name: "mountstats", source: "/proc/self/mountstats", collect: files::mountstats },
    Action {
        name: "processes",
        source: "BPF iterators over tasks, else /proc/PID/{stat,status,io,wchan,cgroup,stack}",
        collect: processes::processes,
    },
    Action {
        name: "open_files",
        source: "BPF iterator over open files, else /proc/PID/{fd,fdinfo}",
        collect: open_files::open_files,
    },
    Action { name: "sockets", source: "/proc/net/tcp /proc/net/tcp6; ss", collect: sockets::sockets },
];

/// Runs the action of this name, or the command in its arguments.
///
/// # Errors
/// Why it could not do it, or could not do all of it.
pub fn run(name: &str, task: &Task, out: &mut Output) -> Result<()> {
    match find(name) {
        Some(action) => (action.collect)(task, out),
        None => command::run(task.args, out),
    }
}

/// What an action reads or runs, for the manifest.
pub fn describe(spec: &ActionSpec) -> String {
    match find(&spec.name) {
        Some(action) if spec.args.is_empty() => action.source.to_owned(),
        Some(action) => format!("{} {}", action.source, command::shown(&spec.args)),
        None => command::shown(&spec.args),
    }
}

fn find(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// A heading between parts of one output.
fn heading(out: &mut Output, text: &str) -> std::io::Result<()> {
    let gap = if out.bytes() > 0 { "\n" } else { "" };
    writeln!(out, "{gap}==> {text} <==")
}
