//! A status line while no event is shown: what is watched. On standard error, so that programs that read the output are not disturbed.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use model::{Level, Protocol};
use probes::ProbeSet;

use super::TraceArguments;
use crate::view::screen::StatusLine;

/// The most mounts that are named; if there are more, only their number is shown.
const NAMED: usize = 3;
/// How often the line is updated.
const EVERY: Duration = Duration::from_secs(2);

/// `none for 12 s: operations of 10 ms and longer; 340 operations seen`.
pub(super) struct Heartbeat {
    status: StatusLine,
    protocol: &'static Protocol,
    asked: String,
    last_event: Instant,
    last_line: Instant,
}

impl Heartbeat {
    /// Shows what is watched.
    pub fn begin(watch: &ProbeSet, protocol: &'static Protocol, arguments: &TraceArguments, min_ms: f64) -> Self {
        let (status, asked) = (StatusLine::new(io::stdout().is_terminal()), asked(arguments, min_ms));
        if status.is_seen() {
            eprintln!("watching {}: {asked}, {}; Ctrl-C ends", protocol.name, places(watch, protocol, arguments));
        }
        let now = Instant::now();
        Self { status, protocol, asked, last_event: now, last_line: now }
    }

    /// Clears the line, since an event is about to be printed.
    pub fn event(&mut self) {
        if self.status.is_seen() {
            self.last_event = Instant::now();
            self.status.clear();
        }
    }

    /// Updates the line, if no event was shown for a while.
    pub fn beat(&mut self, watch: &ProbeSet) {
        let now = Instant::now();
        let is_due = |last| now.duration_since(last) >= EVERY;
        if !self.status.is_seen() || !is_due(self.last_event) || !is_due(self.last_line) {
            return;
        }
        let seen = watch.counters().into_iter().filter(|(of, _)| *of == self.protocol).map(|(_, of)| of.finished);
        let quiet = now.duration_since(self.last_event).as_secs();
        let seen = diagnose::counted(seen.sum(), "operation");
        self.status.show(&format!("none for {quiet} s: {}; {seen} seen", self.asked));
        self.last_line = now;
    }
}

/// `operations of 10 ms and longer`.
fn asked(arguments: &TraceArguments, min_ms: f64) -> String {
    let what = match arguments.op.join(", ") {
        all if all.is_empty() && !arguments.errors && min_ms <= 0.0 => "every operation".to_owned(),
        all if all.is_empty() => "operations".to_owned(),
        some => some,
    };
    let failed = if arguments.errors { " that failed" } else { "" };
    let slow = if min_ms > 0.0 { format!(" of {min_ms} ms and longer") } else { String::new() };
    let who = arguments.pid.map_or_else(String::new, |pid| format!(" of process {pid}"));
    format!("{what}{failed}{slow}{who}")
}

/// `on 2 mounts (/mnt/a, /mnt/b)`.
fn places(watch: &ProbeSet, protocol: &Protocol, arguments: &TraceArguments) -> String {
    if let Some(mount) = &arguments.mount {
        return format!("on {}", mount.to_string_lossy());
    }
    if protocol.level == Level::Library {
        return "in every job".to_owned();
    }
    if arguments.all_filesystems || arguments.fstype.is_some() {
        return arguments.fstype.as_ref().map_or_else(|| "everywhere".into(), |fstype| format!("on {fstype}"));
    }
    let is_one = |fstype: &str| protocol.filesystems.is_empty() || protocol.filesystems.contains(&fstype);
    let mounts: Vec<_> = watch
        .mounts()
        .iter()
        .filter(|point| point.remote && is_one(&point.mount.fstype))
        .map(|point| point.mount.mountpoint.as_str())
        .collect();
    match mounts.len() {
        0 => "though nothing is mounted that it sees".to_owned(),
        1 => format!("on {}", mounts.concat()),
        many if many <= NAMED => format!("on {many} mounts ({})", mounts.join(", ")),
        many => format!("on {many} mounts"),
    }
}
