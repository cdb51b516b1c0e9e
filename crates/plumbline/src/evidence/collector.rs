//! The daemon's handle on the collector's thread: a bounded queue of requests, the answers, and a descriptor to wait
//! for.

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
use super::id::IncidentId;
use super::runner::{STACK, panic_message};
use super::store::Store;
use super::{Attachment, BundleAddition, BundleOutcome, BundleRequest, Done, LossReason, Settings};

/// Collects evidence on a thread of its own. Its descriptor is readable (poll, epoll) when [`Collector::completions`]
/// has answers.
pub struct Collector {
    jobs: SyncSender<Queued>,
    done: Receiver<Done>,
    shared: Arc<CollectorState>,
    capacity: usize,
    sequence: AtomicU64,
}

/// Why a request was refused. Its bundle is lost; [`CollectorCounters::refused`] counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// [`Settings::queue`] requests are under way, or have answers not yet read.
    #[error("too many bundles are being collected already")]
    Busy,
    /// The collector's thread is gone.
    #[error("the collector is stopped")]
    Stopped,
}

/// Counts since the collector's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectorCounters {
    /// Requests refused.
    pub refused: u64,
    /// How often the collector continued after a panic.
    pub restarts: u64,
    /// Actions whose threads were left behind because they hang.
    pub abandoned: u64,
    /// Half-written bundles of an earlier run that were deleted at the start.
    pub leftovers: u64,
}

/// The result of a shutdown.
#[derive(Debug)]
pub struct Shutdown {
    /// Answers not read before.
    pub done: Vec<Done>,
    /// How many requests had no answer when the time was over.
    pub unfinished: usize,
}

struct CollectorState {
    settings: Mutex<Arc<Settings>>,
    workshop: Workshop,
    wake: EventFd,
    in_flight: AtomicUsize,
    refused: AtomicU64,
    restarts: AtomicU64,
    leftovers: u64,
    given_up: AtomicBool,
}

/// A job, and the settings in force when it was requested.
type Queued = (Arc<Settings>, CollectorJob);

enum CollectorJob {
    Collect(Box<BundleRequest>),
    Append { id: IncidentId, part: BundleAddition },
    Join { id: IncidentId, answer: Vec<u8> },
    Update { id: IncidentId, incident: Box<Incident>, attachments: Vec<Attachment>, part: Option<BundleAddition> },
    Tidy,
}

