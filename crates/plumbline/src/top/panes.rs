//! The columns and rows of each pane.

mod rows;

use super::{model::KnownOrReason, state::TopState};
use crate::view::table::TableColumn;

/// A list on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    Mounts,
    Operations,
    Phases,
    Slowest,
    Incidents,
    Connections,
}

/// The panes in their order on the screen.
pub const PANES: [Pane; 6] =
    [Pane::Mounts, Pane::Operations, Pane::Phases, Pane::Slowest, Pane::Incidents, Pane::Connections];

/// The order in which panes get lines, after the pane in focus: trouble first, sums last.
pub const BY_IMPORTANCE: [Pane; 6] =
    [Pane::Incidents, Pane::Slowest, Pane::Mounts, Pane::Operations, Pane::Connections, Pane::Phases];

/// How important a row is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Usual,
    /// Worth a look.
    Notable,
    /// Something is wrong.
    Alarm,
}

/// One thing.
#[derive(Debug, Clone)]
pub struct PaneRow {
    pub cells: Vec<PaneCell>,
    pub mood: Mood,
}

/// The value of a cell.
#[derive(Debug, Clone)]
pub enum PaneCell {
    Text(String),
    /// The text that is shown, and the number by which rows are sorted.
    Number(String, f64),
    /// A trend, drawn as wide as its column.
    Trend(Vec<Option<u64>>),
}

/// A column and its width.
pub struct Heading {
    pub name: &'static str,
    width: Width,
    /// See [`TableColumn::optional`]; 0: it is never left out.
    rank: u8,
}

enum Width {
    /// So many characters, aligned right.
    Number(usize),
    /// So many characters.
    Text(usize),
    /// As many characters as the longest value, and at least this many.
    Name(usize),
    /// The rest of the line, and at least this many characters.
    Rest(usize),
}

impl Heading {
    const fn new(name: &'static str, width: Width, rank: u8) -> Self {
        Self { name, width, rank }
    }

    /// The column in a table with lines of `room` characters, if the longest cell has `longest`. A name takes a quarter of a line at most, so that
    /// the last column has room.
    pub fn column(&self, longest: usize, room: Option<usize>) -> TableColumn {
        let longest = longest.max(self.name.len());
        match self.width {
            Width::Number(width) => TableColumn::number(self.name, width),
            Width::Text(width) => TableColumn::text(self.name, width),
            Width::Name(least) => {
                let most = room.map_or(longest, |room| longest.min((room / 4).max(least)));
                TableColumn::text(self.name, most).cut_to(least.min(most))
            }
            Width::Rest(least) => TableColumn::rest(self.name, least),
        }
        .optional(self.rank)
    }
}

use Width::{Name, Number, Rest, Text};

const MOUNTS: &[Heading] = &[
    Heading::new("MOUNT", Name(12), 0),
    Heading::new("FSTYPE", Name(6), 3),
    Heading::new("LAYER", Text(8), 4),
    Heading::new("OPS", Number(8), 0),
    Heading::new("BYTES", Number(10), 0),
    Heading::new("ERRORS", Number(7), 0),
    Heading::new("MEAN", Number(7), 0),
    Heading::new("P99", Number(7), 0),
    Heading::new("SOURCE", Rest(10), 2),
];

const OPERATIONS: &[Heading] = &[
    Heading::new("MOUNT", Name(12), 0),
    Heading::new("LAYER", Text(11), 3),
    Heading::new("OPERATION", Name(14), 0),
    Heading::new("OPS", Number(8), 0),
    Heading::new("BYTES", Number(10), 1),
    Heading::new("ERRORS", Number(7), 0),
    Heading::new("MEAN", Number(7), 0),
    Heading::new("P99", Number(7), 0),
    Heading::new("MEAN OVER TIME", Rest(16), 2),
];

const PHASES: &[Heading] = &[
    Heading::new("MOUNT", Name(12), 0),
    Heading::new("PHASE", Text(7), 0),
    Heading::new("MEAN", Number(7), 0),
    Heading::new("MOST", Number(7), 0),
    Heading::new("MEAN OVER TIME", Rest(16), 0),
];

