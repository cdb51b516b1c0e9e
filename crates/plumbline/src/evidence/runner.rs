//! Runs actions side by side, within limits, and records how each went.
//!
//! Each action has a thread of its own while it runs. A read that hangs in the kernel cannot be interrupted, so after
//! its time and a little grace such a thread is left behind and counted; when too many are, no more are started.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::actions::{self, Task};
use super::command::{self, exit_code};
use super::output::{Bounds, Output, Spool, Stopped};
use super::retention::DiskQuota;
use super::store::Store;
use super::{ActionSpec, Scope, Settings, bundle};

/// Threads left behind at most. They cost a stack each, and the file that hangs is likely the same for all.
const ABANDONED: usize = 4;
/// How much longer than its time an action may take to notice that it is over.
const GRACE: Duration = Duration::from_millis(500);
/// The same once the collector is stopped: what the others have must still be written in time.
const GRACE_STOPPING: Duration = Duration::from_millis(100);
/// How often a running action is checked against a shutdown.
const LOOK: Duration = Duration::from_millis(100);
/// Actions keep their data in files.
pub const STACK: usize = 256 << 10;

/// How an action went, as `manifest.json` has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// Its name in the configuration.
    pub action: String,
    /// Its file in the bundle, if it left one.
    pub file: Option<String>,
    /// What it ran or read.
    pub command: String,
    /// How it ended.
    pub status: Status,
    /// What its command ended with, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took.
    pub seconds: f64,
    /// Size of its file.
    pub bytes: u64,
    /// Whether output is missing because there was too much of it.
    pub truncated: bool,
}

/// How an action ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All of it is there.
    Ok,
    /// It could not do it; the file has what it had until then.
    Failed,
    /// It took too long; the file has what it had until then, and is missing if it did not even stop.
    Timeout,
    /// It had more to say than the cap allows; the file has the beginning.
    Truncated,
}

/// Counts threads over the collector's whole life.
#[derive(Debug, Default)]
pub struct Threads {
    alive: AtomicUsize,
    /// How many were ever left behind.
    pub abandoned: AtomicUsize,
}

/// What every action of a batch shares.
#[derive(Clone)]
pub struct Context {
    /// What the incident is about.
    pub scope: Arc<Scope>,
    /// Limits.
    pub settings: Arc<Settings>,
    /// Where output goes.
    pub store: Arc<Store>,
    /// On whose account.
    pub quota: Arc<DiskQuota>,
    /// The thread count.
    pub threads: Arc<Threads>,
    /// The time by which all must be over, once somebody sets it.
    pub stop: Arc<OnceLock<Instant>>,
}

/// The actions of one incident. Dropped early, it stops them.
pub struct Batch {
    context: Context,
    /// Bytes of the disk limit that one action may take: so little that one cannot crowd out the others, and that all
    /// together, in their temporary files and in the bundle, leave half of it to what the daemon adds.
    share: u64,
    waiting: VecDeque<Job>,
    running: Vec<Running>,
    /// Could not even be started.
    refused: Vec<Record>,
    ended: Receiver<Ended>,
    report: Sender<Ended>,
}

/// One action to run.
#[derive(Clone)]
struct Job {
    index: usize,
    spec: ActionSpec,
    file: String,
}

struct Running {
    job: Job,
    started: Instant,
    deadline: Instant,
    cancelled: Arc<AtomicBool>,
}

struct Ended {
    index: usize,
    record: Record,
    spool: Option<Spool>,
}

impl Batch {
    /// Starts as many as may run at once; the others follow while [`Batch::next`] is called.
    pub fn start(specs: Vec<ActionSpec>, context: Context) -> Self {
        let mut names = HashSet::new();
        let share = context.settings.max_bytes / (4 * specs.len().max(1) as u64);
        let jobs = specs.into_iter().enumerate().map(|(index, spec)| {
            let file = free_name(&bundle::safe_name(&spec.name), &mut names);
            Job { index, spec, file }
        });
        let waiting = jobs.collect();
        let (report, ended) = mpsc::channel();
        let mut batch = Self { context, share, waiting, running: Vec::new(), refused: Vec::new(), ended, report };
        batch.fill();
        batch
    }

    /// The next action that ended, and its output; `None` after the last.
    pub fn next(&mut self) -> Option<(Record, Option<Spool>)> {
        loop {
            self.fill();
            if let Some(record) = self.refused.pop() {
                return Some((record, None));
            }
            if self.running.is_empty() {
                return None;
            }
            let over = self.over();
            // Several that hang are given up at once.
            let patience = if over.is_some() { Duration::ZERO } else { LOOK };
            if let Ok(Ended { index, record, spool }) = self.ended.recv_timeout(patience)
                && let Some(at) = self.running.iter().position(|running| running.job.index == index)
            {
                self.running.swap_remove(at);
                return Some((record, spool));
            }
            if let Some(at) = over {
                return Some((self.give_up(at), None));
            }
        }
    }

    fn fill(&mut self) {
        while self.running.len() < self.context.settings.concurrency.max(1) {
            let Some(job) = self.waiting.pop_front() else { return };
            match self.start_one(job.clone()) {
                Ok(running) => self.running.push(running),
                Err(error) => self.refused.push(job.record(Status::Failed, Some(error), Duration::ZERO)),
            }
        }
    }

