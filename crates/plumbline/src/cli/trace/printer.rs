//! Prints events as a table, JSON or comma-separated values.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, BufWriter, IsTerminal, Write},
    time::Instant,
};

use diagnose::Below;
use model::{Event, EventLine, Mount, MountKey, Nanos, Protocol};
use probes::ProbeSet;

use super::{TraceArguments, columns::EventColumns, idle::Heartbeat};
use crate::detection;
use crate::view::{
    below::{self, BelowTree},
    clock::Clock,
    event,
    table::Table,
};
use crate::who::Cgroups;

/// Rows between repeated headings on a terminal.
const ROWS_PER_HEADING: u64 = 200;

#[derive(Clone, Copy)]
enum TraceFormat {
    Table(EventColumns),
    Json,
    Csv,
}

pub(super) struct TracePrinter {
    form: TraceFormat,
    table: Table,
    tree: BelowTree,
    out: BufWriter<io::Stdout>,
    clock: Clock,
    mounts: HashMap<MountKey, Mount>,
    cgroups: Cgroups,
    rows: u64,
    terminal: bool,
    /// The status line while no event is shown.
    pub heartbeat: Heartbeat,
    /// Whether the operations below each call are shown.
    pub children: bool,
    /// Calls that have just ended: the recorder may still lack the operations below them.
    pub held: VecDeque<Event>,
    /// When the operations below them were last looked up.
    pub looked: Instant,
}

impl TracePrinter {
    pub fn new(arguments: &TraceArguments, protocol: &'static Protocol, heartbeat: Heartbeat) -> io::Result<Self> {
        let form = match (arguments.json, arguments.csv) {
            (true, _) => TraceFormat::Json,
            (_, true) => TraceFormat::Csv,
            _ => TraceFormat::Table(EventColumns::of(protocol)),
        };
        let room = arguments.wide.room();
        let (table, tree) = (Table::new(&EventColumns::of(protocol).columns(), room), BelowTree::new(room));
        let terminal = io::stdout().is_terminal();
        let mut printer = Self {
            form,
            table,
            tree,
            out: BufWriter::new(io::stdout()),
            clock: Clock::now(),
            mounts: HashMap::new(),
            cgroups: Cgroups::default(),
            rows: 0,
            terminal,
            heartbeat,
            children: arguments.children,
            held: VecDeque::new(),
            looked: Instant::now(),
        };
        printer.heading()?;
        Ok(printer)
    }

    fn heading(&mut self) -> io::Result<()> {
        match self.form {
            TraceFormat::Table(_) => {
                self.table.header(&mut self.out)?;
                if self.children {
                    self.tree.heading(&mut self.out)?;
                }
            }
            TraceFormat::Csv => csv_header(&mut self.out)?,
            TraceFormat::Json => {}
        }
        self.out.flush()
    }

    /// Prints the calls that ended by `settled`, with the operations below them.
    pub fn print_held(&mut self, watch: &ProbeSet, settled: Nanos) -> io::Result<()> {
        let count = self.held.iter().take_while(|call| call.end() <= settled).count();
        if count == 0 {
            return Ok(());
        }
        self.looked = Instant::now();
        let calls: Vec<_> = self.held.drain(..count).collect();
        let recorder = || watch.recorder().unwrap_or_default();
        let found: HashMap<_, _> = detection::below(watch, &calls.iter().collect::<Vec<_>>(), recorder)
            .into_iter()
            .map(|(call, below)| ((call.requester.tid, call.start), below))
            .collect();
        calls.iter().try_for_each(|call| self.print(watch, call, found.get(&(call.requester.tid, call.start))))
    }

    pub fn print(&mut self, watch: &ProbeSet, event: &Event, below: Option<&Below>) -> io::Result<()> {
        self.heartbeat.event();
        // Names of mounts are looked up once until mounts change.
        let mount = self.mounts.entry(event.mount).or_insert_with(|| watch.mount(event.mount)).clone();
        let mut who = || self.cgroups.of(event.requester.pid, event.requester.cgroup);
        match self.form {
            TraceFormat::Json => {
                let who = who();
                let line = below::call(event::line(event, &mount, &who, &self.clock), event.start, below);
                serde_json::to_writer(&mut self.out, &line)?;
                writeln!(self.out)
            }
            TraceFormat::Csv => csv_line(&mut self.out, &event::line(event, &mount, &who(), &self.clock)),
            TraceFormat::Table(layout) => {
                self.row(layout, event, &mount)?;
                below.map_or(Ok(()), |below| self.tree.branches(&mut self.out, event.start, below))
            }
        }
    }

    fn row(&mut self, layout: EventColumns, event: &Event, mount: &Mount) -> io::Result<()> {
        if self.terminal && self.rows > 0 && self.rows.is_multiple_of(ROWS_PER_HEADING) {
            self.heading()?;
        }
        self.rows += 1;
        let cells = layout.row(event, &self.clock.time_of_day(event.start), mount.label());
        let cells: Vec<_> = cells.iter().map(String::as_str).collect();
        self.table.row(&mut self.out, &cells)
    }

    pub fn forget_mounts(&mut self) {
        self.mounts.clear();
        self.clock = Clock::now();
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Prints the names of the columns, even if no line follows.
fn csv_header(out: &mut impl Write) -> io::Result<()> {
    let mut sample = csv::Writer::from_writer(Vec::new());
    sample.serialize(EventLine::default()).map_err(io::Error::other)?;
    let sample = sample.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    out.write_all(sample.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default())
}

fn csv_line(out: &mut impl Write, line: &EventLine<'_>) -> io::Result<()> {
    let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(out);
    csv.serialize(line).map_err(io::Error::other)?;
    csv.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_the_same_columns_with_and_without_lines() {
        let (mut header, mut line) = (Vec::new(), Vec::new());
        csv_header(&mut header).unwrap();
        csv_line(&mut line, &EventLine::default()).unwrap();
        let text = String::from_utf8(header.clone()).unwrap();
        assert!(text.starts_with("time,probe,operation,duration_ms,") && text.ends_with(",weight\n"), "{text}");
        let commas = |text: &[u8]| text.iter().filter(|byte| **byte == b',').count();
        assert_eq!(commas(&header), commas(&line));
    }
}
