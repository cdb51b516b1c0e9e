//! The columns of a table of a probe's events: columns that all probes have, and columns of one probe only.

use model::Event;

/// A column.
pub struct EventColumn {
    /// What it is called.
    pub heading: &'static str,
    /// Width in characters. Below zero: aligned right. 0: the rest of the line.
    pub width: i16,
    /// What it shows.
    pub cell: EventCell,
}

/// What of an event a column shows.
#[derive(Clone, Copy)]
pub enum EventCell {
    /// When it was asked for.
    Time,
    /// Which operation.
    Operation,
    /// How long it took.
    Duration,
    /// Waiting before it was sent.
    Queue,
    /// Sent until received.
    Wire,
    /// Received until the requester had it.
    Deliver,
    /// Bytes moved.
    Bytes,
    /// How it ended: the protocol's status, else the errno.
    Status,
    /// The protocol's status alone.
    State,
    /// The errno.
    Error,
    /// The process.
    Pid,
    /// The thread's name.
    Comm,
    /// The mount.
    Mount,
    /// The file's name.
    File,
    /// A column that only the events of one probe have.
    Own(fn(&Event) -> String),
}

impl EventColumn {
    pub(crate) const fn new(heading: &'static str, width: i16, cell: EventCell) -> Self {
        Self { heading, width, cell }
    }

    pub(crate) const fn operation(width: i16) -> Self {
        Self::new("OPERATION", width, EventCell::Operation)
    }

    pub(crate) const fn bytes(width: i16) -> Self {
        Self::new("BYTES", width, EventCell::Bytes)
    }

    pub(crate) const fn mount(width: i16) -> Self {
        Self::new("MOUNT", width, EventCell::Mount)
    }
}

pub(crate) const TIME: EventColumn = EventColumn::new("TIME (UTC)", 15, EventCell::Time);
pub(crate) const DURATION: EventColumn = EventColumn::new("MS", -7, EventCell::Duration);
pub(crate) const ERROR: EventColumn = EventColumn::new("ERROR", 12, EventCell::Error);
pub(crate) const PID: EventColumn = EventColumn::new("PID", -8, EventCell::Pid);
pub(crate) const COMM: EventColumn = EventColumn::new("COMM", 16, EventCell::Comm);
pub(crate) const FILE: EventColumn = EventColumn::new("FILE", 0, EventCell::File);

/// For operations within this host: the file.
pub(crate) const LOCAL: &[EventColumn] = &[
    TIME,
    EventColumn::operation(9),
    DURATION,
    EventColumn::bytes(-9),
    ERROR,
    PID,
    COMM,
    EventColumn::mount(24),
    FILE,
];

/// For requests to a server: the phases, and the protocol's status.
pub(crate) const REMOTE: &[EventColumn] = &[
    TIME,
    EventColumn::operation(20),
    DURATION,
    EventColumn::new("QUEUE", -7, EventCell::Queue),
    EventColumn::new("WIRE", -7, EventCell::Wire),
    EventColumn::new("DELIVER", -7, EventCell::Deliver),
    EventColumn::bytes(-9),
    EventColumn::new("STATUS", 24, EventCell::Status),
    PID,
    COMM,
    EventColumn::mount(0),
];
