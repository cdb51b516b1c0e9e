//! What the table shows of an event: the columns that its probe names.

use model::{Event, Protocol};
use probes::Cell;

use crate::view::{
    event::{errno_name, ms, status_of},
    table::Column,
};

/// The columns of one probe's events.
#[derive(Clone, Copy)]
pub(super) struct EventColumns(&'static [probes::Column]);

impl EventColumns {
    pub fn of(protocol: &Protocol) -> Self {
        Self(probes::columns(protocol))
    }

    /// In the order of [`EventColumns::row`].
    pub fn columns(self) -> Vec<Column> {
        self.0.iter().map(column).collect()
    }

    /// The cells of an event that began at that time of day.
    pub fn row(self, event: &Event, time: &str, mount: &str) -> Vec<String> {
        let cell = |column: &probes::Column| match column.cell {
            Cell::Time => time.to_owned(),
            Cell::Operation => event.operation.name().to_owned(),
            Cell::Duration => ms(event.duration),
            Cell::Queue => phase(event, event.phases.queue),
            Cell::Wire => phase(event, event.phases.wire),
            Cell::Deliver => phase(event, event.phases.deliver),
            Cell::Bytes if event.flags.bytes_unknown => "?".into(),
            Cell::Bytes => event.bytes.to_string(),
            Cell::Status => {
                let status = status(event).or_else(|| errno_name(event.errno)).unwrap_or_default();
                status.trim_start_matches("STATUS_").to_owned()
            }
            Cell::State => status(event).unwrap_or_else(|| "-".into()),
            Cell::Error => errno_name(event.errno).unwrap_or_else(|| "-".into()),
            Cell::Pid => event.requester.pid.to_string(),
            Cell::Comm => event.requester.comm.to_string(),
            Cell::Mount => mount.to_owned(),
            Cell::File => event.detail.file().map(|file| file.name.to_string()).unwrap_or_default(),
            Cell::Own(own) => own(event),
        };
        self.0.iter().map(cell).collect()
    }
}

/// How a probe's column gives way on a narrow terminal: what is left at 80 characters is when, what, for how long, how much of it on the wire, by whom
/// and where.
fn column(of: &probes::Column) -> Column {
    const LEAST: usize = 12;
    let width = usize::from(of.width.unsigned_abs());
    let column = match of.width {
        0 => return Column::rest(of.heading, LEAST),
        ..0 => Column::number(of.heading, width),
        _ => Column::text(of.heading, width),
    };
    match of.cell {
        Cell::Time | Cell::Duration => column,
        Cell::Operation | Cell::Mount => column.cut_to(LEAST.min(width)),
        Cell::Comm => column.cut_to(8).optional(1),
        Cell::Wire => column.optional(2),
        Cell::Pid => column.optional(3),
        Cell::Status => column.cut_to(LEAST).optional(4),
        Cell::Error | Cell::State => column.optional(4),
        Cell::Bytes => column.optional(5),
        Cell::Queue => column.optional(6),
        Cell::Deliver => column.optional(7),
        Cell::File | Cell::Own(_) => column.cut_to(LEAST.min(width)).optional(1),
    }
}

fn phase(event: &Event, ns: u64) -> String {
    if event.phases.known() { ms(ns) } else { "-".into() }
}

fn status(event: &Event) -> Option<String> {
    status_of(event.operation, event.status, event.flags)
}
