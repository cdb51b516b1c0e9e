//! `plumbline ps --files`: the open files of each process, with their mounts. No mount is touched for this.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fmt,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
};

use anyhow::{Context, Result};
use model::{MountKey, text::printable};
use probes::{
    PERMISSION,
    mounts::{MountPoint, Mounts},
    tasks::{self, OpenFile, ProcessSocket},
};
use serde::Serialize;

/// An open file. Field names are stable: docs/processes.md.
#[derive(Serialize)]
pub struct FileRow {
    fd: u32,
    /// `r`, `w` or `rw`; empty for a file that was opened with O_PATH.
    access: &'static str,
    flags: u32,
    mode: u32,
    inode: u64,
    position: u64,
    device: String,
    fstype: String,
    mountpoint: String,
    source: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<SocketRow>,
}

/// The addresses of a socket, if it is in our network namespace.
#[derive(Serialize, Clone)]
struct SocketRow {
    protocol: &'static str,
    state: &'static str,
    local: String,
    remote: String,
    send_queue: u32,
    receive_queue: u32,
}

impl SocketRow {
    fn of(socket: &ProcessSocket) -> Self {
        let (send_queue, receive_queue) = socket.queues();
        let (local, remote) = (socket.local().to_string(), socket.remote().to_string());
        Self { protocol: socket.protocol(), state: socket.state(), local, remote, send_queue, receive_queue }
    }
}

impl FileRow {
    fn of(file: &OpenFile, mount: Option<&MountPoint>, socket: Option<&SocketRow>) -> Self {
        let access = match file.flags() as i32 {
            flags if flags & nix::libc::O_PATH != 0 => "",
            flags if flags & nix::libc::O_ACCMODE == nix::libc::O_RDONLY => "r",
            flags if flags & nix::libc::O_ACCMODE == nix::libc::O_WRONLY => "w",
            _ => "rw",
        };
        let device = file.device().0;
        let mount = mount.map(|point| point.mount.clone()).unwrap_or_default();
        Self {
            fd: file.fd(),
            access,
            flags: file.flags(),
            mode: file.mode(),
            inode: file.inode(),
            position: file.position(),
            device: format!("{}:{}", device >> 20, device & 0xfffff),
            fstype: file.fstype(),
            mountpoint: mount.mountpoint,
            source: mount.source,
            path: printable(file.path()),
            socket: socket.cloned(),
        }
    }

    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let path = if self.path.is_empty() { "(its path is not known)" } else { &self.path };
        let mount = if self.mountpoint.is_empty() { String::new() } else { format!("  on {}", self.mountpoint) };
        let socket = self.socket.as_ref().map(SocketRow::to_string).unwrap_or_default();
        writeln!(out, "{:>16}  {:<2}  {:<12}  {path}{mount}{socket}", self.fd, self.access, self.fstype)
    }
}

impl fmt::Display for SocketRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {} {} to {} {}", self.protocol, self.local, self.remote, self.state)
    }
}

/// Open files by process.
pub struct OpenFiles(HashMap<u32, Vec<FileRow>>);

impl OpenFiles {
    /// The open files of all processes. `only`: only files on the mount at this path. The inner error is one of the command line.
    pub fn of_all(only: Option<&OsStr>) -> Result<Result<Self, String>> {
        let mounts = Mounts::current().context("cannot read mountinfo")?;
        let device = match device_at(&mounts, only) {
            Err(message) => return Ok(Err(message)),
            Ok(device) => device,
        };
        let by_id: HashMap<u32, &MountPoint> = mounts.iter().map(|point| (point.id, point)).collect();
        let files = tasks::FileIterator::load().with_context(|| format!("cannot list open files; {PERMISSION}"))?;
        // Without these data, the addresses of sockets are left out.
        let sockets = tasks::Sockets::load().and_then(|sockets| sockets.all()).unwrap_or_default();
        let sockets: HashMap<u64, SocketRow> =
            sockets.iter().map(|socket| (socket.inode(), SocketRow::of(socket))).collect();
        let mut all: HashMap<u32, Vec<FileRow>> = HashMap::new();
        files.each(|file| {
            if device.is_none_or(|device| device == file.device()) {
                // A file on a mount of another mount namespace is listed with our mount of the same superblock.
                let mount = by_id.get(&file.mount()).copied().filter(|point| point.device == file.device());
                let mount = mount.or_else(|| mounts.get(file.device()));
                let socket = sockets.get(&file.inode()).filter(|_| file.is_socket());
                all.entry(file.tgid()).or_default().push(FileRow::of(file, mount, socket));
            }
        })?;
        Ok(Ok(Self(all)))
    }

    pub fn has(&self, process: u32) -> bool {
        self.0.contains_key(&process)
    }

    pub fn take(&mut self, process: u32) -> Vec<FileRow> {
        self.0.remove(&process).unwrap_or_default()
    }
}

/// The superblock that is mounted at a mount point, if one is given.
pub fn device_at(mounts: &Mounts, only: Option<&OsStr>) -> Result<Option<MountKey>, String> {
    let Some(path) = only else { return Ok(None) };
    let point = mounts.at(path.as_bytes());
    let nothing = || format!("nothing is mounted at {}", printable(path.as_bytes()));
    point.map(|point| Some(point.device)).ok_or_else(nothing)
}
