//! Lists all processes, and the kernel stacks of blocked threads.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use probes::tasks::{Stack, Stacks, Task, TaskOptions, Tasks};

use super::{ActionInput, heading, procfs};
use crate::evidence::output::Output;
use crate::view::processes::Namer;

/// The most threads whose kernel stacks are shown.
const STACKS: usize = 256;
/// The most processes that are listed; they take 8 MiB of kernel memory for a moment.
const PROCESSES: u32 = 65_536;

/// Lists the processes. /proc/PID/cmdline is not read: reading it waits for the lock of the process's memory map. A
/// process that hangs in a page fault on a dead mount holds that lock.
pub fn processes(task: &ActionInput, out: &mut Output) -> Result<()> {
    let affected = &task.scope.pids;
    let options = TaskOptions { wait_channels: true, most: PROCESSES, ..TaskOptions::default() };
    list(&mut Tasks::load(options), affected, out)?;
    match Stacks::load(affected) {
        Ok(stacks) => by_kernel(&stacks, out),
        Err(error) => by_proc(Path::new("/proc"), affected, &error.to_string(), out),
    }
}

fn list(tasks: &mut Tasks, affected: &[u32], out: &mut Output) -> Result<()> {
    let via = tasks.via();
    let snapshot = tasks.snapshot()?;
    writeln!(out, "# {} processes, by {via}.", snapshot.found())?;
    writeln!(out, "# * marks processes whose operations were slow or failed. STARTED is in seconds after boot.")?;
    writeln!(
        out,
        "  {:>8} {:>8} {:>6} S {:>5} {:>9} {:>9} {:>10} {:>11} {:>11} {:<16} {:<24} CGROUP",
        "PID", "PPID", "UID", "THR", "RSS_KIB", "CPU_MS", "STARTED", "READ_KIB", "WRITTEN_KIB", "COMM", "WCHAN"
    )?;
    let mut namer = Namer::new();
    for process in snapshot.iter() {
        out.check()?;
        row(&process, affected.contains(&process.pid()), &mut namer, out)?;
    }
    Ok(())
}

fn row(process: &Task, is_affected: bool, namer: &mut Namer, out: &mut Output) -> Result<()> {
    let (read, written) = process.io_bytes();
    writeln!(
        out,
        "{} {:>8} {:>8} {:>6} {} {:>5} {:>9} {:>9} {:>10} {:>11} {:>11} {:<16} {:<24} {}",
        if is_affected { '*' } else { ' ' },
        process.pid(),
        process.ppid(),
        process.uid(),
        process.state(),
        process.threads(),
        namer.resident(process) >> 10,
        process.cpu_ns() / 1_000_000,
        process.start() / 1_000_000_000,
        read >> 10,
        written >> 10,
        process.comm().to_string(),
        process.wait_channel().as_deref().unwrap_or("-"),
        namer.cgroup(process).path
    )?;
    Ok(())
}

const BLOCKED: &str = "kernel stacks: blocked threads (D), and all threads of the processes marked";

fn by_kernel(stacks: &Stacks, out: &mut Output) -> Result<()> {
    let (mut shown, mut result) = (0, Ok(()));
    stacks.each(|stack| {
        if result.is_ok() && shown < STACKS {
            result = print_stack(stack, shown == 0, out);
            shown += 1;
        }
    })?;
    result
}

fn print_stack(stack: &Stack, is_first: bool, out: &mut Output) -> Result<()> {
    if is_first {
        heading(out, BLOCKED)?;
    }
    let mut frames = stack.frames().peekable();
    writeln!(out, "{}/{} {} {}", stack.tgid(), stack.pid(), stack.state(), stack.comm())?;
    if frames.peek().is_none() {
        writeln!(out, "(it is not asleep in the kernel)")?;
    }
    frames.try_for_each(|frame| writeln!(out, "[<0>] {frame}"))?;
    Ok(())
}

/// Lists the same from /proc, thread by thread. `why`: why the kernel's iterators cannot be used.
fn by_proc(proc: &Path, affected: &[u32], why: &str, out: &mut Output) -> Result<()> {
    let mut blocked = Vec::new();
    for pid in procfs::numbers(proc) {
        out.check()?;
        let process = proc.join(pid.to_string());
        if let Some(stat) = stat(&process) {
            note_blocked(&process, pid, &stat, affected.contains(&pid), &mut blocked);
        }
    }
    if !blocked.is_empty() {
        heading(out, BLOCKED)?;
        writeln!(out, "# by /proc: {why}")?;
    }
    for (pid, tid) in blocked {
        out.check()?;
        let thread = proc.join(format!("{pid}/task/{tid}"));
        let state = self::stat(&thread).map_or('-', |stat| stat.state);
        writeln!(
            out,
            "{pid}/{tid} {state} {} in {}",
            procfs::one_line(&thread.join("comm")),
            procfs::one_line(&thread.join("wchan"))
        )?;
        let stack = procfs::small(&thread.join("stack"), 4 << 10);
        writeln!(out, "{}", if stack.is_empty() { "(this kernel does not show its stack)" } else { stack.trim_end() })?;
    }
    Ok(())
}

