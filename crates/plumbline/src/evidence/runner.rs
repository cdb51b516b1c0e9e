//! Runs actions in parallel, within limits, and records the result of each.
//!
//! Each action runs on a thread of its own. A read that hangs in the kernel cannot be interrupted. So a thread that
//! does not end within its time and a grace period is left behind and counted. If too many threads hang, no more
//! actions are started.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::actions::{self, ActionInput};
use super::command::{self, exit_code};
use super::cut;
use super::output::{Output, OutputBounds, Spool, Stopped};
use super::own::CommandBounds;
use super::retention::DiskQuota;
use super::store::Store;
use super::{ActionSpec, Cut, IncidentScope, Settings, bundle};

/// The most threads that may be left behind. Each costs a stack, and all are likely to hang on the same file.
const ABANDONED: usize = 4;
/// How long after its time limit an action may take to notice that its time is over.
const GRACE: Duration = Duration::from_millis(500);
/// The same when the collector stops, which must still have time to write the other actions' output.
const GRACE_STOPPING: Duration = Duration::from_millis(100);
/// How often running actions are checked for a shutdown.
const LOOK: Duration = Duration::from_millis(100);
/// The stack size of an action's thread, bytes. It is small, since actions keep their data in files.
pub const STACK: usize = 256 << 10;

/// The result of an action, as in `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActionRecord {
    /// The action's name in the configuration.
    pub action: String,
    /// The name of its output in the bundle, if there is any.
    pub file: Option<String>,
    /// The command that it ran, or the files that it read.
    pub command: String,
    /// How it ended.
    pub status: Status,
    /// The exit code of its command, if that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The error message, if it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took.
    pub seconds: f64,
    /// The size of its output, bytes.
    pub bytes: u64,
    /// Whether output is missing because it exceeded the cap.
    pub truncated: bool,
}

/// How an action ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The action succeeded, and its output is complete.
    Ok,
    /// The action failed; the file has its output until then.
    Failed,
    /// The action took too long. The file has its output until then; there is no file if the action did not stop.
    Timeout,
    /// The output exceeded the cap; the file has its beginning.
    Truncated,
}

/// Counts of threads over the collector's life.
#[derive(Debug, Default)]
pub struct ThreadCounts {
    alive: AtomicUsize,
    /// How many have been left behind so far.
    pub abandoned: AtomicUsize,
}

/// What all actions of a batch share.
#[derive(Clone)]
pub struct Context {
    /// To what actions limit themselves.
    pub scope: Arc<IncidentScope>,
    /// The standard input of a user's command.
    pub message: Arc<[u8]>,
    /// The limits.
    pub settings: Arc<Settings>,
    /// The directory of the temporary files.
    pub store: Arc<Store>,
    /// The quota from which output claims its space.
    pub quota: Arc<DiskQuota>,
    /// The count of threads.
    pub threads: Arc<ThreadCounts>,
    /// The time by which all actions must end; set when the collector is shut down.
    pub stop: Arc<OnceLock<Instant>>,
}

/// The actions of one incident. Dropping a batch stops those that still run.
pub struct ActionBatch {
    context: Context,
    /// The bytes on disk that one action may take, so that no action can crowd out the others. All actions together, in
    /// temporary files and in the bundle, leave half of the disk limit to the daemon's own files.
    share: u64,
    waiting: VecDeque<ActionJob>,
    running: Vec<RunningAction>,
    /// Records that were not returned yet, with their output.
    ready: Vec<Collected>,
    ended: Receiver<EndedAction>,
    report: Sender<EndedAction>,
}

/// An action or a capture to run.
#[derive(Clone)]
struct ActionJob {
    index: usize,
    work: ActionWork,
}

#[derive(Clone)]
enum ActionWork {
    /// An action, and the name of its output.
    Action(ActionSpec, String),
    /// A capture, and the beginning of its files' names.
    Cut(Cut, String),
}

struct RunningAction {
    job: ActionJob,
    started: Instant,
    deadline: Instant,
    cancelled: Arc<AtomicBool>,
}

struct EndedAction {
    index: usize,
    results: Vec<Collected>,
}

/// The result of an action, or of one file of a capture.
pub struct Collected {
    /// The record for the manifest.
    pub record: ActionRecord,
    /// Its output, if there is any.
    pub spool: Option<Spool>,
    /// The lines with the labels that the action sets.
    pub labels: Vec<u8>,
}

