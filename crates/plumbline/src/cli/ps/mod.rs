//! `plumbline ps`: lists every process, or every thread.

mod files;
mod maps;
mod pin;
mod rows;

use std::{
    collections::HashMap,
    ffi::OsString,
    io::{BufWriter, Write},
    os::fd::AsFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::User,
};
use probes::tasks::{Task, TaskOptions, TaskSnapshot, Tasks};

use super::{trace, usage_error};
use crate::view::{
    processes::Namer,
    screen::Screen,
    table::{Table, Wide},
};
use files::OpenFiles;
use maps::Maps;
use rows::PsRow;

#[derive(clap::Args)]
pub struct PsArguments {
    /// Each thread by itself
    #[arg(long)]
    threads: bool,
    /// Below each process, the files that it has open, with their file systems and mounts
    #[arg(long, conflicts_with = "threads")]
    files: bool,
    /// Below each process, the files that it has mapped; waits for processes that hang while they change their memory map
    #[arg(long, conflicts_with_all = ["threads", "files"])]
    maps: bool,
    /// Only files of the mount at this mount point, and processes that have some open, or mapped; the mount is not touched
    #[arg(long, value_name = "M")]
    mount: Option<OsString>,
    /// The order of rows: numbers descending, all else ascending [default: pid, with --watch load]
    #[arg(long, value_name = "BY")]
    sort: Option<PsSort>,
    /// Show the table again every S seconds, in the same place; %CPU is then that since the last table
    #[arg(long, value_name = "S", num_args = 0..=1, default_missing_value = "2", conflicts_with_all = ["files", "maps", "json"])]
    watch: Option<f64>,
    /// Show command lines. Waits for processes that hang while they change their memory map
    #[arg(long, conflicts_with = "threads")]
    args: bool,
    /// Only these processes
    #[arg(long, value_name = "P", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only the children of this process
    #[arg(long, value_name = "P")]
    ppid: Option<u32>,
    /// Only processes whose name, as shown, contains this text
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
    /// Only processes of this user, by number or name
    #[arg(long, value_name = "U")]
    uid: Option<String>,
    /// Only these states: R runs, S sleeps, D is blocked, T stopped, t traced, Z ended, X is gone, P parked, I idle
    #[arg(long, value_name = "LETTERS")]
    state: Option<String>,
    /// Only this cgroup and those below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Only containers whose id begins like this
    #[arg(long, value_name = "ID")]
    container: Option<String>,
    /// One JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: Wide,
    #[command(flatten)]
    pin: pin::PsPinArguments,
}

/// The possible values of `Task::state`: the letters of proc(5).
const STATES: &str = "RSDTtZXPI";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PsSort {
    Pid,
    Ppid,
    Uid,
    Comm,
    State,
    Start,
    /// %CPU
    Load,
    Cpu,
    Rss,
    Read,
    Written,
    Threads,
}

