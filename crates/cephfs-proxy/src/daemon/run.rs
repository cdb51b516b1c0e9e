//! The main thread: signals, the listening socket, first packets and ends of clients, and what is due now and then.

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

/// How often it looks whether something is due.
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

/// On a thread of its own: libcephfs's initialisers touch most of a MiB of stack, which the main thread would keep.
fn load(library: &Path) -> anyhow::Result<&'static Ceph> {
    let library = library.to_owned();
    let loading = thread::Builder::new().stack_size(8 << 20).spawn(move || Ceph::load(&library))?;
    loading.join().unwrap_or_else(|_| bail!("cannot load libcephfs"))
}

/// Figures, until it is dropped.
fn serve_metrics(address: SocketAddr, shared: &Arc<Shared>) -> anyhow::Result<Server> {
    let server = Server::start(address, Arc::new(Exporter { shared: shared.clone() }))
        .with_context(|| format!("cannot serve figures at {address}"))?;
    tracing::info!("figures are at http://{}/metrics", server.address());
    Ok(server)
}

/// All clients go; what they wrote is flushed; all mounts are given back.
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

/// SIGTERM and SIGINT, as a descriptor, for this and every later thread.
fn block_signals() -> io::Result<OwnedFd> {
    // SAFETY: an all-zero set is valid, and filled here.
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

/// Two descriptors a client, and libcephfs's own: as many as the kernel lets us have.
fn raise_descriptor_limit() {
    // SAFETY: a plain struct, read and written.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// systemd's socket (sd_listen_fds(3)), or one of our own at the path.
fn listen(options: &Options) -> anyhow::Result<OwnedFd> {
    let inherited = sd_notify::listen_fds().context("LISTEN_FDS makes no sense")?.next();
    if let Some(fd) = inherited {
        // SAFETY: systemd passed it to us, and nobody else in here has it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // It blocks, as it comes: the main thread would wait for the next client and do nothing for those that are here.
        // SAFETY: no pointers.
        sys::checked(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }).context("systemd's socket")?;
        return Ok(socket);
    }
    let path = &options.socket;
    let what = || format!("cannot listen on {}", path.display());
    let socket = unix_socket().with_context(what)?;
    let (address, size) = sys::unix_address(path).with_context(what)?;
    if fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
        let probe = unix_socket().with_context(what)?;
        // SAFETY: a valid address.
        if unsafe { libc::connect(probe.as_raw_fd(), (&raw const address).cast(), size) } == 0 {
            bail!("cannot listen on {}: another daemon does", path.display());
        }
        fs::remove_file(path).with_context(what)?;
    }
    // Nobody gets in before its permissions are right.
    // SAFETY: no pointers; then a valid address.
    unsafe {
        let before = libc::umask(0o177);
        let bound = libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size);
        let bound = sys::checked(bound);
        libc::umask(before);
        bound.with_context(what)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(options.mode)).with_context(what)?;
    // SAFETY: no pointers.
    sys::checked(unsafe { libc::listen(socket.as_raw_fd(), 4096) }).with_context(what)?;
    Ok(socket)
}

fn unix_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    sys::owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Accepts one client; none is there any more if that would block.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is asked for.
    match sys::owned(unsafe { libc::accept4(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) }) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ECONNABORTED | libc::EINTR)) => Ok(None),
        Err(error) => Err(error),
    }
}
