//! The daemon's handle on the evidence room: a bounded queue in, answers and a descriptor to wait on out.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use model::Incident;
use nix::libc;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::collect::Workshop;
use super::id::Id;
use super::runner::{STACK, panic_message};
use super::store::Store;
use super::{Attachment, Cause, Done, Outcome, Request, Settings};

/// Collects evidence on a thread of its own. Readable (poll, epoll) whenever [`Collector::completions`] has something.
pub struct Collector {
    jobs: SyncSender<Task>,
    done: Receiver<Done>,
    shared: Arc<Shared>,
    capacity: usize,
    sequence: AtomicU64,
}

/// A request that was not taken. It costs a bundle, and is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As many as are allowed are under way, or have answers that nobody has read.
    #[error("too many bundles are being collected already")]
    Busy,
    /// The collector's thread is gone.
    #[error("the collector is stopped")]
    Stopped,
}

/// What has happened since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests refused.
    pub refused: u64,
    /// Times that the collector went on after a panic.
    pub restarts: u64,
    /// Actions whose threads had to be left behind.
    pub abandoned: u64,
    /// Half-written bundles of an earlier run that were deleted at the start.
    pub leftovers: u64,
}

/// What a shutdown leaves.
#[derive(Debug)]
pub struct Shutdown {
    /// Answers that had not been read yet.
    pub done: Vec<Done>,
    /// Requests without an answer when the time was over.
    pub unfinished: usize,
}

struct Shared {
    settings: Mutex<Arc<Settings>>,
    workshop: Workshop,
    wake: EventFd,
    in_flight: AtomicUsize,
    refused: AtomicU64,
    restarts: AtomicU64,
    leftovers: u64,
    given_up: AtomicBool,
}

/// A job, and the settings that were in force when it was asked for.
type Task = (Arc<Settings>, Job);

enum Job {
    Collect(Box<Request>),
    Update { id: Id, incident: Box<Incident>, attachments: Vec<Attachment> },
    Tidy,
}

impl Collector {
    /// Opens the output directory, deletes what a crash left half-written, and starts the thread.
    ///
    /// # Errors
    /// If the output directory is not one to trust: a link, a file, another user's, open to others. A full or
    /// read-only disk is no error here; it costs bundles, as it does later.
    pub fn start(settings: Settings) -> Result<Self> {
        let (leftovers, last) = match Store::open(&settings.output_dir) {
            Ok(store) => {
                let shown = || format!("cannot read {}", settings.output_dir.display());
                (store.remove_leftovers().with_context(shown)?, store.last_sequence().with_context(shown)?)
            }
            Err(error) if matches!(Cause::of(&error), Cause::DiskFull | Cause::ReadOnly) => (0, 0),
            Err(error) => return Err(error),
        };
        let capacity = settings.queue.max(1);
        // No more jobs than `capacity` are ever under way, so neither channel is ever full.
        let (jobs, to_do) = mpsc::sync_channel(capacity);
        let (answer, done) = mpsc::sync_channel(capacity);
        let shared = Arc::new(Shared {
            settings: Mutex::new(Arc::new(settings)),
            workshop: Workshop::default(),
            wake: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
                .context("cannot create an eventfd")?,
            in_flight: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            leftovers: leftovers as u64,
            given_up: AtomicBool::new(false),
        });
        let worker = shared.clone();
        thread::Builder::new()
            .name("evidence".to_owned())
            .stack_size(STACK)
            .spawn(move || worker.work(&to_do, &answer))
            .context("cannot start the collector's thread")?;
        Ok(Self { jobs, done, shared, capacity, sequence: AtomicU64::new(last) })
    }

