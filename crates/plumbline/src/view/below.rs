//! The operations below a system call, in JSON and as a tree.

use std::io::{self, Write};

use diagnose::{Below, Child, counted};
use model::{BelowLine, CallLine, ChildLine, EventLine, Nanos, errno_name};

use super::{
    event::{known_ms, milliseconds, ms, status_of},
    table::{Table, TableColumn},
};

/// The line of an event. `below`: the operations below it, if it is a system call.
pub fn call<'a>(event: EventLine<'a>, start: Nanos, below: Option<&Below>) -> CallLine<'a> {
    CallLine { event, below: below.map(|below| operations(start, below)) }
}

/// The operations below a call that began at `start`.
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

/// The time from the call's start to the child's start, milliseconds.
fn after(start: Nanos, child: &Child) -> f64 {
    milliseconds(child.start.saturating_sub(start)) - milliseconds(start.saturating_sub(child.start))
}

/// Columns of the tree, in the order of its rows.
const COLUMNS: [TableColumn; 8] = [
    TableColumn::text("BELOW IT", 20).cut_to(12),
    TableColumn::number("AFTER MS", 8),
    TableColumn::number("MS", 7),
    TableColumn::number("QUEUE", 7).optional(3),
    TableColumn::number("WIRE", 7).optional(1),
    TableColumn::number("DELIVER", 7).optional(4),
    TableColumn::number("BYTES", 9).optional(2),
    TableColumn::rest("STATUS", 9),
];
/// Characters before the first column of a row.
const BRANCH: usize = 5;

/// Writes the operations below system calls as trees, whose rows fit the line.
pub struct BelowTree(Table);

impl BelowTree {
    /// In lines of so many characters.
    pub fn new(room: Option<usize>) -> Self {
        Self(Table::new(&COLUMNS, room.map(|room| room.saturating_sub(BRANCH))))
    }

    /// Writes the heading.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn heading(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "  └─ ")?;
        self.0.header(out)
    }

    /// Writes the branches of a tree whose root is a call that began at `start`: a row for each operation, and a row for those that are not listed.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn branches(&self, out: &mut impl Write, start: Nanos, below: &Below) -> io::Result<()> {
        let mut remarks = Vec::new();
        if below.count > below.children.len() {
            let (rest, covered) = (below.count - below.children.len(), ms(below.covered));
            remarks.push(format!(
                "and {rest} shorter ones; at least one of all {} was under way for {covered} ms",
                below.count
            ));
        }
        if below.incomplete {
            remarks.push("operations may be missing: not seen, or overwritten in the flight recorder".into());
        }
        if below.meanwhile_count > 0 {
            let operations = counted(below.meanwhile_count as u64, "operation");
            remarks.push(format!("meanwhile {operations} of the kernel itself on this mount:"));
        }
        let count = below.children.len() + remarks.len();
        let stem = |place: usize| if place + 1 == count { "  └─ " } else { "  ├─ " };
        for (place, child) in below.children.iter().enumerate() {
            write!(out, "{}", stem(place))?;
            self.row(out, start, child)?;
        }
        for (place, remark) in remarks.iter().enumerate() {
            writeln!(out, "{}{remark}", stem(below.children.len() + place))?;
        }
        for child in &below.meanwhile {
            write!(out, "  ~  ")?;
            self.row(out, start, child)?;
        }
        Ok(())
    }

    fn row(&self, out: &mut impl Write, start: Nanos, child: &Child) -> io::Result<()> {
        let outcome = if child.flags.in_flight {
            "in flight".to_owned()
        } else {
            let status = status_of(child.operation, child.status, child.flags).or_else(|| errno_name(child.errno));
            status.unwrap_or_else(|| "-".into()).trim_start_matches("STATUS_").to_owned()
        };
        // An operation of the kernel's own may have begun before the call.
        let after = match child.start.checked_sub(start) {
            Some(after) => ms(after),
            None => format!("-{}", ms(start - child.start)),
        };
        let phase = |ns| child.phases.known().then_some(ns);
        let [queue, wire, deliver] =
            [child.phases.queue, child.phases.wire, child.phases.deliver].map(|ns| known_ms(phase(ns)));
        let (duration, bytes) = (ms(child.duration), child.bytes.to_string());
        self.0.row(out, &[child.operation.name(), &after, &duration, &queue, &wire, &deliver, &bytes, &outcome])
    }
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
        let shown = |room| {
            let (tree, mut out) = (BelowTree::new(room), Vec::new());
            tree.heading(&mut out).unwrap();
            tree.branches(&mut out, 1_000_000, &below).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            shown(None),
            "  └─ BELOW IT              AFTER MS       MS    QUEUE     WIRE  DELIVER      BYTES  STATUS\n  \
               ├─ SMB2_WRITE               0.500     12.3     1.00     11.0    0.345       4096  SUCCESS\n  \
               ├─ and 2 shorter ones; at least one of all 3 was under way for 20.0 ms\n  \
               ├─ operations may be missing: not seen, or overwritten in the flight recorder\n  \
               └─ meanwhile 1 operation of the kernel itself on this mount:\n  \
               ~  SMB2_WRITE              -0.500     12.3     1.00     11.0    0.345       4096  DISK_FULL\n"
        );
        assert!(shown(Some(80)).lines().all(|line| line.chars().count() <= 80), "{}", shown(Some(80)));
    }
}
