//! The page of an incident, to be sent to the team that runs the server: no script, no network, readable on paper.
//!
//! It is made from the files of the incident's bundle as they pass by, whether the daemon writes them or `plumbline report` reads them, and in
//! bounded memory: [`Material`] takes what the page needs from each file, [`Material::page`] makes HTML of it.
//!
//! ```text
//!  files of a bundle ──> Material (lines, points, distribution, connections, evidence) ──> redact, if asked for ──> html
//! ```

mod calls;
mod chart;
mod connections;
mod distribution;
mod evidence;
mod headline;
mod html;
mod lines;
mod losses;
mod material;
mod normal;
mod phases;
mod points;
mod redact;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod units;

pub use material::{EVENTS, Material, PAGE, Reading};

/// The first sentence of an incident's page: who noticed what, where, since when, and what the cause is.
pub fn headline(incident: &model::Incident) -> String {
    headline::sentence(incident, &normal::Normal::of(incident))
}

/// Whether names may be on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// As they are.
    Shown,
    /// Each as a token that is the same wherever the name is on the page, such as `file-1`.
    Redacted,
}
