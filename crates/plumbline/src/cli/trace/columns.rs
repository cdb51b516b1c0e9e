//! The columns of an event's table, which its probe names.

use model::{Event, Protocol, errno_name};
use probes::EventCell;

use crate::view::{
    event::{ms, status_of},
    table::TableColumn,
};

/// The columns of one probe's events.
#[derive(Clone, Copy)]
pub(super) struct EventColumns(&'static [probes::EventColumn]);

impl EventColumns {
    pub fn of(protocol: &Protocol) -> Self {
        Self(probes::columns(protocol))
    }

    /// In the order of [`EventColumns::row`].
    pub fn columns(self) -> Vec<TableColumn> {
        self.0.iter().map(column).collect()
    }

    /// The cells of an event that began at that time of day.
    pub fn row(self, event: &Event, time: &str, mount: &str) -> Vec<String> {
        let cell = |column: &probes::EventColumn| match column.cell {
            EventCell::Time => time.to_owned(),
            EventCell::Operation => event.operation.name().to_owned(),
            EventCell::Duration => ms(event.duration),
            EventCell::Queue => phase(event, event.phases.queue),
            EventCell::Wire => phase(event, event.phases.wire),
            EventCell::Deliver => phase(event, event.phases.deliver),
            EventCell::Bytes if event.flags.bytes_unknown => "?".into(),
            EventCell::Bytes => event.bytes.to_string(),
            EventCell::Status => {
                let status = status(event).or_else(|| errno_name(event.errno)).unwrap_or_default();
                status.trim_start_matches("STATUS_").to_owned()
            }
            EventCell::State => status(event).unwrap_or_else(|| "-".into()),
            EventCell::Error => errno_name(event.errno).unwrap_or_else(|| "-".into()),
            EventCell::Pid => event.requester.pid.to_string(),
            EventCell::Comm => event.requester.comm.to_string(),
            EventCell::Mount => mount.to_owned(),
            EventCell::File => event.detail.file().map(|file| file.name.to_string()).unwrap_or_default(),
            EventCell::Own(own) => own(event),
        };
        self.0.iter().map(cell).collect()
    }
}

/// The column with its rank on a narrow terminal. At 80 characters, these remain: time, operation, duration, time on the wire, process and mount.
fn column(of: &probes::EventColumn) -> TableColumn {
    const LEAST: usize = 12;
    let width = usize::from(of.width.unsigned_abs());
    let column = match of.width {
        0 => return TableColumn::rest(of.heading, LEAST),
        ..0 => TableColumn::number(of.heading, width),
        _ => TableColumn::text(of.heading, width),
    };
    match of.cell {
        EventCell::Time | EventCell::Duration => column,
        EventCell::Operation | EventCell::Mount => column.cut_to(LEAST.min(width)),
        EventCell::Comm => column.cut_to(8).optional(1),
        EventCell::Wire => column.optional(2),
        EventCell::Pid => column.optional(3),
        EventCell::Status => column.cut_to(LEAST).optional(4),
        EventCell::Error | EventCell::State => column.optional(4),
        EventCell::Bytes => column.optional(5),
        EventCell::Queue => column.optional(6),
        EventCell::Deliver => column.optional(7),
        EventCell::File | EventCell::Own(_) => column.cut_to(LEAST.min(width)).optional(1),
    }
}

fn phase(event: &Event, ns: u64) -> String {
    if event.phases.known() { ms(ns) } else { "-".into() }
}

fn status(event: &Event) -> Option<String> {
    status_of(event.operation, event.status, event.flags)
}
