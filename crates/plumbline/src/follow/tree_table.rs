//! Trees on a terminal: a row for each operation in aligned columns, and a line for operations that are left out.

use std::io::{self, Write};

use diagnose::{OperationTree, counted};
use model::{Event, Nanos, SendTiming, errno_name};

use super::names::TreeNames;
use crate::view::{
    event::{caller_of, known_ms, ms, status_of},
    paint,
    table::{Table, TableColumn},
};

/// Columns, in the order of a row's cells.
const COLUMNS: [TableColumn; 14] = [
    TableColumn::number("TIME (UTC)", 15),
    TableColumn::text("LAYER", 9),
    TableColumn::text("OPERATION", 24).cut_to(16),
    TableColumn::number("MS", 7),
    TableColumn::number("OWN", 7).optional(3),
    TableColumn::number("QUEUE", 7).optional(8),
    TableColumn::number("WIRE", 7).optional(6),
    TableColumn::number("DELIVER", 7).optional(9),
    TableColumn::number("BYTES", 9).optional(5),
    TableColumn::text("ERROR", 12).cut_to(8).optional(4),
    TableColumn::number("PID", 8).optional(7),
    TableColumn::text("COMM", 16).cut_to(8).optional(2),
    TableColumn::text("MOUNT", 24).cut_to(12).optional(2),
    TableColumn::rest("FILE", 10).optional(1),
];
/// The indexes of columns that may have a colour.
const OWN: usize = 4;
const ERROR: usize = 9;
/// The mark of a kernel operation, or of one for which the call did not wait.
const MEANWHILE: &str = "~ ";
/// Rows between repeated headings on a terminal.
const ROWS_PER_HEADING: usize = 200;

/// Writes trees as rows.
pub struct TreeTable {
    table: Table,
    /// The most operations that are shown below one operation.
    most: usize,
    terminal: bool,
    rows: usize,
}

/// The context of a row.
struct TreeRow<'a> {
    /// The tree's first operation. Times are compared with its duration to find where most of the time went.
    top: &'a Event,
    /// The operation above, whose process, mount and file are not repeated.
    above: Option<&'a Event>,
    /// The lines of the tree before the operation's name.
    stem: String,
}

impl TreeTable {
    /// A table with lines of `room` characters, and at most `most` operations below each.
    pub fn new(room: Option<usize>, most: usize) -> Self {
        Self { table: Table::new(&COLUMNS, room), most, terminal: room.is_some(), rows: 0 }
    }

    /// Writes the headings.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn heading(&self, out: &mut impl Write) -> io::Result<()> {
        self.table.header(out)
    }

    /// Writes a tree.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn show(&mut self, out: &mut impl Write, tree: &OperationTree, names: &TreeNames) -> io::Result<()> {
        if self.terminal && self.rows >= ROWS_PER_HEADING {
            self.heading(out)?;
            self.rows = 0;
        }
        let row = TreeRow { top: &tree.event, above: None, stem: String::new() };
        self.row(out, &row, &tree.event, Some(tree.own()), names)?;
        self.below(out, tree, &tree.event, "", names)
    }

    /// Writes the rows below an operation, each beginning with `before`.
    fn below(
        &mut self,
        out: &mut impl Write,
        tree: &OperationTree,
        top: &Event,
        before: &str,
        names: &TreeNames,
    ) -> io::Result<()> {
        let children = tree.longest_children(self.most);
        let meanwhile = tree.longest_meanwhile(self.most);
        let remarks = remarks(tree, &children, &meanwhile);
        let rows = children.len() + remarks.len();
        let row = |stem: String| TreeRow { top, above: Some(&tree.event), stem };
        for (place, child) in children.iter().enumerate() {
            let (stem, on) = if place + 1 == rows { ("└ ", "  ") } else { ("├ ", "│ ") };
            self.row(out, &row(format!("{before}{stem}")), &child.event, Some(child.own()), names)?;
            self.below(out, child, top, &format!("{before}{on}"), names)?;
        }
        for (place, remark) in remarks.iter().enumerate() {
            let stem = if children.len() + place + 1 == rows { "└ " } else { "├ " };
            self.remark(out, &format!("{before}{stem}{remark}"))?;
        }
        for event in meanwhile {
            self.row(out, &row(format!("{before}{MEANWHILE}")), event, None, names)?;
        }
        Ok(())
    }

    /// Writes a remark, indented to the column of operations.
    fn remark(&mut self, out: &mut impl Write, text: &str) -> io::Result<()> {
        self.rows += 1;
        let before =
            [0, 1].iter().filter_map(|place| self.table.width_of(*place)).map(|width| width + 2).sum::<usize>();
        writeln!(out, "{:before$}{text}", "")
    }

    fn row(
        &mut self,
        out: &mut impl Write,
        row: &TreeRow<'_>,
        event: &Event,
        own: Option<u64>,
        names: &TreeNames,
    ) -> io::Result<()> {
        self.rows += 1;
        let time = match row.above {
            None => names.clock.time_of_day(event.start),
            Some(_) => after(row.top.start, event.start),
        };
        let phase = |ns| known_ms(event.phases.known().then_some(ns));
        let [queue, wire, deliver] = [event.phases.queue, event.phases.wire, event.phases.deliver].map(phase);
        // A value that equals the one above is not repeated.
        let is_new = |of: fn(&Event) -> (u32, u32)| row.above.is_none_or(|above| of(above) != of(event));
        let who = is_new(|event| (event.requester.pid, event.requester.tid));
        let mount = names.mount_label(event);
        let mount = if row.above.is_some_and(|above| names.mount_label(above) == mount) { "" } else { mount };
        let file = file(event);
        let file = if row.above.is_some_and(|above| self::file(above) == file) { String::new() } else { file };
        let bytes = match event.bytes {
            _ if event.flags.bytes_unknown => "?".to_owned(),
            0 => String::new(),
            bytes => bytes.to_string(),
        };
        let own = own.map_or_else(String::new, |own| self.own(row.top, own));
        let error = outcome(event);
        let error = if event.flags.failed { paint::red(&error, self.width(ERROR)) } else { error };
        let (pid, comm) = (event.requester.pid.to_string(), event.requester.comm.to_string());
        let phases_known = event.phases.known();
        let shown = |text: &str, is: bool| if is { text.to_owned() } else { String::new() };
        let cells = [
            time,
            event.operation.protocol().name.to_owned(),
            format!("{}{}", row.stem, name(event, row.above.is_none() || own.is_empty())),
            ms(event.duration),
            own,
            shown(&queue, phases_known),
            shown(&wire, phases_known),
            shown(&deliver, phases_known),
            bytes,
            error,
            shown(&pid, who && event.requester.pid != 0),
            shown(&comm, who),
            mount.to_owned(),
            file,
        ];
        self.table.row(out, &cells.each_ref().map(String::as_str))
    }

    /// An operation's own time, coloured if it is at least half of the tree's time.
    fn own(&self, top: &Event, own: u64) -> String {
        let text = format!("{:>1$}", ms(own), self.width(OWN));
        if own * 2 >= top.duration && own > 0 { paint::yellow(&text, self.width(OWN)) } else { text }
    }

    fn width(&self, place: usize) -> usize {
        self.table.width_of(place).unwrap_or_default()
    }
}

