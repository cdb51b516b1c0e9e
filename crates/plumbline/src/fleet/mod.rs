//! `plumbline fleet`: one verdict over many hosts, from their incidents and summaries.
//!
//! ```text
//!  bundles, summaries of days (folder) ─┐
//!  log records of a collector (otlp) ───┼─> Material ──> diagnose::fleet::judge ──> Report ──> text, JSON, page
//!  series (prometheus) ─────────────────┘
//! ```

#[cfg(test)]
mod draws;
pub mod folder;
pub mod groups;
mod material;
mod otlp;
mod page;
pub mod prometheus;
mod report;
#[cfg(test)]
mod tests;
mod text;

use diagnose::fleet::Millis;

pub use groups::Groups;
pub use material::FleetMaterial;
pub use page::page;
pub use report::FleetReport;
pub use text::print;

/// The most sentences about unreadable or unknown data; further ones are only counted.
const MOST_NOTES: usize = 20;

/// Remarks about the data, for people.
#[derive(Debug, Default)]
pub struct Notes {
    said: Vec<String>,
    more: u64,
}

/// The data of a source.
#[derive(Debug, Default)]
pub struct SourceData {
    /// The evidence.
    pub material: FleetMaterial,
    /// Remarks about the data.
    pub notes: Notes,
    /// Bundles, lines or series that were understood.
    pub understood: u64,
    /// Bundles, lines or series that could not be read.
    pub damaged: u64,
    /// The time that the data cover, if the source has one.
    pub span: Option<(Millis, Millis)>,
}

impl Notes {
    /// Adds a remark, or counts it.
    pub fn say(&mut self, what: impl Into<String>) {
        if self.said.len() < MOST_NOTES { self.said.push(what.into()) } else { self.more += 1 }
    }

    /// The remarks.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("{} more like these are not listed", self.more));
        self.said.iter().cloned().chain(more)
    }

    fn sort(&mut self) {
        self.said.sort();
    }

    fn merge(&mut self, other: Self) {
        self.more += other.more;
        other.said.into_iter().for_each(|one| self.say(one));
    }
}

impl SourceData {
    fn merge(&mut self, other: Self) {
        self.material.merge(other.material);
        self.notes.merge(other.notes);
        self.understood += other.understood;
        self.damaged += other.damaged;
    }
}
