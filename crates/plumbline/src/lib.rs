//! Plumbline: says at which depth a slow or failing network file system operation lost its time.
//!
//! The code is a library only so that other programs, such as the fuzz targets, can use its parts. The program is [`main`].

mod capture;
mod cli;
pub mod config;
mod cost;
mod daemon;
mod detection;
mod evidence;
mod fleet;
mod follow;
mod io;
mod join;
mod page;
mod peers;
mod prove;
mod publish;
mod recording;
mod scope;
mod source;
mod state_file;
mod summary;
mod top;
mod view;
mod watched;
mod who;

pub use cli::{judge_bytes, main};