/// `+1.25`: milliseconds after the tree's start.
fn after(top: Nanos, start: Nanos) -> String {
    match start.checked_sub(top) {
        Some(after) => format!("+{}", ms(after)),
        None => format!("-{}", ms(top - start)),
    }
}

/// The operation's name; if no operation above it is its caller, also the caller.
fn name(event: &Event, tells_caller: bool) -> String {
    let name = event.operation.name();
    let is_request = event.operation.level().is_remote();
    match caller_of(event).filter(|_| tells_caller && is_request) {
        Some(caller) => format!("{name} ({caller})"),
        None => name.to_owned(),
    }
}

/// The operation's error, if it failed.
fn outcome(event: &Event) -> String {
    if event.flags.in_flight {
        return "in flight".to_owned();
    }
    let status =
        status_of(event.operation, event.status, event.flags).filter(|_| event.flags.failed || event.flags.unanswered);
    let said = status.or_else(|| errno_name(event.errno)).unwrap_or_default();
    said.trim_start_matches("STATUS_").to_owned()
}

fn file(event: &Event) -> String {
    event.detail.file().map(|file| file.name.to_string()).unwrap_or_default()
}

/// Remarks about operations that are not shown, and about TCP's share of a request.
fn remarks(tree: &OperationTree, children: &[&OperationTree], meanwhile: &[&Event]) -> Vec<String> {
    let mut remarks: Vec<_> = tree.event.stamped().map(sends).into_iter().collect();
    let left_out = tree.children.len() - children.len();
    if left_out > 0 {
        let all = tree.children.len();
        let covered = ms(tree.covered());
        remarks.push(format!("and {left_out} shorter ones; at least one of all {all} was under way for {covered} ms"));
    }
    if tree.incomplete {
        remarks.push("more ran below this operation: shown above, since too many waited for its end".into());
    }
    let left_out = tree.meanwhile.len() - meanwhile.len();
    if left_out > 0 {
        remarks.push(format!("and {left_out} shorter ones meanwhile, besides those that follow"));
    }
    remarks
}

/// TCP's share of a request.
fn sends(timing: SendTiming) -> String {
    let [least, most, held, local] = [timing.least, timing.most, timing.held, timing.local].map(ms);
    let again = match timing.retransmitted {
        0 => String::new(),
        times => format!("; segments were sent again {times} times"),
    };
    let sends = counted(timing.sends.into(), "send");
    format!(
        "tcp: {sends}, acknowledged after {least} to {most} ms; held {held} ms by TCP, {local} ms in this host's queue{again}"
    )
}