pub fn run(arguments: &PsArguments) -> Result<ExitCode> {
    if let Some(done) = pin::run(&arguments.pin) {
        return done;
    }
    let uid = match arguments.uid.as_deref().map(user) {
        Some(None) => return Ok(usage_error("--uid takes a number or the name of a user")),
        uid => uid.flatten(),
    };
    if let Some(letter) =
        arguments.state.iter().flat_map(|letters| letters.chars()).find(|letter| !STATES.contains(*letter))
    {
        return Ok(usage_error(format!(
            "--state takes letters of {STATES}, as `plumbline ps --help` explains them; {letter} is none"
        )));
    }
    let mut files = match arguments.files.then(|| OpenFiles::of_all(arguments.mount.as_deref())).transpose()? {
        Some(Err(message)) => return Ok(usage_error(message)),
        files => files.and_then(Result::ok),
    };
    let mut maps = match arguments.maps.then(|| Maps::of_all(arguments.mount.as_deref())).transpose()? {
        Some(Err(message)) => return Ok(usage_error(message)),
        maps => maps.and_then(Result::ok),
    };
    if arguments.mount.is_some() && files.is_none() && maps.is_none() {
        return Ok(usage_error("--mount is for --files or --maps"));
    }
    if arguments.watch.is_some_and(|seconds| !(0.1..=86_400.0).contains(&seconds)) {
        return Ok(usage_error("--watch takes seconds from 0.1 to 86400"));
    }
    let mut tasks =
        Tasks::load(TaskOptions { threads: arguments.threads, wait_channels: true, ..TaskOptions::default() });
    if let Some(seconds) = arguments.watch {
        return watch(arguments, uid, &mut tasks, Duration::from_secs_f64(seconds));
    }
    let snapshot = tasks.snapshot().context("cannot read the process table")?;
    let mut namer = Namer::new();
    let loads = Loads::of_lives(&snapshot);
    let mut wanted: Vec<Task> = snapshot.iter().filter(|task| is_wanted(arguments, uid, task, &mut namer)).collect();
    sort(&mut wanted, arguments.sort.unwrap_or(PsSort::Pid), &loads);
    if arguments.mount.is_some() {
        wanted.retain(|task| {
            files.as_ref().is_some_and(|files| files.has(task.tgid()))
                || maps.as_ref().is_some_and(|maps| maps.has(task.tgid()))
        });
    }
    let mut rows = wanted.iter().map(|task| {
        let mut row = PsRow::of(task, &mut namer, loads.percent(task), arguments.args);
        row.files = files.as_mut().map(|files| files.take(task.tgid()));
        row.maps = maps.as_mut().map(|maps| maps.take(task.tgid()));
        row
    });
    let mut out = BufWriter::new(std::io::stdout().lock());
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &rows.collect::<Vec<PsRow>>())?;
        writeln!(out)?;
    } else {
        let table = Table::new(&rows::columns(arguments.args), arguments.wide.room());
        table.header(&mut out)?;
        rows.try_for_each(|row| row.print(&table, &mut out))?;
    }
    out.flush()?;
    if snapshot.found() > snapshot.iter().count() {
        eprintln!("plumbline: {} more are not shown", snapshot.found() - snapshot.iter().count());
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the table again and again until a signal arrives.
fn watch(arguments: &PsArguments, uid: Option<u32>, tasks: &mut Tasks, every: Duration) -> Result<ExitCode> {
    let stop = trace::stop_signals()?;
    let (mut screen, mut namer) = (Screen::new(), Namer::new());
    let mut before: Option<(Instant, HashMap<Life, u64>)> = None;
    loop {
        let (now, snapshot) = (Instant::now(), tasks.snapshot().context("cannot read the process table")?);
        let loads = match &before {
            Some((then, before)) => Loads::since(&snapshot, before, now.duration_since(*then)),
            None => Loads::of_lives(&snapshot),
        };
        let mut wanted: Vec<Task> =
            snapshot.iter().filter(|task| is_wanted(arguments, uid, task, &mut namer)).collect();
        sort(&mut wanted, arguments.sort.unwrap_or(PsSort::Load), &loads);
        let mut text = Vec::new();
        let table = Table::new(&rows::columns(arguments.args), arguments.wide.room());
        table.header(&mut text)?;
        // One line is the heading. Only rows that fit are made, since command lines are read from each process.
        for task in wanted.iter().take(screen.lines().saturating_sub(1)) {
            PsRow::of(task, &mut namer, loads.percent(task), arguments.args).print(&table, &mut text)?;
        }
        screen.draw(&text)?;
        before = Some((now, snapshot.iter().map(|task| (life(&task), task.cpu_ns())).collect()));
        let mut wanted = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        let left = (now + every).saturating_duration_since(Instant::now());
        match poll(&mut wanted, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if stop.read_signal()?.is_some() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// A thread's id and start time, since ids are used again.
type Life = (u32, u64);

fn life(task: &Task) -> Life {
    (task.pid(), task.start())
}

/// The share of one CPU that each thread uses.
struct Loads(HashMap<Life, f64>);

impl Loads {
    /// The shares over the whole lives of the threads.
    fn of_lives(snapshot: &TaskSnapshot) -> Self {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
        let percent = |task: &Task| {
            let lived = now.saturating_sub(Duration::from_nanos(task.start())).as_secs_f64();
            if lived > 0.0 { task.cpu_ns() as f64 / 1e7 / lived } else { 0.0 }
        };
        Self(snapshot.iter().map(|task| (life(&task), percent(&task))).collect())
    }

    /// The shares since the last table. A process that is new has used all of its CPU time since then.
    fn since(snapshot: &TaskSnapshot, before: &HashMap<Life, u64>, passed: Duration) -> Self {
        let used = |task: &Task| task.cpu_ns().saturating_sub(before.get(&life(task)).copied().unwrap_or(0));
        let percent = |task: &Task| used(task) as f64 / 1e7 / passed.as_secs_f64().max(f64::MIN_POSITIVE);
        Self(snapshot.iter().map(|task| (life(&task), percent(&task))).collect())
    }

    fn percent(&self, task: &Task) -> f64 {
        self.0.get(&life(task)).copied().unwrap_or(0.0)
    }
}

/// The user id of a user, given by number or by name.
fn user(text: &str) -> Option<u32> {
    let by_name = || Some(User::from_name(text).ok()??.uid.as_raw());
    text.parse().ok().or_else(by_name)
}

fn is_wanted(arguments: &PsArguments, uid: Option<u32>, task: &Task, namer: &mut Namer) -> bool {
    let PsArguments { pid, ppid, comm, state, cgroup, container, .. } = arguments;
    (pid.is_empty() || pid.contains(&task.tgid()))
        && ppid.is_none_or(|ppid| ppid == task.ppid())
        && uid.is_none_or(|uid| uid == task.uid())
        && state.as_ref().is_none_or(|letters| letters.contains(task.state()))
        && comm.as_ref().is_none_or(|part| task.comm().to_string().contains(part))
        && cgroup.as_ref().is_none_or(|path| is_below(&namer.cgroup(task).path, path))
        && container.as_ref().is_none_or(|id| !id.is_empty() && namer.cgroup(task).container.starts_with(id))
}

/// Whether a cgroup is below another one, compared by whole components.
fn is_below(cgroup: &str, above: &str) -> bool {
    let above = above.trim_matches('/');
    let below = cgroup.trim_start_matches('/').strip_prefix(above);
    above.is_empty() || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Sorts tasks; equal ones by process and thread id.
fn sort(tasks: &mut [Task], by: PsSort, loads: &Loads) {
    use std::cmp::Reverse;
    tasks.sort_unstable_by_key(|task| (task.tgid(), task.pid() != task.tgid(), task.pid()));
    match by {
        PsSort::Pid => (),
        PsSort::Ppid => tasks.sort_by_key(Task::ppid),
        PsSort::Uid => tasks.sort_by_key(Task::uid),
        PsSort::Comm => tasks.sort_by_key(Task::comm),
        PsSort::State => tasks.sort_by_key(Task::state),
        PsSort::Start => tasks.sort_by_key(Task::start),
        PsSort::Load => tasks.sort_by(|one, other| loads.percent(other).total_cmp(&loads.percent(one))),
        PsSort::Cpu => tasks.sort_by_key(|task| Reverse(task.cpu_ns())),
        PsSort::Rss => tasks.sort_by_key(|task| Reverse(task.rss_pages())),
        PsSort::Read => tasks.sort_by_key(|task| Reverse(task.io_bytes().0)),
        PsSort::Written => tasks.sort_by_key(|task| Reverse(task.io_bytes().1)),
        PsSort::Threads => tasks.sort_by_key(|task| Reverse(task.threads())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_below_another_by_whole_components() {
        for above in ["/", "", "/a", "/a/b", "a/b/"] {
            assert!(is_below("/a/b", above), "{above}");
        }
        for above in ["/a/b/c", "/a/bb", "/b"] {
            assert!(!is_below("/a/b", above), "{above}");
        }
        assert!(!is_below("/ab", "/a"));
    }

    #[test]
    fn users_are_known_by_number_and_name() {
        assert_eq!((user("0"), user("root"), user("no such user")), (Some(0), Some(0), None));
    }
}