impl Collected {
    /// A result without output.
    pub fn nothing(record: ActionRecord) -> Self {
        Self { record, spool: None, labels: Vec::new() }
    }
}

impl ActionBatch {
    /// Starts as many actions as may run at a time. [`ActionBatch::next`] starts the others. `rule` begins the names of their
    /// files, if it is not empty.
    pub fn start(specs: Vec<ActionSpec>, cuts: Vec<Cut>, rule: &str, context: Context) -> Self {
        let mut names = HashSet::new();
        let share = context.settings.max_bytes / (4 * (specs.len() + cuts.len()).max(1) as u64);
        let of_rule = if rule.is_empty() { String::new() } else { format!("{}.", bundle::safe_name(rule)) };
        let actions = specs.into_iter().map(|spec| {
            let file = free_name(&(of_rule.clone() + &bundle::safe_name(&spec.name)), &mut names);
            ActionWork::Action(spec, file)
        });
        // Captures come first, since their rings overwrite old data.
        let work = cuts.into_iter().map(|cut| ActionWork::Cut(cut, of_rule.clone())).chain(actions);
        let waiting = work.enumerate().map(|(index, work)| ActionJob { index, work }).collect();
        let (report, ended) = mpsc::channel();
        let mut batch = Self { context, share, waiting, running: Vec::new(), ready: Vec::new(), ended, report };
        batch.fill();
        batch
    }

    /// Waits for an action to end. Returns its result, or `None` after the last.
    pub fn next(&mut self) -> Option<Collected> {
        loop {
            self.fill();
            if let Some(collected) = self.ready.pop() {
                return Some(collected);
            }
            if self.running.is_empty() {
                return None;
            }
            let over = self.over();
            // If several actions hang, the next ones are given up without a wait.
            let wait = if over.is_some() { Duration::ZERO } else { LOOK };
            if let Ok(EndedAction { index, results }) = self.ended.recv_timeout(wait)
                && let Some(at) = self.running.iter().position(|running| running.job.index == index)
            {
                self.running.swap_remove(at);
                self.ready.extend(results.into_iter().rev());
                continue;
            }
            if let Some(at) = over {
                return Some(Collected::nothing(self.give_up(at)));
            }
        }
    }

    fn fill(&mut self) {
        let is_action = |job: &ActionJob| matches!(job.work, ActionWork::Action(..));
        while let Some(next) = self.waiting.front() {
            // Captures mostly wait for the kernel, so they do not count as running actions.
            let actions = self.running.iter().filter(|running| is_action(&running.job)).count();
            if is_action(next) && actions >= self.context.settings.concurrency.max(1) {
                return;
            }
            let Some(job) = self.waiting.pop_front() else { return };
            match self.start_one(job.clone()) {
                Ok(running) => self.running.push(running),
                Err(error) => {
                    self.ready.push(Collected::nothing(job.record(Status::Failed, Some(error), Duration::ZERO)))
                }
            }
        }
    }

