//! The main thread of a process below the front: receives clients from the front, notices when they leave, and does periodic work. It never calls
//! libcephfs, which may block. Workers call libcephfs.

use std::{
    fs::File,
    io::Write,
    os::fd::AsFd,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::{fs::MemfdFlags, process::Signal};

use super::{
    DaemonOptions, DaemonState, FAREWELL, TICK,
    ceph::Ceph,
    clients::Clients,
    coherence::Coherence,
    control::{FrontControl, ProcessStart, read_configuration},
    figures::{ProxyCounters, RefusalReason},
    heap::FreedMemory,
    mounts::MountPlace,
    pool::Pool,
    sessions::{self, SessionNames},
    share::WorkerShare,
    signals,
    snapshots::{self, SnapshotPlaces},
    watch::Watch,
    written::Rewrites,
};
use crate::{
    version_table::VersionTable,
    wire::{Errno, hello::LOBBY},
};

const SIGNALS: u64 = u64::MAX;
const FRONT: u64 = u64::MAX - 1;
/// At the end, how long clients are still served while their writes are flushed.
const FLUSH_BEFORE: Duration = Duration::from_secs(5);

/// Serves the clients of a place until a signal ends the process, or nobody has used the mount for a while. `slot`: the index of the process's
/// figures.
pub fn run(options: &DaemonOptions, place: u64, slot: usize) -> anyhow::Result<()> {
    let signals = signals::block(signals::ENDING).context("cannot set up signals")?;
    let ProcessStart { control, names, figures, configuration } = FrontControl::begin()?;
    end_with_the_front(&control)?;
    // The kernel has named it after /proc/self/exe.
    let _ = rustix::thread::set_name(c"libcephfsd");
    let ceph = load(&options.library)?;
    let (readable, versions) =
        VersionTable::create().context("cannot share memory that clients only read: Linux 5.1 or newer is needed")?;
    let snapshots = names.number.as_ref().map(|_| SnapshotPlaces::open(&options.state, place)).unwrap_or_default();
    if place == LOBBY {
        SessionNames::check(ceph);
        if names.number.is_some() {
            SnapshotPlaces::prune(&options.state, snapshots::LIST);
            SnapshotPlaces::prune(&options.state, sessions::LINEAGE);
        }
    }
    let shared = Arc::new(DaemonState {
        ceph,
        version: ceph.version(),
        place: MountPlace::new(
            place,
            names,
            options.state.clone(),
            Coherence::new(versions, options.stale),
            options.data_cache(),
        ),
        snapshots,
        versions: readable,
        limits: options.limits.clone(),
        figures: ProxyCounters::map(figures, options.metrics.is_some()).context("cannot share the figures")?,
        pool: OnceLock::new(),
        freed: FreedMemory::default(),
        share: WorkerShare::new(options.limits.workers),
        rewrites: Rewrites::default(),
    });
    let pool = Pool::start(shared.clone()).context("cannot start the workers")?;
    let _ = shared.pool.set(Arc::downgrade(&pool));
    let watch = Arc::new(Watch::new().context("cannot use epoll(7)")?);
    watch.add(&signals, SIGNALS)?;
    watch.add(&control, FRONT)?;
    let mut clients = Clients::new(shared.clone(), pool.clone(), watch.clone(), slot);
    if let Some(configuration) = configuration {
        mount(&shared, configuration.into())?;
    }
    control.ready(&shared.version.text.to_string_lossy())?;

    let mut due = Instant::now() + TICK;
    let mut has_told = false;
    let mut flush: Option<Flush> = None;
    loop {
        let limit = if flush.is_some() { Duration::from_millis(1) } else { TICK };
        for event in watch.wait(limit)? {
            match event {
                // Clients are served during the flush, so that their pause is short.
                SIGNALS => {
                    watch.remove(&signals);
                    flush = Some(Flush::begin(&pool));
                }
                FRONT => receive(&control, &shared, &mut clients)?,
                client => clients.see(client),
            }
        }
        if flush.as_ref().is_some_and(Flush::is_over) {
            return farewell(&control, clients, &shared, &pool);
        }
        if Instant::now() >= due {
            due = Instant::now() + TICK;
            if !has_told && let Some(configuration) = shared.place.configuration() {
                tell(&control, &configuration)?;
                has_told = true;
            }
            if shared.rewrites.tick() {
                hangs();
            }
            clients.tick();
            pool.trim();
            if !shared.place.is_lobby() && shared.place.is_unused(options.linger, clients.any()) {
                return farewell(&control, clients, &shared, &pool);
            }
        }
    }
}

/// Makes the kernel end this process when the front ends for any reason: the next daemon starts its own processes.
fn end_with_the_front(control: &FrontControl) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).context("cannot end with the front")?;
    if control.is_alone() {
        bail!("the front is gone");
    }
    Ok(())
}

