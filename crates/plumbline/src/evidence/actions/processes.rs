//! Every process, and where the blocked ones wait.

use std::io::Write;
use std::path::Path;

use anyhow::Result;

use super::{Task, heading, procfs};
use crate::evidence::output::Output;

/// Blocked threads whose kernel stacks are shown.
const STACKS: usize = 256;
/// USER_HZ, in which /proc counts time: 100 but on Alpha and IA-64.
const TICKS: u64 = 100;

/// The process list. /proc/PID/cmdline is left out: it waits for the memory map's lock, which a process that hangs in
/// a page fault on a dead mount holds.
pub fn processes(task: &Task, out: &mut Output) -> Result<()> {
    list(Path::new("/proc"), &task.scope.pids, out)
}

/// What /proc/PID/stat says.
struct Stat {
    state: char,
    parent: u32,
    cpu_ms: u64,
    threads: u64,
    started: u64,
}

fn list(proc: &Path, affected: &[u32], out: &mut Output) -> Result<()> {
    writeln!(out, "# * marks processes whose operations were slow or failed. STARTED is in seconds after boot.")?;
    writeln!(
        out,
        "  {:>8} {:>8} {:>6} S {:>5} {:>9} {:>9} {:>10} {:<16} {:<24} CGROUP",
        "PID", "PPID", "UID", "THR", "RSS_KIB", "CPU_MS", "STARTED", "COMM", "WCHAN"
    )?;
    let mut blocked = Vec::new();
    for pid in procfs::numbers(proc) {
        out.check()?;
        let process = proc.join(pid.to_string());
        let Some(stat) = stat(&process) else { continue };
        let status = procfs::small(&process.join("status"), 4 << 10);
        let first = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()).unwrap_or("-")
        };
        writeln!(
            out,
            "{} {pid:>8} {:>8} {:>6} {} {:>5} {:>9} {:>9} {:>10} {:<16} {:<24} {}",
            if affected.contains(&pid) { '*' } else { ' ' },
            stat.parent,
            first("Uid:"),
            stat.state,
            stat.threads,
            first("VmRSS:"),
            stat.cpu_ms,
            stat.started,
            procfs::one_line(&process.join("comm")),
            procfs::one_line(&process.join("wchan")),
            cgroup(&process)
        )?;
        note_blocked(&process, pid, &stat, affected.contains(&pid), &mut blocked);
    }
    if !blocked.is_empty() {
        heading(out, "kernel stacks: blocked threads (D), and all threads of the processes marked")?;
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

/// Adds the process's threads whose stacks are worth showing.
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

/// The name is in brackets and may itself hold brackets, spaces and line breaks: what follows the last one counts.
fn stat(process: &Path) -> Option<Stat> {
    let text = procfs::small(&process.join("stat"), 4 << 10);
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    // proc_pid_stat(5) counts from 1, and the state is 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: number(4)?.try_into().ok()?,
        cpu_ms: (number(14)? + number(15)?) * 1000 / TICKS,
        threads: number(20)?,
        started: number(22)? / TICKS,
    })
}

/// The unified hierarchy's line, else the first.
fn cgroup(process: &Path) -> String {
    let text = procfs::small(&process.join("cgroup"), 4 << 10);
    let line = text.lines().find_map(|line| line.strip_prefix("0::")).or_else(|| text.lines().next());
    line.unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::output::tests::output_of;

    #[test]
    fn this_process_is_listed_and_marked_with_its_threads() {
        let me = std::process::id();
        let text = output_of(|out| list(Path::new("/proc"), &[me], out));
        let marked: Vec<&str> = text.lines().filter(|line| line.starts_with("* ")).collect();
        assert_eq!(marked.len(), 1, "{text}");
        assert!(marked[0].contains(&me.to_string()));
        assert!(text.contains(&format!("{me}/{me} ")), "{text}");
    }

    #[test]
    fn a_hostile_name_stays_on_its_line() {
        let proc = tempfile::tempdir().unwrap();
        let process = proc.path().join("7");
        std::fs::create_dir(&process).unwrap();
        let rest = (4..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        std::fs::write(process.join("stat"), format!("7 (a) R 1\n\x1b[2J) D {rest}")).unwrap();
        std::fs::write(process.join("comm"), "a) R 1\n\x1b[2J\n").unwrap();
        let text = output_of(|out| list(proc.path(), &[], out));
        let line = text.lines().find(|line| line.contains(" 7 ")).unwrap();
        assert!(line.contains(" D ") && line.contains("a) R 1\\x0a\\x1b[2J"), "{line}");
        assert!(!text.contains('\x1b'));
    }
}