    /// The name of the next incident. Numbers go on from those on disk.
    pub fn next_id(&self, detected: jiff::Timestamp, protocol: &str, kind: &str) -> Id {
        Id::new(detected, protocol, kind, self.sequence.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Has a bundle made. Never waits.
    ///
    /// # Errors
    /// [`Refused`], if it is not taken; there will be no answer then.
    pub fn submit(&self, request: Request) -> Result<(), Refused> {
        self.send(Job::Collect(Box::new(request)))
    }

    /// Has `incident.json` and attachments of an existing bundle replaced; the evidence in it stays. Never waits.
    ///
    /// # Errors
    /// As [`Collector::submit`].
    pub fn update(&self, id: Id, incident: Incident, attachments: Vec<Attachment>) -> Result<(), Refused> {
        self.send(Job::Update { id, incident: Box::new(incident), attachments })
    }

    /// Has retention applied. Never waits.
    ///
    /// # Errors
    /// As [`Collector::submit`].
    pub fn tidy(&self) -> Result<(), Refused> {
        self.send(Job::Tidy)
    }

    /// Answers since the last time, in the order of the requests. Clears the descriptor.
    pub fn completions(&self) -> Vec<Done> {
        // Nothing to clear is no error.
        let _ = self.shared.wake.read();
        let done: Vec<Done> = self.done.try_iter().collect();
        self.shared.in_flight.fetch_sub(done.len(), Ordering::Relaxed);
        done
    }

    /// Uses other settings from the next job on. The queue keeps its length.
    ///
    /// # Errors
    /// As [`Collector::start`], for the output directory; the old settings stay then.
    pub fn reconfigure(&self, settings: Settings) -> Result<()> {
        match Store::open(&settings.output_dir) {
            Err(error) if !matches!(Cause::of(&error), Cause::DiskFull | Cause::ReadOnly) => return Err(error),
            _ => {}
        }
        *self.shared.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        Ok(())
    }

    /// What has happened since the start.
    pub fn counters(&self) -> Counters {
        Counters {
            refused: self.shared.refused.load(Ordering::Relaxed),
            restarts: self.shared.restarts.load(Ordering::Relaxed),
            abandoned: self.shared.workshop.threads.abandoned.load(Ordering::Relaxed) as u64,
            leftovers: self.shared.leftovers,
        }
    }

    /// Finishes what was accepted, but takes no longer than `within`: actions are cut when most of it is over, so that
    /// there is time to write what they have.
    pub fn shutdown(self, within: Duration) -> Shutdown {
        let Self { jobs, done: answers, shared, .. } = self;
        let now = Instant::now();
        let _ = shared.workshop.stop.set(now + within * 3 / 5);
        drop(jobs);
        let mut done = Vec::new();
        // It also ends when the thread does, after the last answer.
        while let Ok(answer) = answers.recv_timeout((now + within).saturating_duration_since(Instant::now())) {
            done.push(answer);
        }
        let unfinished = shared.in_flight.load(Ordering::Relaxed).saturating_sub(done.len());
        if unfinished > 0 {
            shared.give_up();
        }
        Shutdown { done, unfinished }
    }

    fn send(&self, job: Job) -> Result<(), Refused> {
        let admit = |in_flight: usize| (in_flight < self.capacity).then_some(in_flight + 1);
        let admitted = self.shared.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit);
        let sent = match admitted {
            Err(_) => Err(Refused::Busy),
            Ok(_) => self.jobs.try_send((self.shared.current_settings(), job)).map_err(|_| {
                self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
                Refused::Stopped
            }),
        };
        if sent.is_err() {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }
}

impl AsFd for Collector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }
}

impl Shared {
    fn current_settings(&self) -> Arc<Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn work(&self, jobs: &Receiver<Task>, answer: &SyncSender<Done>) {
        lower_priority();
        give_memory_back_early();
        for (settings, job) in jobs {
            if self.given_up.load(Ordering::SeqCst) {
                return;
            }
            let outcome = self.outcome(settings, job);
            let done = Done { outcome, sweep: self.workshop.quota.take_sweep() };
            if answer.send(done).is_err() {
                // Nobody wants answers any more, but what was accepted is still finished.
                continue;
            }
            // It fails only when its count overflows; then it is readable already.
            let _ = self.wake.write(1);
        }
    }

    /// Leaves nothing half-written: what is still being written finds its file gone, and nothing new is begun.
    fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
        let settings = self.current_settings();
        // If that fails, the next start tries again.
        let _ = Store::open(&settings.output_dir).and_then(|store| Ok(store.remove_leftovers()?));
    }

    /// Does one job. A panic costs that job alone: everything it worked on is opened anew for the next.
    fn outcome(&self, settings: Arc<Settings>, job: Job) -> Outcome {
        let id = job.id().cloned();
        let (error, panicked) = match catch_unwind(AssertUnwindSafe(|| job.work(&self.workshop, settings))) {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(error)) => (error, false),
            Err(panic) => {
                self.restarts.fetch_add(1, Ordering::Relaxed);
                (anyhow!("the collector panicked: {}", panic_message(&*panic)), true)
            }
        };
        let message = format!("{error:#}");
        match id {
            Some(id) => Outcome::Lost { id, cause: if panicked { Cause::Panic } else { Cause::of(&error) }, message },
            None => Outcome::NotTidied { message },
        }
    }
}

impl Job {
    fn id(&self) -> Option<&Id> {
        match self {
            Self::Collect(request) => Some(&request.id),
            Self::Update { id, .. } => Some(id),
            Self::Tidy => None,
        }
    }

    fn work(self, workshop: &Workshop, settings: Arc<Settings>) -> Result<Outcome> {
        match self {
            Self::Collect(request) => workshop.collect(settings, *request),
            Self::Update { id, incident, attachments } => workshop.update(&settings, id, &incident, attachments),
            Self::Tidy => workshop.tidy(&settings),
        }
    }
}

/// For this thread and all that it starts: it interrupts nobody. No niceness: on a host whose processors are busy, which
/// may be what is wrong, a bundle's tenths of a second would become many seconds, and evidence does not keep.
fn lower_priority() {
    // SAFETY: the call only reads what it is given; 0 means the calling thread.
    unsafe {
        let nothing: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &nothing);
    }
}

/// Compressing needs some MiB, in a few large blocks, and there may be no next time for days. Left to itself the C
/// library comes to keep such blocks once it has seen some; this has it return them.
fn give_memory_back_early() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}
