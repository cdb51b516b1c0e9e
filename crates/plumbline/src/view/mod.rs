//! How things look: tables, colours, times, and the one JSON form of an event.

pub mod below;
pub mod clock;
pub mod container;
pub mod event;
pub mod paint;
pub mod report;
pub mod table;
