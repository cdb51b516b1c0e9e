//! How a process looks: a row of the table, or an object of JSON.

use std::{io, io::Write};

use probes::tasks::Task;
use serde::Serialize;

use super::{files::FileRow, maps::MapRow};
use crate::{
    io::{jobs::container_of, rows::size},
    view::{
        processes::Namer,
        table::{Column, Table},
    },
};

pub const COLUMNS: &[Column] = &[
    ("PID", -7),
    ("PPID", -7),
    ("UID", -6),
    ("S", 1),
    ("THR", -4),
    ("CPU", -11),
    ("RSS", -9),
    ("READ", -9),
    ("WRITTEN", -9),
    ("STARTED (UTC)", 19),
    ("COMM", 15),
    ("WAITS IN", 24),
    ("CGROUP", 0),
];

/// A process or a thread. Field names are stable: docs/processes.md.
#[derive(Serialize)]
pub struct Row {
    pid: u32,
    tgid: u32,
    ppid: u32,
    uid: u32,
    gid: u32,
    comm: String,
    state: char,
    kernel: bool,
    threads: u32,
    started: String,
    cpu_ms: f64,
    rss_bytes: u64,
    read_bytes: u64,
    written_bytes: u64,
    read_chars: u64,
    written_chars: u64,
    cgroup: String,
    container: String,
    wait_channel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maps: Option<Vec<MapRow>>,
}

impl Row {
    pub fn print(&self, table: &Table, out: &mut impl Write) -> io::Result<()> {
        let started = self.started.get(..19).unwrap_or_default().replace('T', " ");
        let cells = [
            &self.pid.to_string(),
            &self.ppid.to_string(),
            &self.uid.to_string(),
            &self.state.to_string(),
            &self.threads.to_string(),
            &cpu(self.cpu_ms),
            &size(self.rss_bytes),
            &size(self.read_bytes),
            &size(self.written_bytes),
            &started,
            &self.comm,
            self.wait_channel.as_deref().unwrap_or("-"),
            &self.cgroup,
        ];
        table.row(out, &cells)?;
        self.files.iter().flatten().try_for_each(|file| file.print(out))?;
        self.maps.iter().flatten().try_for_each(|map| map.print(out))
    }
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

impl Row {
    pub fn of(task: &Task, namer: &mut Namer) -> Self {
        let ((read_bytes, written_bytes), (read_chars, written_chars)) = (task.io_bytes(), task.io_chars());
        let cgroup = namer.cgroup(task);
        Self {
            pid: task.pid(),
            tgid: task.tgid(),
            ppid: task.ppid(),
            uid: task.uid(),
            gid: task.gid(),
            comm: task.comm().to_string(),
            state: task.state(),
            kernel: task.is_kernel(),
            threads: task.threads(),
            started: namer.started(task),
            cpu_ms: task.cpu_ns() as f64 / 1e6,
            rss_bytes: namer.resident(task),
            read_bytes,
            written_bytes,
            read_chars,
            written_chars,
            container: container_of(&cgroup).unwrap_or_default().to_owned(),
            cgroup,
            wait_channel: task.wait_channel(),
            files: None,
            maps: None,
        }
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
