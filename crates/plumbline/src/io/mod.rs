//! What I/O looks like at each layer: how much, in which sizes, how fast, and for whom.

pub mod files;
pub mod known;
pub mod layers;
pub mod meter;
pub mod owner;
pub mod page;
pub mod ranks;
pub mod record;
pub mod rows;
pub mod slowest;
pub mod summary;
