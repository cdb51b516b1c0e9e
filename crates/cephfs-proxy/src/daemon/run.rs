//! The main thread: handles signals, the listening socket, clients' first packets and ends, and periodic work.

use std::{
    fs, io,
    net::SocketAddr,
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::fs::{FileTypeExt, PermissionsExt},
    },
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use exposition::HttpServer;
use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType},
    process::{Resource, Rlimit},
};

use super::{
    DaemonOptions, DaemonState, ceph::Ceph, coherence::Coherence, exporter::ProxyExporter, figures::ProxyCounters,
    heap::FreedMemory, lobby::Lobby, mounts::SharedMounts, pool::Pool, sessions::Sessions, share::WorkerShare,
};
use crate::{sys, version_table::VersionTable};

/// The interval of periodic work.
const TICK: Duration = Duration::from_millis(250);
/// How long clients' files may take to be flushed at the end.
const FAREWELL: Duration = Duration::from_secs(20);

const SIGNALS: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// Runs until a signal ends it.
pub fn run(options: &DaemonOptions) -> anyhow::Result<()> {
    let signals = block_signals().context("cannot set up signals")?;
    raise_descriptor_limit();
    let ceph = load(&options.library)?;
    let (readable, versions) =
        VersionTable::create().context("cannot share memory that clients only read: Linux 5.1 or newer is needed")?;
    let shared = Arc::new(DaemonState {
        ceph,
        version: ceph.version(),
        mounts: SharedMounts::new(Coherence::new(versions, options.stale), options.limits.workers),
        versions: readable,
        sessions: Sessions::open(ceph, &options.state),
        limits: options.limits.clone(),
        figures: ProxyCounters::new(options.metrics.is_some()),
        pool: std::sync::OnceLock::new(),
        freed: FreedMemory::default(),
        preparing: WorkerShare::new(options.limits.workers),
    });
    let pool = Pool::start(shared.clone()).context("cannot start the workers")?;
    let _ = shared.pool.set(Arc::downgrade(&pool));
    let listener = listen(options)?;
    let _metrics = options.metrics.map(|address| serve_metrics(address, &shared)).transpose()?;
    let mut lobby = Lobby::new(shared.clone(), pool.clone(), options.users.clone()).context("cannot use epoll(7)")?;
    lobby.watch(&signals, SIGNALS)?;
    lobby.watch(&listener, LISTENER)?;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tracing::info!("{} with {}", options.socket.display(), shared.version.text.to_string_lossy());

    let mut listening = true;
    let mut due = Instant::now() + TICK;
    loop {
        for event in lobby.wait(TICK)? {
            match event {
                SIGNALS => {
                    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
                    return farewell(lobby, &shared, &pool);
                }
                LISTENER => {
                    if let Err(error) = lobby.accept(&listener) {
                        tracing::warn!("cannot accept clients for a moment: {error}");
                        lobby.forget(&listener);
                        listening = false;
                    }
                }
                client => lobby.see(client),
            }
        }
        if Instant::now() >= due {
            due = Instant::now() + TICK;
            lobby.tick();
            for mount in shared.mounts.idle(options.linger) {
                pool.unmount(mount);
            }
            pool.trim();
            if !listening {
                lobby.watch(&listener, LISTENER)?;
                listening = true;
            }
        }
    }
}

/// Loads libcephfs on a thread of its own: its initialisers touch most of a MiB of stack, which the main thread would
/// keep.
fn load(library: &Path) -> anyhow::Result<&'static Ceph> {
    let library = library.to_owned();
    let loading = thread::Builder::new().stack_size(8 << 20).spawn(move || Ceph::load(&library))?;
    loading.join().unwrap_or_else(|_| bail!("cannot load libcephfs"))
}

/// Starts the metrics server, which runs until it is dropped.
fn serve_metrics(address: SocketAddr, shared: &Arc<DaemonState>) -> anyhow::Result<HttpServer> {
    let server = HttpServer::start(address, Arc::new(ProxyExporter { shared: shared.clone() }))
        .with_context(|| format!("cannot serve figures at {address}"))?;
    tracing::info!("figures are at http://{}/metrics", server.address());
    Ok(server)
}

/// Ends the daemon in order: disconnects all clients, flushes what they wrote, and unmounts everything.
fn farewell(mut lobby: Lobby, shared: &Arc<DaemonState>, pool: &Arc<Pool>) -> anyhow::Result<()> {
    let until = Instant::now() + FAREWELL;
    lobby.close();
    while Instant::now() < until && !(pool.at_rest() && shared.mounts.count() == 0) {
        for mount in shared.mounts.idle(Duration::ZERO) {
            pool.unmount(mount);
        }
        thread::sleep(Duration::from_millis(5));
    }
    if shared.mounts.count() > 0 || !pool.at_rest() {
        bail!("the cluster did not take everything within {} s: what was not flushed is lost", FAREWELL.as_secs());
    }
    Ok(())
}

/// Blocks SIGTERM and SIGINT for this thread and those that it starts; returns a descriptor from which to read them.
fn block_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Raises the limit of descriptors as far as the kernel permits: each client needs two, and libcephfs has its own.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The listening socket: systemd's (sd_listen_fds(3)), or a new one at the path.
fn listen(options: &DaemonOptions) -> anyhow::Result<OwnedFd> {
    let inherited = sd_notify::listen_fds().context("LISTEN_FDS makes no sense")?.next();
    if let Some(fd) = inherited {
        // SAFETY: systemd passed the descriptor to this process, and no other code in it owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // systemd's socket is blocking: the main thread would wait for the next client and ignore the others.
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK).context("systemd's socket")?;
        return Ok(socket);
    }
    let path = &options.socket;
    let what = || format!("cannot listen on {}", path.display());
    let socket = unix_socket().with_context(what)?;
    let address = sys::unix_address(path).with_context(what)?;
    if fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
        let probe = unix_socket().with_context(what)?;
        if rustix::net::connect(&probe, &address).is_ok() {
            bail!("cannot listen on {}: another daemon does", path.display());
        }
        fs::remove_file(path).with_context(what)?;
    }
    // The umask keeps other users out until the socket has its permissions.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = rustix::net::bind(&socket, &address);
    rustix::process::umask(before);
    bound.with_context(what)?;
    fs::set_permissions(path, fs::Permissions::from_mode(options.mode)).with_context(what)?;
    rustix::net::listen(&socket, 4096).with_context(what)?;
    Ok(socket)
}

fn unix_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Accepts one client; `None` if none waits.
pub fn accept(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
