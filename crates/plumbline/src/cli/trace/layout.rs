//! What the table shows of an event: the columns that its probe names.

use model::{Event, Protocol};
use probes::Cell;

use crate::view::{
    event::{errno_name, milliseconds, status_of},
    table::Column,
};

/// The columns of one probe's events.
#[derive(Clone, Copy)]
pub(super) struct Layout(&'static [probes::Column]);

impl Layout {
    pub fn of(protocol: &Protocol) -> Self {
        Self(probes::columns(protocol))
    }

    /// In the order of [`Layout::row`].
    pub fn columns(self) -> Vec<Column> {
        self.0.iter().map(|column| (column.heading, column.width)).collect()
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

fn ms(ns: u64) -> String {
    format!("{:.3}", milliseconds(ns))
}

fn phase(event: &Event, ns: u64) -> String {
    if event.phases.known() { ms(ns) } else { "-".into() }
}

fn status(event: &Event) -> Option<String> {
    status_of(event.operation, event.status, event.flags)
}