/// Ends this process, since a repeated write takes too long.
fn hangs() -> ! {
    tracing::warn!(
        "libcephfs does not come back from a write that is made again: the clients of this mount have to mount again"
    );
    // SAFETY: the process ends.
    unsafe { libc::_exit(1) }
}

/// Loads libcephfs on a separate thread: its initialisers touch most of a MiB of stack, which the main thread would keep.
fn load(library: &Path) -> anyhow::Result<&'static Ceph> {
    let library = library.to_owned();
    let loading = thread::Builder::new().stack_size(8 << 20).spawn(move || Ceph::load(&library))?;
    loading.join().unwrap_or_else(|_| bail!("cannot load libcephfs"))
}

/// Mounts with the configuration of another daemon's mount, whose clients will come soon.
fn mount(shared: &Arc<DaemonState>, configuration: File) -> anyhow::Result<()> {
    let bytes = read_configuration(&configuration)?;
    let shared = shared.clone();
    let mounting = thread::Builder::new()
        .stack_size(8 << 20)
        .spawn(move || shared.place.mount_again(shared.ceph, &bytes).context("cannot mount"))?;
    mounting.join().unwrap_or_else(|_| bail!("cannot mount"))
}

/// Sends the front the configuration of this process's mount, for a daemon that takes over.
fn tell(control: &FrontControl, configuration: &[u8]) -> anyhow::Result<()> {
    let mut file = File::from(rustix::fs::memfd_create("configuration", MemfdFlags::CLOEXEC)?);
    file.write_all(configuration)?;
    // If the front is gone, this process ends, too.
    let _ = control.mounted(file.as_fd());
    Ok(())
}

/// The flush of everything that clients have written.
struct Flush {
    left: Arc<AtomicUsize>,
    until: Instant,
}

impl Flush {
    fn begin(pool: &Pool) -> Flush {
        let connections = pool.connections();
        let left = Arc::new(AtomicUsize::new(connections.len()));
        for connection in connections {
            let left = left.clone();
            pool.submit(Box::new(move || {
                connection.flush_all();
                left.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        Flush { left, until: Instant::now() + FLUSH_BEFORE }
    }

    fn is_over(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0 || Instant::now() >= self.until
    }
}

/// Receives the clients that the front has handed over.
fn receive(control: &FrontControl, shared: &DaemonState, clients: &mut Clients) -> anyhow::Result<()> {
    loop {
        match control.client() {
            Ok(Some((id, socket))) => clients.enter(id, socket),
            Ok(None) => return Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => bail!("the front is gone"),
            // Without a descriptor for it, the client's socket is closed, and the client comes again.
            Err(errno) => {
                tracing::warn!("cannot receive a client: {errno}");
                shared.figures.refuse(RefusalReason::Resources);
                clients.gone();
            }
        }
    }
}

/// Ends the process in order: disconnects all clients, flushes what they wrote, and unmounts.
fn farewell(
    control: &FrontControl,
    mut clients: Clients,
    shared: &Arc<DaemonState>,
    pool: &Arc<Pool>,
) -> anyhow::Result<()> {
    let until = Instant::now() + FAREWELL;
    // Clients that come from now on wait for the next process. Clients that have come before connect again.
    control.close();
    while let Ok(Some(_)) | Err(Errno::PROTO | Errno::MFILE) = control.client() {}
    clients.close();
    let is_busy = || shared.place.is_mounted() || !pool.at_rest();
    while is_busy() && Instant::now() < until {
        if let Some(mount) = shared.place.take() {
            pool.unmount(mount);
        }
        thread::sleep(Duration::from_millis(5));
    }
    if is_busy() {
        bail!("the cluster did not accept all data within {} s: data that was not flushed is lost", FAREWELL.as_secs());
    }
    shared.place.has_ended();
    Ok(())
}
