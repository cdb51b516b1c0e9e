//! What ran below a system call, in JSON and as a tree.

use std::io::{self, Write};

use diagnose::{Below, Child};
use model::Nanos;
use serde::Serialize;

use super::event::{EventLine, errno_name, milliseconds, status_of};

/// A system call as other programs read it: its event, and what ran below it where that can be told.
#[derive(Serialize)]
pub struct CallLine<'a> {
    #[serde(flatten)]
    event: EventLine<'a>,
    #[serde(flatten)]
    below: Option<BelowLine>,
}

impl<'a> CallLine<'a> {
    /// The line of an event; `below` only of a system call.
    pub fn new(event: EventLine<'a>, start: Nanos, below: Option<&Below>) -> Self {
        Self { event, below: below.map(|below| BelowLine::new(start, below)) }
    }
}

/// The operations below a call. Field names are stable; times are milliseconds.
#[derive(Serialize)]
pub struct BelowLine {
    /// The longest, in the order of their starts.
    children: Vec<ChildLine>,
    /// How many there were, listed or not.
    children_count: usize,
    /// For how long one of them was under way.
    children_ms: f64,
    /// Operations of kernel threads on the same mount meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    meanwhile: Vec<ChildLine>,
    /// How many there were, listed or not.
    meanwhile_count: usize,
    /// Some may be missing.
    children_incomplete: bool,
}

/// One operation below a call.
#[derive(Serialize)]
struct ChildLine {
    protocol: &'static str,
    operation: &'static str,
    /// From the call's start until this was asked for; below zero for what began before.
    after_ms: f64,
    duration_ms: f64,
    queue_ms: Option<f64>,
    wire_ms: Option<f64>,
    deliver_ms: Option<f64>,
    status: Option<String>,
    errno: Option<String>,
    bytes: u64,
    connection: u64,
    failed: bool,
    in_flight: bool,
}

impl BelowLine {
    /// What ran below a call that began at `start`.
    pub fn new(start: Nanos, below: &Below) -> Self {
        let lines = |children: &[Child]| children.iter().map(|child| ChildLine::new(start, child)).collect();
        Self {
            children: lines(&below.children),
            children_count: below.count,
            children_ms: milliseconds(below.covered),
            meanwhile: lines(&below.meanwhile),
            meanwhile_count: below.meanwhile_count,
            children_incomplete: below.incomplete,
        }
    }
}

impl ChildLine {
    fn new(start: Nanos, child: &Child) -> Self {
        let phases = child.phases.known().then_some(child.phases);
        Self {
            protocol: child.operation.protocol().name,
            operation: child.operation.name(),
            after_ms: after(start, child),
            duration_ms: milliseconds(child.duration),
            queue_ms: phases.map(|phases| milliseconds(phases.queue)),
            wire_ms: phases.map(|phases| milliseconds(phases.wire)),
            deliver_ms: phases.map(|phases| milliseconds(phases.deliver)),
            status: status_of(child.operation, child.status, child.flags),
            errno: errno_name(child.errno),
            bytes: child.bytes,
            connection: child.connection,
            failed: child.flags.failed,
            in_flight: child.flags.in_flight,
        }
    }
}

/// From the call's start until the child was asked for, milliseconds.
fn after(start: Nanos, child: &Child) -> f64 {
    milliseconds(child.start.saturating_sub(start)) - milliseconds(start.saturating_sub(child.start))
}

/// Writes the heading of [`branches`].
///
/// # Errors
///
/// Those of writing.
pub fn heading(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  └─ {}", columns(["BELOW IT", "AFTER MS", "MS", "QUEUE", "WIRE", "DELIVER", "BYTES", "STATUS"]))
}

fn columns(cells: [&str; 8]) -> String {
    let [operation, after, ms, queue, wire, deliver, bytes, status] = cells;
    format!("{operation:<20}  {after:>10}  {ms:>10}  {queue:>9}  {wire:>9}  {deliver:>9}  {bytes:>9}  {status}")
}

/// Writes the branches of the tree whose root is a call that began at `start`: a row for each operation below, and what is not listed.
///
/// # Errors
///
/// Those of writing.
pub fn branches(out: &mut impl Write, start: Nanos, below: &Below) -> io::Result<()> {
    let row = |child: &Child| {
        let line = ChildLine::new(start, child);
        let ms = |ms: Option<f64>| ms.map_or_else(|| "-".into(), |ms| format!("{ms:.3}"));
        let outcome = match (line.in_flight, line.status, line.errno) {
            (true, ..) => "in flight".to_owned(),
            (_, Some(status), _) => status.trim_start_matches("STATUS_").to_owned(),
            (.., Some(errno)) => errno,
            _ => "-".to_owned(),
        };
        let times = [Some(line.after_ms), Some(line.duration_ms), line.queue_ms, line.wire_ms, line.deliver_ms];
        let [after, duration, queue, wire, deliver] = times.map(ms);
        columns([line.operation, &after, &duration, &queue, &wire, &deliver, &line.bytes.to_string(), &outcome])
    };
    let mut rows: Vec<String> = below.children.iter().map(row).collect();
    if below.count > below.children.len() {
        let (rest, ms) = (below.count - below.children.len(), milliseconds(below.covered));
        rows.push(format!("and {rest} shorter ones; with all {} something was under way for {ms:.3} ms", below.count));
    }
    if below.incomplete {
        rows.push("more may be missing: they were not seen, or are overwritten by now".into());
    }
    if below.meanwhile_count > 0 {
        rows.push(format!("meanwhile {} of the kernel's own on this mount:", below.meanwhile_count));
    }
    let (last, before) = match rows.split_last() {
        Some(split) => split,
        None => return Ok(()),
    };
    for row in before {
        writeln!(out, "  ├─ {row}")?;
    }
    writeln!(out, "  └─ {last}")?;
    for child in &below.meanwhile {
        writeln!(out, "     ~  {}", row(child))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Flags, Phases};

    #[test]
    fn the_tree_is_aligned_and_says_what_it_leaves_out() {
        let write = probes::smb::PROTOCOL.operation("write").unwrap();
        let child = |start, status| Child {
            operation: write,
            start,
            duration: 12_345_000,
            phases: Phases { queue: 1_000_000, wire: 11_000_000, deliver: 345_000 },
            status,
            errno: 0,
            bytes: 4096,
            connection: 1,
            flags: Flags::default(),
        };
        let below = Below {
            children: vec![child(1_500_000, 0)],
            count: 3,
            covered: 20_000_000,
            meanwhile: vec![child(500_000, 0xc000_007f)],
            meanwhile_count: 1,
            incomplete: true,
        };
        let mut out = Vec::new();
        branches(&mut out, 1_000_000, &below).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  ├─ SMB2_WRITE                 0.500      12.345      1.000     11.000      0.345       4096  SUCCESS\n  \
               ├─ and 2 shorter ones; with all 3 something was under way for 20.000 ms\n  \
               ├─ more may be missing: they were not seen, or are overwritten by now\n  \
               └─ meanwhile 1 of the kernel's own on this mount:\n     \
                  ~  SMB2_WRITE                -0.500      12.345      1.000     11.000      0.345       4096  DISK_FULL\n"
        );
    }
}
