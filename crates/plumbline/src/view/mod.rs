//! How things look: tables, colours, times, and the one JSON form of an event.

pub mod below;
pub mod clock;
pub mod event;
pub mod incident;
pub mod paint;
pub mod processes;
pub mod screen;
pub mod table;
pub mod users;
