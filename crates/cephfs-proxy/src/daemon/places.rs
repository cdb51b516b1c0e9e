//! The processes below the front: one for each place, started when the first client wants to go there. If a process ends for any reason, its
//! clients only have a pause: they connect again, and the front starts another process.

use std::{
    env,
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, ExitStatus},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    FAREWELL,
    arrivals::Refusal,
    control::{ProcessControl, ProcessNews, read_configuration},
    figures::{MOST_MOUNTS, ProxyCounters, RefusalReason},
    sessions::{SessionNames, SessionNumber},
    watch::Watch,
};
use crate::{
    sys,
    wire::{Errno, hello::LOBBY},
};

/// The number in the watch of the first slot's control; smaller numbers belong to clients.
pub const FIRST_CONTROL: u64 = 1 << 62;
/// How much longer the front waits for a process's end than the process itself takes at most.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long the processes of a daemon that takes over may take to mount.
const PREPARATION: Duration = Duration::from_secs(30);

/// A client whose hello has been read.
pub struct Visitor {
    /// The number of the connection.
    pub id: u64,
    /// The client's user.
    pub uid: u32,
    /// The requested place.
    pub place: u64,
    /// The connection.
    pub socket: OwnedFd,
}

/// All places that have a process.
pub struct MountProcesses {
    figures: Arc<ProxyCounters>,
    figures_for_others: OwnedFd,
    sessions: SessionNumber,
    watch: Arc<Watch>,
    /// Indexed by slot. The lobby has the first slot.
    processes: Vec<Option<PlaceProcess>>,
}

struct PlaceProcess {
    place: u64,
    /// The user for whom the process was started.
    uid: u32,
    child: Child,
    control: ProcessControl,
    /// The configuration with which the process has mounted.
    configuration: Option<OwnedFd>,
    /// Clients that came after the process had begun to end.
    waiting: Vec<Visitor>,
}

impl MountProcesses {
    /// Opens the lobby, with room for `mounts` other places. Also returns libcephfs's version.
    pub fn open(
        figures: Arc<ProxyCounters>,
        figures_for_others: OwnedFd,
        sessions: SessionNumber,
        watch: Arc<Watch>,
        mounts: usize,
    ) -> anyhow::Result<(MountProcesses, String)> {
        let processes = (0..=mounts.min(MOST_MOUNTS)).map(|_| None).collect();
        let mut places = MountProcesses { figures, figures_for_others, sessions, watch, processes };
        places.start(0, LOBBY, 0, None).context("cannot start a process")?;
        let version = places.first_news(0, None).context("libcephfs cannot be used")?;
        Ok((places, version))
    }

