//! The presentation of data: tables, colours, times, and the single JSON form of an event.

pub mod below;
pub mod clock;
pub mod event;
pub mod incident;
pub mod paint;
pub mod processes;
pub mod screen;
pub mod table;
pub mod users;