impl Collector {
    /// Opens the output directory, deletes half-written bundles of a crash, and starts the thread.
    ///
    /// # Errors If the output directory cannot be trusted: it is a link or a file, belongs to another user, or others
    /// can write to it. A full or read-only disk is no error here: bundles are lost then, as at any later time.
    pub fn start(settings: Settings) -> Result<Self> {
        let (leftovers, last) = match Store::open(&settings.output_dir, settings.folder) {
            Ok(store) => {
                let shown = || format!("cannot read {}", settings.output_dir.display());
                (store.remove_leftovers().with_context(shown)?, store.last_sequence().with_context(shown)?)
            }
            Err(error) if matches!(LossReason::of(&error), LossReason::DiskFull | LossReason::ReadOnly) => (0, 0),
            Err(error) => return Err(error),
        };
        let capacity = settings.queue.max(1);
        // At most `capacity` jobs are under way, so neither channel is ever full.
        let (jobs, to_do) = mpsc::sync_channel(capacity);
        let (answer, done) = mpsc::sync_channel(capacity);
        let shared = Arc::new(CollectorState {
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

    /// The name of the next incident. Its sequence number follows those on disk.
    pub fn next_id(&self, detected: jiff::Timestamp, protocol: &str, kind: &str) -> IncidentId {
        IncidentId::new(detected, protocol, kind, self.sequence.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Requests a bundle. Never waits.
    ///
    /// # Errors
    /// [`Refused`]; then there will be no answer.
    pub fn submit(&self, request: BundleRequest) -> Result<(), Refused> {
        self.send(CollectorJob::Collect(Box::new(request)))
    }

    /// Requests that `incident.json` and attachments of an existing bundle be replaced, and a part be added; its evidence
    /// stays. Never waits.
    ///
    /// # Errors
    /// [`Refused`]; then there will be no answer.
    pub fn update(
        &self,
        id: IncidentId,
        incident: Incident,
        attachments: Vec<Attachment>,
        part: Option<BundleAddition>,
    ) -> Result<(), Refused> {
        self.send(CollectorJob::Update { id, incident: Box::new(incident), attachments, part })
    }

    /// Requests that a part's files be added to an existing bundle. Never waits.
    ///
    /// # Errors
    /// [`Refused`]; then there will be no answer.
    pub fn append(&self, id: IncidentId, part: BundleAddition) -> Result<(), Refused> {
        self.send(CollectorJob::Append { id, part })
    }

    /// Requests that an existing bundle be joined with the server's answer, which is added to it. Never waits.
    ///
    /// # Errors
    /// [`Refused`]; then there will be no answer.
    pub fn join(&self, id: IncidentId, answer: Vec<u8>) -> Result<(), Refused> {
        self.send(CollectorJob::Join { id, answer })
    }

    /// Requests that retention be applied. Never waits.
    ///
    /// # Errors
    /// [`Refused`]; then there will be no answer.
    pub fn tidy(&self) -> Result<(), Refused> {
        self.send(CollectorJob::Tidy)
    }

    /// The answers since the last call, in the order of the requests. Resets the descriptor.
    pub fn completions(&self) -> Vec<Done> {
        // The read fails if there is nothing to reset.
        let _ = self.shared.wake.read();
        let done: Vec<Done> = self.done.try_iter().collect();
        self.shared.in_flight.fetch_sub(done.len(), Ordering::Relaxed);
        done
    }

    /// Uses other settings for further requests. The queue keeps its length.
    ///
    /// # Errors
    /// If the output directory cannot be trusted (see [`Collector::start`]); then the old settings stay.
    pub fn reconfigure(&self, settings: Settings) -> Result<()> {
        match Store::open(&settings.output_dir, settings.folder) {
            Err(error) if !matches!(LossReason::of(&error), LossReason::DiskFull | LossReason::ReadOnly) => {
                return Err(error);
            }
            _ => {}
        }
        *self.shared.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        Ok(())
    }

    /// Counts since the collector's start.
    pub fn counters(&self) -> CollectorCounters {
        CollectorCounters {
            refused: self.shared.refused.load(Ordering::Relaxed),
            restarts: self.shared.restarts.load(Ordering::Relaxed),
            abandoned: self.shared.workshop.threads.abandoned.load(Ordering::Relaxed) as u64,
            leftovers: self.shared.leftovers,
        }
    }

    /// Finishes the accepted requests, but takes at most `within`. Actions are cut off after three fifths of it, so
    /// that there is time to write their output.
    pub fn shutdown(self, within: Duration) -> Shutdown {
        let Self { jobs, done: answers, shared, .. } = self;
        let now = Instant::now();
        let _ = shared.workshop.stop.set(now + within * 3 / 5);
        drop(jobs);
        let mut done = Vec::new();
        // The loop also ends when the thread has ended, after the last answer.
        while let Ok(answer) = answers.recv_timeout((now + within).saturating_duration_since(Instant::now())) {
            done.push(answer);
        }
        let unfinished = shared.in_flight.load(Ordering::Relaxed).saturating_sub(done.len());
        if unfinished > 0 {
            shared.give_up();
        }
        Shutdown { done, unfinished }
    }

    fn send(&self, job: CollectorJob) -> Result<(), Refused> {
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

impl CollectorState {
    fn current_settings(&self) -> Arc<Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn work(&self, jobs: &Receiver<Queued>, answer: &SyncSender<Done>) {
        lower_priority();
        crate::daemon::return_large_blocks();
        for (settings, job) in jobs {
            if self.given_up.load(Ordering::SeqCst) {
                return;
            }
            let outcome = self.outcome(settings, job);
            let done = Done { outcome, sweep: self.workshop.quota.take_sweep() };
            if answer.send(done).is_err() {
                // The receiver is gone, but accepted requests are still finished.
                continue;
            }
            // The write fails only when the count would overflow; the descriptor is readable then.
            let _ = self.wake.write(1);
        }
    }

    /// Deletes half-written bundles and begins no new ones. A job that is still writing finds its file gone.
    fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
        let settings = self.current_settings();
        // If the deletion fails, the collector's next start tries again.
        let _ = Store::open(&settings.output_dir, settings.folder).and_then(|store| Ok(store.remove_leftovers()?));
    }

    /// Does one job. A panic loses that job only, as the next job opens everything again.
    fn outcome(&self, settings: Arc<Settings>, job: CollectorJob) -> BundleOutcome {
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
            Some(id) => BundleOutcome::Lost {
                id,
                cause: if panicked { LossReason::Panic } else { LossReason::of(&error) },
                message,
            },
            None => BundleOutcome::NotTidied { message },
        }
    }
}

impl CollectorJob {
    fn id(&self) -> Option<&IncidentId> {
        match self {
            Self::Collect(request) => Some(&request.id),
            Self::Update { id, .. } | Self::Append { id, .. } | Self::Join { id, .. } => Some(id),
            Self::Tidy => None,
        }
    }

    fn work(self, workshop: &Workshop, settings: Arc<Settings>) -> Result<BundleOutcome> {
        match self {
            Self::Collect(request) => workshop.collect(settings, *request),
            Self::Update { id, incident, attachments, part } => {
                workshop.update(settings, id, *incident, attachments, part)
            }
            Self::Append { id, part } => workshop.append(settings, id, part),
            Self::Join { id, answer } => workshop.join(settings, id, answer),
            Self::Tidy => workshop.tidy(&settings),
        }
    }
}

/// Sets SCHED_BATCH for this thread and the threads that it starts, so that they preempt no other thread. It sets no
/// niceness: on a host whose CPUs are busy (which may be the fault), a bundle would take many seconds instead of tenths
/// of a second, and evidence changes meanwhile.
fn lower_priority() {
    // SAFETY: the call only reads the zeroed structure, a valid sched_param; 0 means the calling thread.
    unsafe {
        let nothing: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &nothing);
    }
}
