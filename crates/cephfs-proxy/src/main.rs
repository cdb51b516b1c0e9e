//! libcephfsd: holds mounts of CephFS for processes that load libcephfs_proxy.so.2.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use cephfs_proxy::daemon::{self, Limits, Options};
use clap::{CommandFactory, Parser};

/// Holds mounts of CephFS for processes that load libcephfs_proxy.so.2, such as Samba's with `ceph_new:proxy = yes`.
#[derive(Parser)]
#[command(name = "libcephfsd", version)]
struct Arguments {
    /// Where to listen, unless systemd hands over a socket
    #[arg(long, default_value = "/run/libcephfsd.sock")]
    socket: PathBuf,
    /// Permissions of the socket, octal
    #[arg(long, default_value = "600", value_parser = |text: &str| u32::from_str_radix(text, 8))]
    socket_mode: u32,
    /// A user who may connect, by number, and ask in their own name; root always may, in anybody's. Again for another
    #[arg(long = "allow-user", value_name = "UID")]
    allow_user: Vec<u32>,
    /// The libcephfs to load: 16.2 or newer
    #[arg(long, default_value = "libcephfs.so.2")]
    libcephfs: PathBuf,
    /// A folder for what the next daemon has to know to end this one's sessions with the cluster, should it be killed
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/libcephfsd")]
    state: PathBuf,
    /// Milliseconds by which what other clients of the cluster change may be seen late, at most; 0: not at all
    #[arg(long, value_name = "MS", default_value_t = 0)]
    stale_ms: u32,
    /// Seconds that a mount stays when nobody uses it any more
    #[arg(long, default_value_t = 10)]
    linger: u64,
    /// Connections at once
    #[arg(long, default_value_t = 4096)]
    max_clients: usize,
    /// Inodes, files, directories, identities and mounts that one connection may hold
    #[arg(long, default_value_t = 262_144)]
    max_handles: usize,
    /// MiB that what one connection holds may take: 16 for a mount, 1/2 for an open directory, 8 KiB for an inode, 1 KiB for a file or an
    /// identity, and its groups
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    max_memory: usize,
    /// Threads that answer requests
    #[arg(long, default_value_t = 64)]
    max_workers: usize,
    /// Serve figures at http://ADDRESS/metrics, to whoever asks: 127.0.0.1:9438, say. Off when left out
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Files of one mount that are delegated to this daemon, so that their attributes can be cached; 0: none
    #[arg(long, default_value_t = 4096)]
    max_delegations: usize,
    /// More about what happens; twice: everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Write the man page to standard output, and end: `make install-proxy` keeps it
    #[arg(long, hide = true)]
    man: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.man {
        return match clap_mangen::Man::new(Arguments::command()).section("8").render(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
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
        .with_target(false)
        .without_time()
        .init();
    let options = Options {
        socket: arguments.socket,
        mode: arguments.socket_mode & 0o777,
        library: arguments.libcephfs,
        users: arguments.allow_user,
        state: arguments.state,
        stale: arguments.stale_ms,
        linger: Duration::from_secs(arguments.linger),
        metrics: arguments.metrics,
        limits: Limits {
            clients: arguments.max_clients.max(1),
            handles: arguments.max_handles.max(16),
            memory: arguments.max_memory.max(20).saturating_mul(1 << 20),
            workers: arguments.max_workers.max(4),
            delegations: arguments.max_delegations,
        },
    };
    match daemon::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
