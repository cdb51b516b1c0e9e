//! The page of an incident, for the team that runs the server. It has no script, needs no network, and can be printed.
//!
//! The page is made while the files of the bundle are written (by the daemon) or read (by `plumbline report`), in
//! bounded memory. [`PageMaterial`] takes from each file what the page needs; [`PageMaterial::page`] makes the HTML.
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

pub use html::STYLE;
pub use material::{EVENTS, PAGE, PageMaterial, Reading};
pub use units::{moment, of_ms};

/// The first sentence of an incident's page: the host, the observation, the mount, the start and the cause.
pub fn headline(incident: &model::Incident) -> String {
    headline::sentence(incident, &normal::NormalDurations::of(incident))
}

/// Whether the page shows names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamesShown {
    /// Names are shown.
    Shown,
    /// Each name is replaced by a token, such as `file-1`; the same name has the same token everywhere on the page.
    Redacted,
}