    fn start_one(&self, job: ActionJob) -> Result<RunningAction, String> {
        let hanging = self.context.threads.alive.load(Ordering::Relaxed).saturating_sub(self.running.len());
        if hanging >= ABANDONED {
            return Err(format!("not started: {hanging} earlier actions still hang in the kernel"));
        }
        let started = Instant::now();
        let (time_limit, cap) = match &job.work {
            ActionWork::Action(spec, _) => spec.limits.unwrap_or(self.context.settings.limits()),
            ActionWork::Cut(..) => cut::limits(self.share),
        };
        let limit = started + time_limit;
        let deadline = self.context.stop.get().map_or(limit, |stop| limit.min(*stop));
        if deadline <= started {
            return Err("not started: the daemon is stopping".to_owned());
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let bounds = OutputBounds { cap, share: self.share, deadline: Some(deadline), cancelled: cancelled.clone() };
        let (context, report, running_job) = (self.context.clone(), self.report.clone(), job.clone());
        self.context.threads.alive.fetch_add(1, Ordering::Relaxed);
        let spawned = thread::Builder::new().name(format!("action {}", job.index)).stack_size(STACK).spawn(move || {
            let results = running_job.run(&context, bounds);
            // The count falls before the report, or the receiver of the report would take this thread for one that
            // hangs.
            context.threads.alive.fetch_sub(1, Ordering::Relaxed);
            // The send fails if the batch has given up this action.
            let _ = report.send(EndedAction { index: running_job.index, results });
        });
        if let Err(error) = spawned {
            self.context.threads.alive.fetch_sub(1, Ordering::Relaxed);
            return Err(format!("not started: no thread for it: {error}"));
        }
        Ok(RunningAction { job, started, deadline, cancelled })
    }

    /// The index of an action that did not end within its time and the grace period. When the collector's time is over,
    /// cancels all actions.
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

    /// Leaves an action's thread behind and returns the action's record.
    fn give_up(&mut self, at: usize) -> ActionRecord {
        let running = self.running.swap_remove(at);
        running.cancelled.store(true, Ordering::Relaxed);
        self.context.threads.abandoned.fetch_add(1, Ordering::Relaxed);
        let error = "the action hangs in the kernel; Plumbline no longer waits for it".to_owned();
        running.job.record(Status::Timeout, Some(error), running.started.elapsed())
    }
}

impl Drop for ActionBatch {
    fn drop(&mut self) {
        self.running.iter().for_each(|running| running.cancelled.store(true, Ordering::Relaxed));
    }
}

impl ActionJob {
    fn run(&self, context: &Context, bounds: OutputBounds) -> Vec<Collected> {
        match &self.work {
            ActionWork::Action(spec, file) => vec![self.run_action(spec, file, context, bounds)],
            ActionWork::Cut(cut, of_rule) => {
                let started = Instant::now();
                let record = |status, error| self.record(status, error, started.elapsed());
                cut::run(cut, of_rule, context, &bounds, &record)
            }
        }
    }

    fn run_action(&self, spec: &ActionSpec, file: &str, context: &Context, bounds: OutputBounds) -> Collected {
        let started = Instant::now();
        let own = CommandBounds { input: &context.message, memory: spec.memory };
        let task = ActionInput { scope: &context.scope, args: &spec.args, own };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut out = Output::create(&context.store, &context.quota, bounds)?;
            let result = actions::run(&spec.name, &task, &mut out);
            anyhow::Ok((result, out))
        }));
        let (result, mut out) = match ran {
            Ok(Ok((result, out))) => (result, Some(out)),
            Ok(Err(error)) => (Err(error), None),
            Err(panic) => (Err(anyhow::anyhow!("the action panicked: {}", panic_message(&*panic))), None),
        };
        let (status, exit_code, error) = judge(result, out.as_ref().and_then(Output::stopped));
        let mut record = self.record(status, error, started.elapsed());
        record.exit_code = exit_code;
        record.truncated = status == Status::Truncated;
        let labels = out.as_mut().map(|out| std::mem::take(&mut out.labels)).unwrap_or_default();
        Collected { labels, ..record.with(out, file) }
    }

    fn record(&self, status: Status, error: Option<String>, took: Duration) -> ActionRecord {
        let (action, command) = match &self.work {
            ActionWork::Action(spec, _) => (spec.name.clone(), actions::describe(spec)),
            ActionWork::Cut(cut, _) => (cut.capture.name().to_owned(), cut.capture.describe()),
        };
        let seconds = took.as_secs_f64();
        ActionRecord {
            action,
            file: None,
            command,
            status,
            exit_code: None,
            error,
            seconds,
            bytes: 0,
            truncated: false,
        }
    }
}

impl ActionRecord {
    /// Adds the output as the file of this name.
    pub fn with(mut self, out: Option<Output>, file: &str) -> Collected {
        let spool = match out.map(Output::finish) {
            None => None,
            Some(Ok(spool)) => Some(spool),
            Some(Err(error)) => {
                // Usually, the disk is full. The output is lost.
                self.status = Status::Failed;
                self.error.get_or_insert_with(|| error.to_string());
                None
            }
        };
        self.file = spool.as_ref().map(|_| file.to_owned());
        self.bytes = spool.as_ref().map_or(0, Spool::bytes);
        Collected { record: self, spool, labels: Vec::new() }
    }
}

/// A file name that is not taken yet: `<stem>.txt`, or `<stem>.<number>.txt`. Adds it to `taken`.
fn free_name(stem: &str, taken: &mut HashSet<String>) -> String {
    let mut name = format!("{stem}.txt");
    let mut number = 2;
    while !taken.insert(name.clone()) {
        name = format!("{stem}.{number}.txt");
        number += 1;
    }
    name
}

/// The status, exit code and error for the manifest. If the output was stopped, that explains an error.
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

/// The message of a panic; `?` if it has none.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}