    fn start_one(&self, job: Job) -> Result<Running, String> {
        let hanging = self.context.threads.alive.load(Ordering::Relaxed).saturating_sub(self.running.len());
        if hanging >= ABANDONED {
            return Err(format!("not started: {hanging} earlier actions still hang in the kernel"));
        }
        let started = Instant::now();
        let (time_limit, cap) = job.spec.limits.unwrap_or(self.context.settings.limits());
        let limit = started + time_limit;
        let deadline = self.context.stop.get().map_or(limit, |stop| limit.min(*stop));
        if deadline <= started {
            return Err("not started: the daemon is stopping".to_owned());
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let bounds = Bounds { cap, share: self.share, deadline: Some(deadline), cancelled: cancelled.clone() };
        let (context, report, running_job) = (self.context.clone(), self.report.clone(), job.clone());
        self.context.threads.alive.fetch_add(1, Ordering::Relaxed);
        let spawned = thread::Builder::new().name(format!("action {}", job.index)).stack_size(STACK).spawn(move || {
            let (record, spool) = running_job.run(&context, bounds);
            // Before it is reported: who sees the report must not take the thread for one that hangs.
            context.threads.alive.fetch_sub(1, Ordering::Relaxed);
            // If nobody waits for it any more, it was given up.
            let _ = report.send(Ended { index: running_job.index, record, spool });
        });
        if let Err(error) = spawned {
            self.context.threads.alive.fetch_sub(1, Ordering::Relaxed);
            return Err(format!("not started: no thread for it: {error}"));
        }
        Ok(Running { job, started, deadline, cancelled })
    }

    /// One that did not stop when its time was over. Once the collector is stopped, all are told that it is.
    fn over(&self) -> Option<usize> {
        let now = Instant::now();
        let stop = self.context.stop.get();
        if stop.is_some_and(|stop| now >= *stop) {
            self.running.iter().for_each(|running| running.cancelled.store(true, Ordering::Relaxed));
        }
        self.running.iter().position(|running| {
            now >= running.deadline + GRACE || stop.is_some_and(|stop| now >= *stop + GRACE_STOPPING)
        })
    }

    /// Leaves its thread behind.
    fn give_up(&mut self, at: usize) -> Record {
        let running = self.running.swap_remove(at);
        running.cancelled.store(true, Ordering::Relaxed);
        self.context.threads.abandoned.fetch_add(1, Ordering::Relaxed);
        let error = "it hangs in the kernel and was left behind".to_owned();
        running.job.record(Status::Timeout, Some(error), running.started.elapsed())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.running.iter().for_each(|running| running.cancelled.store(true, Ordering::Relaxed));
    }
}

impl Job {
    fn run(&self, context: &Context, bounds: Bounds) -> (Record, Option<Spool>) {
        let started = Instant::now();
        let task = Task { scope: &context.scope, args: &self.spec.args };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut out = Output::create(&context.store, &context.quota, bounds)?;
            let result = actions::run(&self.spec.name, &task, &mut out);
            anyhow::Ok((result, out))
        }));
        let (result, out) = match ran {
            Ok(Ok((result, out))) => (result, Some(out)),
            Ok(Err(error)) => (Err(error), None),
            Err(panic) => (Err(anyhow::anyhow!("the action panicked: {}", panic_message(&*panic))), None),
        };
        let (status, exit_code, error) = judge(result, out.as_ref().and_then(Output::stopped));
        let mut record = self.record(status, error, started.elapsed());
        record.exit_code = exit_code;
        record.truncated = status == Status::Truncated;
        let spool = match out.map(Output::finish) {
            None => None,
            Some(Ok(spool)) => Some(spool),
            Some(Err(error)) => {
                // A full disk, mostly: what there was of the output is lost.
                record.status = Status::Failed;
                record.error.get_or_insert_with(|| error.to_string());
                None
            }
        };
        record.file = spool.as_ref().map(|_| self.file.clone());
        record.bytes = spool.as_ref().map_or(0, Spool::bytes);
        (record, spool)
    }

    fn record(&self, status: Status, error: Option<String>, took: Duration) -> Record {
        Record {
            action: self.spec.name.clone(),
            file: None,
            command: actions::describe(&self.spec),
            status,
            exit_code: None,
            error,
            seconds: took.as_secs_f64(),
            bytes: 0,
            truncated: false,
        }
    }
}

/// `<stem>.txt`, with a number where an action before has that name.
fn free_name(stem: &str, taken: &mut HashSet<String>) -> String {
    let mut name = format!("{stem}.txt");
    let mut number = 2;
    while !taken.insert(name.clone()) {
        name = format!("{stem}.{number}.txt");
        number += 1;
    }
    name
}

/// Turns what an action returned into what the manifest says. That it was stopped explains any error that came of it.
fn judge(result: anyhow::Result<()>, stopped: Option<Stopped>) -> (Status, Option<i32>, Option<String>) {
    match (stopped, result) {
        (Some(Stopped::Cap), _) => (Status::Truncated, None, None),
        (Some(Stopped::Time), Err(error)) => (Status::Timeout, None, Some(format!("{error:#}"))),
        (_, Ok(())) => (Status::Ok, None, None),
        (None, Err(error)) => {
            let code = error.downcast_ref::<command::Failed>().and_then(|failed| exit_code(failed.status));
            (Status::Failed, code, Some(format!("{error:#}")))
        }
    }
}

/// What a panic said.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}
