//! `plumbline top`: what mounts, operations and connections do now, drawn again and again.
//!
//! A [`source::SampleSource`] finds out how things stand: a running daemon's metrics, or probes of its own. Each look is a [`model::TopSample`]. [`state::TopState`]
//! takes samples and keys, and knows nothing of clocks, kernels and terminals; [`draw::draw`] draws it.

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
