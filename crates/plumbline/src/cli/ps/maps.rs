//! `plumbline ps --maps`: the files that each process has mapped.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io::{self, Write},
};

use anyhow::{Context, Result};
use model::text::printable;
use probes::{
    PERMISSION,
    mounts::Mounts,
    tasks::{Area, Areas},
};
use serde::Serialize;

use super::files::device_at;

/// A part of memory to which a file is mapped. Field names are stable: docs/processes.md.
#[derive(Serialize)]
pub struct MapRow {
    start: String,
    end: String,
    permissions: String,
    inode: u64,
    fstype: String,
    mountpoint: String,
    path: String,
}

impl MapRow {
    fn of(area: &Area, mounts: &Mounts) -> Self {
        let (start, end) = area.range();
        let mount = mounts.get(area.device()).map(|point| point.mount.clone()).unwrap_or_default();
        Self {
            start: format!("{start:x}"),
            end: format!("{end:x}"),
            permissions: area.permissions(),
            inode: area.inode(),
            fstype: mount.fstype,
            mountpoint: mount.mountpoint,
            path: printable(area.path()),
        }
    }

    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{:>16}-{:<16}  {}  {:<12}  {}", self.start, self.end, self.permissions, self.fstype, self.path)
    }
}

/// Mapped files by process.
pub struct Maps(HashMap<u32, Vec<MapRow>>);

impl Maps {
    /// The mapped files of all processes. `only`: only files on the mount at this path. The inner error is one of the command line.
    pub fn of_all(only: Option<&OsStr>) -> Result<Result<Self, String>> {
        let mounts = Mounts::current().context("cannot read mountinfo")?;
        let device = match device_at(&mounts, only) {
            Err(message) => return Ok(Err(message)),
            Ok(device) => device,
        };
        let areas = Areas::load().with_context(|| format!("cannot list mapped files; {PERMISSION}"))?;
        let mut all: HashMap<u32, Vec<MapRow>> = HashMap::new();
        areas.each(|area| {
            if device.is_none_or(|device| device == area.device()) {
                all.entry(area.tgid()).or_default().push(MapRow::of(area, &mounts));
            }
        })?;
        Ok(Ok(Self(all)))
    }

    pub fn has(&self, process: u32) -> bool {
        self.0.contains_key(&process)
    }

    pub fn take(&mut self, process: u32) -> Vec<MapRow> {
        self.0.remove(&process).unwrap_or_default()
    }
}
