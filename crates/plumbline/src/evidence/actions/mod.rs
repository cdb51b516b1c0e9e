//! The built-in actions, which collect evidence. A new one needs a function and a line in [`ACTIONS`].
//!
//! No action touches a watched mount: no stat, open, readdir or statfs on it, and no call that makes the kernel do so.
//! BPF iterators and /proc tell about a mount without that.

mod commands;
mod files;
mod kernel_log;
mod mounts;
mod open_files;
mod processes;
pub mod procfs;
mod sockets;

use std::io::Write;

use anyhow::Result;

use super::output::Output;
use super::own::{self, CommandBounds};
use super::{ActionSpec, IncidentScope, command};

/// A built-in action.
pub struct Action {
    /// Its name in the configuration and, with `.txt`, in the bundle.
    pub name: &'static str,
    /// The files that it reads or the command that it runs, for the manifest.
    pub source: &'static str,
    collect: fn(&ActionInput, &mut Output) -> Result<()>,
}

/// The input of an action.
pub struct ActionInput<'a> {
    /// What the action limits itself to.
    pub scope: &'a IncidentScope,
    /// Arguments from the configuration.
    pub args: &'a [String],
    /// The input and limits of a user's command.
    pub own: CommandBounds<'a>,
}

/// All built-in actions. Any other name in the configuration is a user's command.
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

/// Runs the built-in action of this name, or else the command in the arguments.
///
/// # Errors
/// If the action failed, at least in part.
pub fn run(name: &str, task: &ActionInput, out: &mut Output) -> Result<()> {
    match find(name) {
        Some(action) => (action.collect)(task, out),
        None => own::run(task.args, &task.own, out),
    }
}

/// The files that an action reads or the command that it runs, for the manifest.
pub fn describe(spec: &ActionSpec) -> String {
    match find(&spec.name) {
        Some(action) if spec.args.is_empty() => action.source.to_owned(),
        Some(action) => format!("{} {}", action.source, command::shown(&spec.args)),
        None => command::shown(&spec.args),
    }
}

/// Whether it is a user's command.
pub fn is_own(spec: &ActionSpec) -> bool {
    find(&spec.name).is_none()
}

fn find(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// A heading between parts of one output.
fn heading(out: &mut Output, text: &str) -> std::io::Result<()> {
    let gap = if out.bytes() > 0 { "\n" } else { "" };
    writeln!(out, "{gap}==> {text} <==")
}