    /// Waits for a process's first report: libcephfs's version.
    fn first_news(&mut self, slot: usize, until: Option<Instant>) -> anyhow::Result<String> {
        let Some(Some(process)) = self.processes.get(slot) else { bail!("there is no process") };
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let _ = poll(&mut [PollFd::new(&process.control, PollFlags::IN)], left.map(sys::timespec).as_ref());
            match process.control.news() {
                Some(ProcessNews::Ready(version)) => return Ok(version),
                Some(ProcessNews::Gone) => bail!("a process that it needs has ended"),
                _ if left.is_some_and(|left| left.is_zero()) => bail!("the cluster does not answer"),
                _ => {}
            }
        }
    }

    /// The current mounts.
    pub fn mounts(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.processes
            .iter()
            .flatten()
            .filter_map(|process| Some((process.uid, process.configuration.as_ref()?.as_fd())))
    }

    /// Starts processes that mount what another daemon has mounted, and waits until all of them have mounted.
    pub fn prepare(&mut self, mounts: Vec<(u32, OwnedFd)>) -> anyhow::Result<()> {
        let until = Instant::now() + PREPARATION;
        let mut slots = Vec::new();
        for (slot, (uid, configuration)) in (1..self.processes.len()).zip(mounts) {
            let configuration = File::from(configuration);
            let place = self.sessions.names.place(&read_configuration(&configuration)?);
            self.start(slot, place, uid, Some(configuration.as_fd()))?;
            slots.push(slot);
        }
        slots.into_iter().try_for_each(|slot| self.first_news(slot, Some(until)).map(drop))
    }

    /// The names of sessions, for the daemon that takes over.
    pub fn names(&self) -> &SessionNames {
        &self.sessions.names
    }

    /// The locked file of the sessions, for the daemon that takes over.
    pub fn lock(&self) -> Option<BorrowedFd<'_>> {
        self.sessions.lock.as_ref().map(AsFd::as_fd)
    }

    /// From now on, this daemon holds the locked file, too.
    pub fn keep_lock(&mut self, lock: OwnedFd) {
        self.sessions.lock = Some(lock);
    }

    /// Handles the end of the daemon before this one. `well`: that daemon has unmounted everything. Otherwise its sessions still hold its
    /// capabilities, so all processes end, and their successors end these sessions.
    pub fn is_alone(&mut self, well: bool) {
        self.sessions.names.alone = true;
        for process in self.processes.iter().skip(1).flatten().filter(|_| !well) {
            let _ = kill(Pid::from_raw(process.child.id() as i32), Signal::SIGTERM);
        }
    }

    /// The number of clients in all places.
    pub fn clients(&self) -> usize {
        let waiting: usize = self.processes.iter().flatten().map(|process| process.waiting.len()).sum();
        self.figures.over_all(|process| process.clients()) as usize + waiting
    }

    /// Hands a client over to the process of its place. Starts the process if there is none.
    pub fn hand_over(&mut self, visitor: Visitor) -> Result<(), Refusal> {
        let is_there = |process: &Option<PlaceProcess>| process.as_ref().is_some_and(|p| p.place == visitor.place);
        let slot = match self.processes.iter().position(is_there) {
            Some(slot) => slot,
            None => {
                let slot = self.free_slot(&visitor)?;
                self.start(slot, visitor.place, visitor.uid, None).map_err(|error| {
                    tracing::warn!("cannot start a process: {error:#}");
                    (Errno::AGAIN, RefusalReason::Resources)
                })?;
                slot
            }
        };
        let Some(process) = &mut self.processes[slot] else { return Err((Errno::AGAIN, RefusalReason::Resources)) };
        match process.control.hand_over(visitor.id, visitor.socket.as_fd()) {
            Ok(()) => {
                self.figures.process(slot).handed.fetch_add(1, Relaxed);
                Ok(())
            }
            // The process is ending. Its successor will get this client.
            Err(Errno::PIPE | Errno::CONNRESET) => {
                process.waiting.push(visitor);
                Ok(())
            }
            // The process has many new clients at once, so this client has to try again.
            Err(_) => Err((Errno::AGAIN, RefusalReason::Resources)),
        }
    }

    /// A slot for another process. A user other than root may have a quarter of the free slots, and at least one.
    fn free_slot(&self, visitor: &Visitor) -> Result<usize, Refusal> {
        if visitor.place == LOBBY {
            return Ok(0);
        }
        let mounts = self.processes.iter().skip(1);
        let free = mounts.clone().filter(|process| process.is_none()).count();
        let theirs = mounts.flatten().filter(|process| process.uid == visitor.uid).count();
        let slot = self.processes.iter().skip(1).position(Option::is_none).map(|slot| slot + 1);
        match slot.filter(|_| visitor.uid == 0 || theirs < (free / 4).max(1)) {
            Some(slot) => Ok(slot),
            None => {
                tracing::warn!("user {} cannot have another mount: too few of --max-mounts are free", visitor.uid);
                Err((Errno::USERS, RefusalReason::Mounts))
            }
        }
    }

    fn start(
        &mut self,
        slot: usize,
        place: u64,
        uid: u32,
        configuration: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<()> {
        let (control, theirs) =
            ProcessControl::new(&self.sessions.names, self.figures_for_others.as_fd(), configuration)?;
        self.watch.add(&control, FIRST_CONTROL + slot as u64)?;
        // The same program is started, even if its file has been replaced since.
        let child = Command::new("/proc/self/exe")
            .arg0("libcephfsd")
            .args(env::args_os().skip(1))
            .args([format!("--place={place}"), format!("--slot={slot}")])
            .env_remove("NOTIFY_SOCKET")
            .stdin(theirs)
            .spawn()?;
        tracing::debug!("process {} is for place {place:016x}", child.id());
        self.processes[slot] =
            Some(PlaceProcess { place, uid, child, control, configuration: None, waiting: Vec::new() });
        Ok(())
    }

    /// Handles a report or the end of a process. If the process has ended, returns its exit status.
    pub fn see(&mut self, slot: u64) -> Option<ExitStatus> {
        let slot = slot as usize;
        let process = self.processes.get_mut(slot)?;
        match process.as_ref()?.control.news()? {
            ProcessNews::Ready(_) => return None,
            ProcessNews::Mounted(configuration) => {
                process.as_mut()?.configuration = Some(configuration);
                return None;
            }
            ProcessNews::Gone => {}
        }
        let PlaceProcess { place, mut child, control, waiting, .. } = process.take()?;
        self.watch.remove(&control);
        self.figures.process(slot).reset();
        let status = child.wait().ok()?;
        if status.success() {
            tracing::debug!("process {} of place {place:016x} has ended", child.id());
        } else {
            tracing::error!(
                "process {} of place {place:016x} has ended: {status}; its clients mount again",
                child.id()
            );
        }
        for visitor in waiting {
            // If this does not succeed, the client connects again.
            let _ = self.hand_over(visitor);
        }
        Some(status)
    }

    /// Ends all processes in order, and waits for them. They flush what clients wrote.
    pub fn close(mut self) -> anyhow::Result<()> {
        let until = Instant::now() + FAREWELL + PATIENCE;
        for process in self.processes.iter_mut().flatten() {
            process.waiting.clear();
            let _ = kill(Pid::from_raw(process.child.id() as i32), Signal::SIGTERM);
        }
        let mut lost = 0;
        while self.processes.iter().any(Option::is_some) && Instant::now() < until {
            for event in self.watch.wait(Duration::from_millis(100))? {
                if let Some(slot) = event.checked_sub(FIRST_CONTROL)
                    && let Some(status) = self.see(slot)
                {
                    lost += u32::from(!status.success());
                }
            }
        }
        for process in self.processes.iter_mut().flatten() {
            let _ = process.child.kill();
            lost += 1;
        }
        if lost > 0 {
            bail!("{lost} processes ended with an error: the data that they had not flushed is lost");
        }
        Ok(())
    }
}
