//! The command line: a file per subcommand.

mod check;
pub mod child;
mod doctor;
mod fleet;
mod folder;
mod follow;
mod generate;
mod incidents;
mod io;
mod join;
mod kind;
mod net;
mod prove;
mod ps;
mod record;
mod replay;
mod report;
mod run;
mod snapshot;
mod top;
mod trace;

use std::{
    ffi::OsStr,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    process::ExitCode,
};

use anyhow::{Result, ensure};
use clap::{CommandFactory, Parser, Subcommand};
use model::text::printable;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub use join::is_recording;
#[cfg(test)]
pub use replay::incidents_of_recording;
pub use replay::judge_bytes;

use crate::config::ConfigError;

/// Exit code for a configuration or command line that cannot be used.
pub const EXIT_USAGE: u8 = 2;

#[derive(Parser)]
#[command(name = "plumbline", version, about, max_term_width = 100)]
struct PlumblineArguments {
    /// Log on standard error what the command does; twice for every detail
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Show what each probe can see on this kernel, and what is missing
    Doctor(doctor::DoctorArguments),
    /// Run the daemon: watch always, and write a bundle of each incident
    Run(run::RunArguments),
    /// Check a configuration, and show the rules that it makes
    Check(check::CheckArguments),
    /// Show slow or failed operations as they happen
    Trace(trace::TraceArguments),
    /// Show each operation of a process, a job or a command through all layers
    Follow(follow::FollowArguments),
    /// Measure I/O at each layer: how much, in which sizes, how fast, and for whom
    Io(io::IoArguments),
    /// Show where TCP's sends lose time, connection by connection
    Net(net::NetArguments),
    /// Show mounts, operations and connections in a live view
    Top(top::TopArguments),
    /// List processes: what each is, what it has used, and what it waits for
    Ps(ps::PsArguments),
    /// Record everything that detection sees in one file
    Record(record::RecordArguments),
    /// Judge a recording again, by other rules or another version
    Replay(replay::ReplayArguments),
    /// Make faults of known cause, in namespaces of its own, and check the verdicts
    Prove(prove::ProveArguments),
    #[command(hide = true)]
    ProvePart(prove::PartArguments),
    /// Ask the running daemon for a bundle of the present state
    Snapshot(snapshot::SnapshotArguments),
    /// List incidents, newest first
    Incidents(incidents::IncidentsArguments),
    /// Make one self-contained page of a bundle
    Report(report::ReportArguments),
    /// Join an incident of a client with what its server saw of the same requests
    Join(join::JoinArguments),
    /// Give one verdict over many hosts: is the server slow for all clients, or only for some?
    Fleet(fleet::FleetArguments),
    /// Write man pages and completions
    #[command(hide = true)]
    Generate(generate::GenerateArguments),
}

/// The definition of the command line.
fn command() -> clap::Command {
    PlumblineArguments::command()
}

/// Parses the command line and runs the subcommand. Prints an error in one line.
pub fn main() -> ExitCode {
    let PlumblineArguments { verbose, command } = PlumblineArguments::parse();
    // libbpf's own messages are details. `run` always keeps a log.
    probes::log_libbpf();
    if verbose > 0 {
        crate::daemon::log::start(verbose);
    }
    let result = match command {
        CliCommand::Doctor(arguments) => doctor::run(&arguments),
        CliCommand::Run(arguments) => run::run(arguments, verbose),
        CliCommand::Check(arguments) => check::run(&arguments),
        CliCommand::Trace(arguments) => trace::run(&arguments),
        CliCommand::Follow(arguments) => follow::run(&arguments),
        CliCommand::Io(arguments) => io::run(&arguments),
        CliCommand::Net(arguments) => net::run(&arguments),
        CliCommand::Top(arguments) => top::run(&arguments),
        CliCommand::Ps(arguments) => ps::run(&arguments),
        CliCommand::Record(arguments) => record::run(&arguments),
        CliCommand::Replay(arguments) => replay::run(&arguments),
        CliCommand::Prove(arguments) => prove::run(&arguments),
        CliCommand::ProvePart(arguments) => prove::part(&arguments),
        CliCommand::Snapshot(arguments) => snapshot::run(&arguments),
        CliCommand::Incidents(arguments) => incidents::run(&arguments),
        CliCommand::Report(arguments) => report::run(&arguments),
        CliCommand::Join(arguments) => join::run(&arguments),
        CliCommand::Fleet(arguments) => fleet::run(&arguments),
        CliCommand::Generate(arguments) => generate::run(&arguments, self::command()),
    };
    match result {
        Ok(code) => code,
        // The reader of the output has gone, so an error would reach nobody. Any other broken pipe is an error.
        Err(error) if is_broken_pipe(&error) && has_no_reader(&std::io::stdout()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plumbline: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |kind| kind == std::io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| {
        // serde_json does not return the error that it wraps as its source.
        let json = cause.downcast_ref().and_then(serde_json::Error::io_error_kind);
        json.or_else(|| cause.downcast_ref().map(std::io::Error::kind)).is_some_and(is_pipe)
    })
}

fn has_no_reader(pipe: &impl AsFd) -> bool {
    let mut watched = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    let polled = poll(&mut watched, PollTimeout::ZERO);
    polled.is_ok() && watched.iter().filter_map(PollFd::revents).any(|found| found.contains(PollFlags::POLLERR))
}

/// Refuses a command that may not load BPF programs; the error says what to do.
pub fn permitted() -> Result<()> {
    ensure!(probes::may_load(), "not permitted to load BPF programs; {}", probes::PERMISSION);
    Ok(())
}

/// A mount point of the command line without the trailing slash that a shell adds.
fn mount_point(path: &OsStr) -> String {
    let path = printable(path.as_bytes());
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { path } else { trimmed.to_owned() }
}

/// Prints the errors of an invalid configuration, one per line; exit code 2.
fn config_errors(errors: &[ConfigError]) -> ExitCode {
    errors.iter().for_each(|error| eprintln!("plumbline: {error}"));
    ExitCode::from(EXIT_USAGE)
}

/// Prints the error of a command line that parses but is invalid, in one line; exit code 2.
pub fn usage_error(message: impl std::fmt::Display) -> ExitCode {
    eprintln!("plumbline: {message}");
    ExitCode::from(EXIT_USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pipe_whose_reader_has_gone_has_none() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!has_no_reader(&writer));
        drop(reader);
        assert!(has_no_reader(&writer));
        assert!(!has_no_reader(&std::fs::File::open("/dev/null").unwrap()));
    }
}
