//! libcephfsd: holds mounts of CephFS for processes that load libcephfs_proxy.so.2.

use std::{
    env,
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

use cephfs_proxy::daemon::{self, DaemonOptions, Limits};
use clap::{CommandFactory, Parser};

/// Holds mounts of CephFS for processes that load libcephfs_proxy.so.2, such as Samba's with `ceph_new:proxy = yes`.
///
/// Each option but -v and --take-over has an environment variable, because cephadm starts the daemon without arguments; an argument comes first. `-s`, `--socket` and
/// LIBCEPHFSD_SOCKET are also those of Ceph's own libcephfsd.
#[derive(Parser)]
#[command(name = "libcephfsd", version)]
struct DaemonArguments {
    /// Where to listen, unless systemd hands over a socket
    #[arg(short, long, default_value = "/run/libcephfsd.sock", env = "LIBCEPHFSD_SOCKET", hide_env_values = true)]
    socket: PathBuf,
    /// Permissions of the socket, octal
    #[arg(long, default_value = "600", value_parser = |text: &str| u32::from_str_radix(text, 8), env = "LIBCEPHFSD_SOCKET_MODE", hide_env_values = true)]
    socket_mode: u32,
    /// A user ID that may connect, and send requests under that ID; root may always connect, and use any ID. May be repeated, or a list with commas
    #[arg(
        long = "allow-user",
        value_name = "UID",
        value_delimiter = ',',
        env = "LIBCEPHFSD_ALLOW_USER",
        hide_env_values = true
    )]
    allow_user: Vec<u32>,
    /// The libcephfs to load: 16.2 or newer
    #[arg(long, default_value = "libcephfs.so.2", env = "LIBCEPHFSD_LIBCEPHFS", hide_env_values = true)]
    libcephfs: PathBuf,
    /// Directory for the state that the next daemon needs to end this daemon's sessions with the cluster, if this one is killed
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "/var/lib/libcephfsd",
        env = "LIBCEPHFSD_STATE",
        hide_env_values = true
    )]
    state: PathBuf,
    /// Take over from the running daemon of the same --state, with its socket and mounts: clients see a short pause, and
    /// nothing is lost. The signal SIGUSR2 has a daemon start the program that is installed with this option. If no daemon runs, start as usual
    #[arg(long)]
    take_over: bool,
    /// How late, in milliseconds, changes by other clients of the cluster may be seen; 0: at once
    #[arg(long, value_name = "MS", default_value_t = 0, env = "LIBCEPHFSD_STALE_MS", hide_env_values = true)]
    stale_ms: u32,
    /// How long, in seconds, an unused mount is kept
    #[arg(long, default_value_t = 10, env = "LIBCEPHFSD_LINGER", hide_env_values = true)]
    linger: u64,
    /// The most connections at the same time
    #[arg(long, default_value_t = 4096, env = "LIBCEPHFSD_MAX_CLIENTS", hide_env_values = true)]
    max_clients: usize,
    /// The most mounts at the same time, each of which has a process of its own; 1024 at most. A user who is not root may
    /// have a quarter of those that are free
    #[arg(long, default_value_t = 64, env = "LIBCEPHFSD_MAX_MOUNTS", hide_env_values = true)]
    max_mounts: usize,
    /// The most inodes, files, directories, identities and mounts, all together, that one connection may hold
    #[arg(long, default_value_t = 262_144, env = "LIBCEPHFSD_MAX_HANDLES", hide_env_values = true)]
    max_handles: usize,
    /// The most memory, in MiB, for what one connection holds: a mount counts as 16 MiB, an open directory as 1/2 MiB, an inode as 8 KiB, a file
    /// or an identity as 1 KiB and its groups
    #[arg(long, value_name = "MIB", default_value_t = 2048, env = "LIBCEPHFSD_MAX_MEMORY", hide_env_values = true)]
    max_memory: usize,
    /// Threads that answer the requests of one mount's clients. A client may have a quarter of those that are free
    #[arg(long, default_value_t = 64, env = "LIBCEPHFSD_MAX_WORKERS", hide_env_values = true)]
    max_workers: usize,
    /// Serve metrics at http://ADDRESS/metrics to anyone who can reach ADDRESS, such as 127.0.0.1:9438. Off by default
    #[arg(long, value_name = "ADDRESS", env = "LIBCEPHFSD_METRICS", hide_env_values = true)]
    metrics: Option<SocketAddr>,
    /// The most files of one mount that the cluster delegates to this daemon, so that it can cache their attributes; 0: none
    #[arg(long, default_value_t = 4096, env = "LIBCEPHFSD_MAX_DELEGATIONS", hide_env_values = true)]
    max_delegations: usize,
    /// The most memory, in MiB, for file data of one mount, which its clients read without a request; 0: none. Needs delegations, so --stale-ms or
    /// --max-delegations 0 disables it
    #[arg(long, value_name = "MIB", default_value_t = 512, env = "LIBCEPHFSD_DATA_CACHE", hide_env_values = true)]
    data_cache: usize,
    /// Log more; given twice, log everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Write the man page to standard output, and exit; `make install-proxy` installs it
    #[arg(long, hide = true)]
    man: bool,
    /// Start again with the other options, as no child of whoever has started this process
    #[arg(long, hide = true)]
    detach: bool,
    /// Serve the clients of this place, as a process below the daemon that was started
    #[arg(long, hide = true, requires = "slot")]
    place: Option<u64>,
    /// Where such a process has its figures
    #[arg(long, hide = true)]
    slot: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = DaemonArguments::parse();
    if arguments.man {
        return match clap_mangen::Man::new(DaemonArguments::command()).section("8").render(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    if arguments.detach {
        let others = env::args_os().skip(1).filter(|argument| argument != "--detach");
        return match Command::new("/proc/self/exe").arg0("libcephfsd").args(others).spawn() {
            Ok(_) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let level = match arguments.verbose {
        0 => tracing::Level::INFO,
        1 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .init();
    let options = DaemonOptions {
        socket: arguments.socket,
        mode: arguments.socket_mode & 0o777,
        library: arguments.libcephfs,
        users: arguments.allow_user,
        take_over: arguments.take_over,
        state: arguments.state,
        stale: arguments.stale_ms,
        linger: Duration::from_secs(arguments.linger),
        metrics: arguments.metrics,
        limits: Limits {
            clients: arguments.max_clients.max(1),
            mounts: arguments.max_mounts.clamp(1, daemon::MOST_MOUNTS),
            handles: arguments.max_handles.max(16),
            memory: arguments.max_memory.max(20).saturating_mul(1 << 20),
            workers: arguments.max_workers.max(4),
            delegations: arguments.max_delegations,
            data: arguments.data_cache.saturating_mul(1 << 20),
        },
    };
    let result = match (arguments.place, arguments.slot) {
        (Some(place), Some(slot)) => daemon::run_below(&options, place, slot),
        _ => daemon::run(&options),
    };
    if let Err(error) = &result {
        tracing::error!("{error:#}");
    }
    // Workers may still be in a call of libcephfs that does not return. exit(3) would run libcephfs's destructors, which destroy objects that the
    // workers still use.
    // SAFETY: the process ends.
    unsafe { libc::_exit(result.is_err().into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_named_as_for_cephs_own_daemon() {
        for arguments in [&["-s", "/run/x"][..], &["-s/run/x"], &["--socket", "/run/x"], &["--socket=/run/x"]] {
            let parsed = DaemonArguments::try_parse_from(std::iter::once(&"libcephfsd").chain(arguments));
            assert_eq!(parsed.map(|arguments| arguments.socket).ok(), Some(PathBuf::from("/run/x")), "{arguments:?}");
        }
    }

    #[test]
    fn each_option_has_its_environment_variable() {
        let command = DaemonArguments::command();
        let of_one_start =
            |option: &clap::Arg| option.is_hide_set() || ["verbose", "take_over"].contains(&option.get_id().as_str());
        for option in command.get_arguments().filter(|option| !of_one_start(option)) {
            let name = option.get_long().map(|long| format!("LIBCEPHFSD_{}", long.to_uppercase().replace('-', "_")));
            assert_eq!(option.get_env().map(|env| env.to_string_lossy().into_owned()), name);
        }
    }

    #[test]
    fn several_users_fit_into_one_variable() {
        let parsed = DaemonArguments::try_parse_from(["libcephfsd", "--allow-user", "1000,1001", "--allow-user=1002"]);
        assert_eq!(parsed.map(|arguments| arguments.allow_user).ok(), Some(vec![1000, 1001, 1002]));
    }
}
