//! I/O at each layer: amounts, sizes, speed and requesters.

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
