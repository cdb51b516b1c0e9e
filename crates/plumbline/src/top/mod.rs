//! `plumbline top`: what mounts, operations and connections do now, drawn again and again.
//!
//! A [`source::SampleSource`] gets the figures from a running daemon's metrics or from its own probes. Each look is a [`model::TopSample`].
//! [`state::TopState`] takes samples and keys, independent of clock, kernel and terminal; [`draw::draw`] draws it.

pub mod draw;
mod history;
pub mod keys;
mod layout;
pub mod model;
mod panes;
pub mod source;
pub mod state;
pub mod terminal;
#[cfg(test)]
mod tests;
