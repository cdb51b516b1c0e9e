//! What ran below a system call, in JSON and as a tree.

use std::io::{self, Write};

use diagnose::{Below, Child};
use model::{BelowLine, CallLine, ChildLine, EventLine, Nanos};

use super::event::{errno_name, milliseconds, status_of};

/// The line of an event; `below` only of a system call.
pub fn call<'a>(event: EventLine<'a>, start: Nanos, below: Option<&Below>) -> CallLine<'a> {
    CallLine { event, below: below.map(|below| operations(start, below)) }
}

/// What ran below a call that began at `start`.
fn operations(start: Nanos, below: &Below) -> BelowLine<'static> {
    let lines = |children: &[Child]| children.iter().map(|child| line(start, child)).collect();
    BelowLine {
        children: lines(&below.children),
        children_count: below.count,
        children_ms: milliseconds(below.covered),
        meanwhile: lines(&below.meanwhile),
        meanwhile_count: below.meanwhile_count,
        children_incomplete: below.incomplete,
    }
}

fn line(start: Nanos, child: &Child) -> ChildLine<'static> {
    let phases = child.phases.known().then_some(child.phases);
    ChildLine {
        protocol: child.operation.protocol().name.into(),
        operation: child.operation.name().into(),
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
        let line = line(start, child);
        let ms = |ms: Option<f64>| ms.map_or_else(|| "-".into(), |ms| format!("{ms:.3}"));
        let outcome = match (line.in_flight, line.status, line.errno) {
            (true, ..) => "in flight".to_owned(),
            (_, Some(status), _) => status.trim_start_matches("STATUS_").to_owned(),
            (.., Some(errno)) => errno,
            _ => "-".to_owned(),
        };
        let times = [Some(line.after_ms), Some(line.duration_ms), line.queue_ms, line.wire_ms, line.deliver_ms];
        let [after, duration, queue, wire, deliver] = times.map(ms);
        columns([&line.operation, &after, &duration, &queue, &wire, &deliver, &line.bytes.to_string(), &outcome])
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
        let write = probes::protocol("smb").unwrap().operation("write").unwrap();
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