const SLOWEST: &[Heading] = &[
    Heading::new("TOOK", Number(7), 0),
    Heading::new("STATE", Text(9), 0),
    Heading::new("OPERATION", Name(14), 0),
    Heading::new("QUEUE", Number(7), 4),
    Heading::new("WIRE", Number(7), 4),
    Heading::new("DELIVER", Number(7), 4),
    Heading::new("PROCESS", Name(16), 0),
    Heading::new("MOUNT", Name(12), 0),
    Heading::new("FILE", Rest(12), 1),
];

const INCIDENTS: &[Heading] = &[
    Heading::new("FIRST SEEN (UTC)", Text(19), 1),
    Heading::new("LASTED", Text(7), 2),
    Heading::new("VERDICT", Name(12), 0),
    Heading::new("MOUNT", Name(12), 0),
    Heading::new("WHAT", Rest(20), 0),
];

const CONNECTIONS: &[Heading] = &[
    Heading::new("PEER", Name(14), 0),
    Heading::new("LOCAL", Name(14), 3),
    Heading::new("STATE", Text(11), 0),
    Heading::new("RTT", Number(7), 0),
    Heading::new("MIN RTT", Number(7), 2),
    Heading::new("RESENT", Number(7), 0),
    Heading::new("IN ALL", Number(7), 4),
    Heading::new("UNACKED", Number(8), 5),
    Heading::new("MOUNT", Rest(12), 1),
];

impl Pane {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mounts => "Mounts",
            Self::Operations => "Operations",
            Self::Phases => "Latency by phase",
            Self::Slowest => "Slowest operations",
            Self::Incidents => "Open incidents",
            Self::Connections => "Connections",
        }
    }

    pub fn headings(self) -> &'static [Heading] {
        match self {
            Self::Mounts => MOUNTS,
            Self::Operations => OPERATIONS,
            Self::Phases => PHASES,
            Self::Slowest => SLOWEST,
            Self::Incidents => INCIDENTS,
            Self::Connections => CONNECTIONS,
        }
    }

    /// The initial sort column.
    pub fn first_sort(self) -> usize {
        let name = match self {
            Self::Mounts | Self::Operations => "OPS",
            Self::Phases => "MOUNT",
            Self::Slowest => "TOOK",
            Self::Incidents => "FIRST SEEN (UTC)",
            Self::Connections => "RESENT",
        };
        self.headings().iter().position(|heading| heading.name == name).unwrap_or(0)
    }

    /// Whether rows can be sorted by a column: trends have no order.
    pub fn can_sort_by(self, column: usize) -> bool {
        self.headings().get(column).is_some_and(|heading| heading.name != "MEAN OVER TIME")
    }

    /// The rows, unsorted; or why nothing is known.
    pub fn rows(self, state: &TopState) -> KnownOrReason<Vec<PaneRow>> {
        let Some(sample) = &state.sample else { return Ok(Vec::new()) };
        match self {
            Self::Mounts => Ok(rows::mounts(sample)),
            Self::Operations => Ok(rows::operations(state, sample)),
            Self::Phases => Ok(rows::phases(state)),
            Self::Slowest => sample.slowest.as_ref().map(|all| rows::slowest(all)).map_err(Clone::clone),
            Self::Incidents => sample.incidents.as_ref().map(|all| rows::incidents(all)).map_err(Clone::clone),
            Self::Connections => {
                sample.connections.as_ref().map(|all| rows::connections(sample, all)).map_err(Clone::clone)
            }
        }
    }

    /// A remark about what is missing in the rows.
    pub fn remark(self, state: &TopState) -> Option<&str> {
        let sample = state.sample.as_ref().filter(|_| self == Self::Phases)?;
        sample.phases.as_ref().err().map(String::as_str)
    }
}

impl PaneRow {
    /// Whether a cell contains this text, ignoring case.
    pub fn has(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.cells.iter().any(|cell| match cell {
            PaneCell::Text(shown) | PaneCell::Number(shown, _) => shown.to_lowercase().contains(&text),
            PaneCell::Trend(_) => false,
        })
    }
}

impl PaneCell {
    /// The characters of the whole value; a trend takes the available width.
    pub fn length(&self) -> usize {
        match self {
            Self::Text(text) | Self::Number(text, _) => text.chars().count(),
            Self::Trend(_) => 0,
        }
    }

    /// The sort order: greatest numbers first, texts in ascending order.
    pub fn compare(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Number(_, one), Self::Number(_, other)) => other.total_cmp(one),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            _ => std::cmp::Ordering::Equal,
        }
    }
}
