//! The form of a process: a row of the table, or a JSON object.

use std::{io, io::Write};

use model::{PodNames, text::printable};
use probes::tasks::Task;
use serde::Serialize;

use super::{files::FileRow, maps::MapRow};
use crate::{
    io::rows::size,
    view::{
        processes::Namer,
        table::{Table, TableColumn},
    },
};

/// The columns. The last one is the command line, if requested, else the cgroup.
pub fn columns(args: bool) -> [TableColumn; 14] {
    let last = if args { TableColumn::rest("COMMAND LINE", 16) } else { TableColumn::rest("CGROUP", 16).optional(4) };
    [
        TableColumn::number("PID", 7),
        TableColumn::number("PPID", 7).optional(6),
        TableColumn::text("USER", 10).cut_to(6).optional(1),
        TableColumn::text("S", 1),
        TableColumn::number("THR", 4).optional(7),
        TableColumn::number("%CPU", 5),
        TableColumn::number("CPU", 11).optional(2),
        TableColumn::number("RSS", 9),
        TableColumn::number("READ", 9).optional(3),
        TableColumn::number("WRITTEN", 9).optional(3),
        TableColumn::text("STARTED (UTC)", 19).optional(8),
        TableColumn::text("COMM", 15),
        TableColumn::text("WAITS IN", 24).cut_to(12).optional(if args { 5 } else { 0 }),
        last,
    ]
}

/// A process or a thread. Field names are stable: docs/processes.md.
#[derive(Serialize)]
pub struct PsRow {
    pid: u32,
    tgid: u32,
    ppid: u32,
    uid: u32,
    user: String,
    gid: u32,
    comm: String,
    state: char,
    kernel: bool,
    threads: u32,
    started: String,
    cpu_ms: f64,
    cpu_percent: f64,
    rss_bytes: u64,
    read_bytes: u64,
    written_bytes: u64,
    read_chars: u64,
    written_chars: u64,
    cgroup: String,
    container: String,
    job: String,
    #[serde(flatten)]
    names: PodNames,
    wait_channel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maps: Option<Vec<MapRow>>,
}

impl PsRow {
    pub fn print(&self, table: &Table, out: &mut impl Write) -> io::Result<()> {
        let started = self.started.get(..19).unwrap_or_default().replace('T', " ");
        let cells = [
            &self.pid.to_string(),
            &self.ppid.to_string(),
            &self.user,
            &self.state.to_string(),
            &self.threads.to_string(),
            &percent(self.cpu_percent),
            &cpu(self.cpu_ms),
            &size(self.rss_bytes),
            &size(self.read_bytes),
            &size(self.written_bytes),
            &started,
            &self.comm,
            self.wait_channel.as_deref().unwrap_or("-"),
            self.args.as_deref().unwrap_or(&self.cgroup),
        ];
        table.row(out, &cells)?;
        self.files.iter().flatten().try_for_each(|file| file.print(out))?;
        self.maps.iter().flatten().try_for_each(|map| map.print(out))
    }
}

/// `0`, `0.4`, `12`, `230`.
fn percent(percent: f64) -> String {
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// `1.23 s`, `12:03 min`, `123:04 h`.
fn cpu(ms: f64) -> String {
    let seconds = ms / 1000.0;
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.2} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole % 3600 / 60),
    }
}

impl PsRow {
    /// The row of a task. `cpu_percent`: its share of one CPU. `args`: whether to read the command line.
    pub fn of(task: &Task, namer: &mut Namer, cpu_percent: f64, args: bool) -> Self {
        let ((read_bytes, written_bytes), (read_chars, written_chars)) = (task.io_bytes(), task.io_chars());
        let cgroup = namer.cgroup(task);
        Self {
            pid: task.pid(),
            tgid: task.tgid(),
            ppid: task.ppid(),
            uid: task.uid(),
            user: namer.user(task.uid()),
            gid: task.gid(),
            comm: task.comm().to_string(),
            state: task.state(),
            kernel: task.is_kernel(),
            threads: task.threads(),
            started: namer.started(task),
            cpu_ms: task.cpu_ns() as f64 / 1e6,
            cpu_percent: (cpu_percent * 10.0).round() / 10.0,
            rss_bytes: namer.resident(task),
            read_bytes,
            written_bytes,
            read_chars,
            written_chars,
            cgroup: cgroup.path.clone(),
            container: cgroup.container.clone(),
            job: cgroup.job.clone(),
            names: cgroup.names.clone(),
            wait_channel: task.wait_channel(),
            args: args.then(|| command_line(task)),
            files: None,
            maps: None,
        }
    }
}

/// The command line in the process's memory, safe to print. Kernel threads and processes that have ended have their name in brackets.
fn command_line(task: &Task) -> String {
    let read = || std::fs::read(format!("/proc/{}/cmdline", task.tgid())).ok();
    match read().filter(|line| !line.is_empty()) {
        Some(line) => {
            let words = line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0);
            words.map(printable).collect::<Vec<_>>().join(" ")
        }
        None => format!("[{}]", task.comm()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_has_the_unit_that_it_needs() {
        let shown = [12.0, 59_990.0, 61_000.0, 7_384_000.0].map(cpu);
        assert_eq!(shown, ["0.01 s", "59.99 s", "1:01 min", "2:03 h"]);
    }
}