/// Fields of /proc/PID/stat.
struct Stat {
    state: char,
    threads: u64,
}

/// Adds the process's threads whose stacks are to be shown: blocked ones, or all if the process is affected.
fn note_blocked(process: &Path, pid: u32, stat: &Stat, affected: bool, blocked: &mut Vec<(u32, u32)>) {
    let one_thread = stat.threads <= 1;
    if one_thread && stat.state != 'D' && !affected {
        return;
    }
    for tid in procfs::numbers(&process.join("task")) {
        if blocked.len() >= STACKS {
            return;
        }
        if affected || self::stat(&process.join(format!("task/{tid}"))).is_some_and(|stat| stat.state == 'D') {
            blocked.push((pid, tid));
        }
    }
}

/// Reads /proc/PID/stat. The name in brackets may itself contain brackets, spaces and line breaks, so the fields after
/// the last bracket count.
fn stat(process: &Path) -> Option<Stat> {
    let text = procfs::small(&process.join("stat"), 4 << 10);
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    // proc_pid_stat(5) counts from 1, and the state is 3.
    Some(Stat { state: fields.first()?.chars().next()?, threads: fields.get(20 - 3)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::output::tests::output_of;

    /// By each way to the process table.
    fn listed(affected: &[u32]) -> Vec<String> {
        let ways = ["bpf_iter_task", "iter/task", "/proc"];
        let tasks =
            ways.map(|way| Tasks::load_from(TaskOptions { wait_channels: true, ..TaskOptions::default() }, way));
        tasks.map(|mut tasks| output_of(|out| list(&mut tasks, affected, out))).to_vec()
    }

    /// Runs this while a thread of this process sleeps: on a busy machine, all others may run.
    fn beside_a_sleeper(test: impl FnOnce()) {
        use std::sync::mpsc;
        let ((says, tid), (wake, woken)) = (mpsc::channel(), mpsc::channel::<()>());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                says.send(nix::unistd::gettid()).unwrap();
                let _ = woken.recv();
            });
            let thread = Path::new("/proc/self/task").join(tid.recv().unwrap().to_string());
            while stat(&thread).unwrap().state != 'S' {
                std::thread::yield_now();
            }
            // Before the thread is awaited, also if the test fails.
            let _wake = wake;
            test();
        });
    }

    #[test]
    fn this_process_is_listed_and_marked_with_its_threads() {
        let me = std::process::id();
        for text in listed(&[me]) {
            let marked: Vec<&str> = text.lines().filter(|line| line.starts_with("* ")).collect();
            assert_eq!(marked.len(), 1, "{text}");
            assert!(marked[0].contains(&me.to_string()));
        }
        let text = output_of(|out| by_proc(Path::new("/proc"), &[me], "a test", out));
        assert!(text.contains(&format!("{me}/{me} ")), "{text}");
        if let Ok(stacks) = Stacks::load(&[me]) {
            beside_a_sleeper(|| {
                let text = output_of(|out| by_kernel(&stacks, out));
                assert!(text.contains(&format!("{me}/{me} ")) && text.contains("[<0>] "), "{text}");
            });
        }
    }

    #[test]
    fn a_hostile_name_stays_on_its_line() {
        let proc = tempfile::tempdir().unwrap();
        let process = proc.path().join("7");
        std::fs::create_dir_all(process.join("task/7")).unwrap();
        let rest = (4..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        for folder in [process.clone(), process.join("task/7")] {
            std::fs::write(folder.join("stat"), format!("7 (a) R 1\n\x1b[2J) D {rest}")).unwrap();
            std::fs::write(folder.join("comm"), "a) R 1\n\x1b[2J\n").unwrap();
        }
        let text = output_of(|out| by_proc(proc.path(), &[], "a test", out));
        let line = text.lines().find(|line| line.starts_with("7/7 ")).unwrap();
        assert!(line.contains(" D ") && line.contains("a) R 1\\x0a\\x1b[2J"), "{line}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn a_hostile_name_of_a_process_that_runs_stays_on_its_line() {
        use std::os::unix::process::CommandExt;
        let mut sleep = std::process::Command::new("sh");
        let mut child = sleep.arg0("sh").args(["-c", "printf 'a) R\\n\\033[2J' > /proc/self/comm; read -r _"]);
        child = child.stdin(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        let name = format!("/proc/{}/comm", child.id());
        while !std::fs::read_to_string(&name).unwrap().starts_with("a)") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for text in listed(&[]) {
            let pid = format!(" {} ", child.id());
            let line = text.lines().find(|line| line.contains(&pid) && line.contains("a) R")).unwrap();
            assert!(line.contains("a) R\\x0a\\x1b[2J"), "{line}");
            assert!(!text.contains('\x1b'));
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
