//! What a table of a probe's events shows: columns that all have, and those that only one has.

use model::Event;

/// A column.
pub struct Column {
    /// What it is called.
    pub heading: &'static str,
    /// Characters; below zero: aligned right; 0: the rest of the line.
    pub width: i16,
    /// What it shows.
    pub cell: Cell,
}

/// What of an event a column shows.
#[derive(Clone, Copy)]
pub enum Cell {
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
    /// What only the events of one probe have.
    Own(fn(&Event) -> String),
}

impl Column {
    pub(crate) const fn new(heading: &'static str, width: i16, cell: Cell) -> Self {
        Self { heading, width, cell }
    }

    pub(crate) const fn operation(width: i16) -> Self {
        Self::new("OPERATION", width, Cell::Operation)
    }

    pub(crate) const fn bytes(width: i16) -> Self {
        Self::new("BYTES", width, Cell::Bytes)
    }

    pub(crate) const fn mount(width: i16) -> Self {
        Self::new("MOUNT", width, Cell::Mount)
    }
}

pub(crate) const TIME: Column = Column::new("TIME (UTC)", 15, Cell::Time);
pub(crate) const DURATION: Column = Column::new("MS", -7, Cell::Duration);
pub(crate) const ERROR: Column = Column::new("ERROR", 12, Cell::Error);
pub(crate) const PID: Column = Column::new("PID", -8, Cell::Pid);
pub(crate) const COMM: Column = Column::new("COMM", 16, Cell::Comm);
pub(crate) const FILE: Column = Column::new("FILE", 0, Cell::File);

/// Of what goes on in this host: the file.
pub(crate) const LOCAL: &[Column] =
    &[TIME, Column::operation(9), DURATION, Column::bytes(-9), ERROR, PID, COMM, Column::mount(24), FILE];

/// Of what a server is asked for: phases, and the protocol's status.
pub(crate) const REMOTE: &[Column] = &[
    TIME,
    Column::operation(20),
    DURATION,
    Column::new("QUEUE", -7, Cell::Queue),
    Column::new("WIRE", -7, Cell::Wire),
    Column::new("DELIVER", -7, Cell::Deliver),
    Column::bytes(-9),
    Column::new("STATUS", 24, Cell::Status),
    PID,
    COMM,
    Column::mount(0),
];
