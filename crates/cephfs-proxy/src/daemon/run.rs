//! The main thread: handles signals, the listening socket, clients' first packets and ends, and periodic work.

use std::{
    fs, io, mem,
    net::SocketAddr,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::{FileTypeExt, PermissionsExt},
    },
    path::Path,
    ptr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use exposition::Server;

use super::{
    Options, Shared, ceph::Ceph, coherence::Coherence, exporter::Exporter, figures::Figures, lobby::Lobby,
    mounts::Mounts, pool::Pool, sessions::Sessions,
};
use crate::{sys, version_table::VersionTable};

/// The interval of periodic work.
const TICK: Duration = Duration::from_millis(250);
/// How long clients' files may take to be flushed at the end.
const FAREWELL: Duration = Duration::from_secs(20);

const SIGNALS: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// Runs until a signal ends it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let signals = block_signals().context("cannot set up signals")?;
    raise_descriptor_limit();
    let ceph = load(&options.library)?;
    let (readable, versions) =
        VersionTable::create().context("cannot share memory that clients only read: Linux 5.1 or newer is needed")?;
    let shared = Arc::new(Shared {
        ceph,
        version: ceph.version(),
        mounts: Mounts::new(Coherence::new(versions, options.stale)),
        versions: readable,
        sessions: Sessions::open(ceph, &options.state),
        limits: options.limits.clone(),
        figures: Figures::new(options.metrics.is_some()),
        pool: std::sync::OnceLock::new(),
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
                pool.submit(Box::new(move || drop(mount)));
            }
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
fn serve_metrics(address: SocketAddr, shared: &Arc<Shared>) -> anyhow::Result<Server> {
    let server = Server::start(address, Arc::new(Exporter { shared: shared.clone() }))
        .with_context(|| format!("cannot serve figures at {address}"))?;
    tracing::info!("figures are at http://{}/metrics", server.address());
    Ok(server)
}

/// Ends the daemon in order: disconnects all clients, flushes what they wrote, and unmounts everything.
fn farewell(mut lobby: Lobby, shared: &Arc<Shared>, pool: &Arc<Pool>) -> anyhow::Result<()> {
    let until = Instant::now() + FAREWELL;
    lobby.close();
    while Instant::now() < until && !(pool.at_rest() && shared.mounts.count() == 0) {
        for mount in shared.mounts.idle(Duration::ZERO) {
            pool.submit(Box::new(move || drop(mount)));
        }
        thread::sleep(Duration::from_millis(5));
    }
    if shared.mounts.count() > 0 || !pool.at_rest() {
        bail!("the cluster did not take everything within {} s: what was not flushed is lost", FAREWELL.as_secs());
    }
    Ok(())
}

/// Blocks SIGTERM and SIGINT for this thread and those that it starts; returns a descriptor from which to read them.
fn block_signals() -> io::Result<OwnedFd> {
    // SAFETY: an all-zero set is valid, and initialised here.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        sys::owned(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
    }
}

/// Raises the limit of descriptors as far as the kernel permits: each client needs two, and libcephfs has its own.
fn raise_descriptor_limit() {
    // SAFETY: the pointer to the structure is valid.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// The listening socket: systemd's (sd_listen_fds(3)), or a new one at the path.
fn listen(options: &Options) -> anyhow::Result<OwnedFd> {
    let inherited = sd_notify::listen_fds().context("LISTEN_FDS makes no sense")?.next();
    if let Some(fd) = inherited {
        // SAFETY: systemd passed the descriptor to this process, and no other code in it owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // systemd's socket is blocking: the main thread would wait for the next client and ignore the others.
        // SAFETY: the call takes no pointer.
        sys::checked(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }).context("systemd's socket")?;
        return Ok(socket);
    }
    let path = &options.socket;
    let what = || format!("cannot listen on {}", path.display());
    let socket = unix_socket().with_context(what)?;
    let (address, size) = sys::unix_address(path).with_context(what)?;
    if fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
        let probe = unix_socket().with_context(what)?;
        // SAFETY: the address and its size are valid.
        if unsafe { libc::connect(probe.as_raw_fd(), (&raw const address).cast(), size) } == 0 {
            bail!("cannot listen on {}: another daemon does", path.display());
        }
        fs::remove_file(path).with_context(what)?;
    }
    // The umask keeps other users out until the socket has its permissions.
    // SAFETY: umask(2) takes no pointer; the address and its size are valid.
    unsafe {
        let before = libc::umask(0o177);
        let bound = libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size);
        let bound = sys::checked(bound);
        libc::umask(before);
        bound.with_context(what)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(options.mode)).with_context(what)?;
    // SAFETY: the call takes no pointer.
    sys::checked(unsafe { libc::listen(socket.as_raw_fd(), 4096) }).with_context(what)?;
    Ok(socket)
}

fn unix_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointer.
    sys::owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Accepts one client; `None` if none waits.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: null pointers mean that the peer's address is not wanted.
    match sys::owned(unsafe { libc::accept4(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) }) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ECONNABORTED | libc::EINTR)) => Ok(None),
        Err(error) => Err(error),
    }
}
