//! A tracefs instance: a ring and a set of enabled tracepoints of our own, separate from other users of tracefs.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::libc;
use nix::unistd::{SysconfVar, sysconf};

use super::super::page_bytes;

/// Where tracefs is mounted (Documentation/trace/ftrace.rst).
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The beginning of our instances' names; the process id and the capture's name follow.
const PREFIX: &str = "plumbline-";
/// How much of a file is read at once, bytes.
const PIECE: usize = 64 << 10;
/// The most pages that are read of one CPU's ring: a flood of events fills the ring while it is read.
const MOST_PAGES: usize = 1 << 16;

/// An instance, removed by [`Instance::remove`].
pub struct Instance {
    root: PathBuf,
    path: PathBuf,
}

impl Instance {
    /// Creates an instance with a ring of `bytes` for each CPU, and removes instances that a killed daemon has left.
    ///
    /// # Errors
    /// If there is no tracefs, or the kernel refuses.
    pub fn make(name: &str, bytes: u64) -> Result<Self> {
        let mut places = PLACES.iter().map(PathBuf::from);
        let root = places.find(|place| place.join("instances").is_dir());
        let root = root.context("tracefs is not mounted; mount -t tracefs nodev /sys/kernel/tracing")?;
        remove_stale(&root.join("instances"));
        let path = root.join("instances").join(format!("{PREFIX}{}-{name}", std::process::id()));
        match fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot make {}", path.display()));
            }
            _ => {}
        }
        let instance = Self { root, path };
        let made = instance.set_up(bytes);
        if made.is_err() {
            instance.remove()?;
        }
        made.map(|()| instance)
    }

    fn set_up(&self, bytes: u64) -> Result<()> {
        self.write("buffer_size_kb", &(bytes >> 10).to_string())?;
        // The clock of Plumbline's events, which all CPUs share.
        self.write("trace_clock", "mono")?;
        self.write("tracing_on", "1")
    }

    /// Enables tracepoints. Returns those that do not exist.
    pub fn switch_on(&self, events: &[String]) -> Vec<String> {
        events.iter().filter(|event| self.append("set_event", event).is_err()).cloned().collect()
    }

    /// The enabled tracepoints: system and name.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn enabled(&self) -> Result<Vec<(String, String)>> {
        let text = self.read("set_event")?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs.map(|(system, event)| (system.to_owned(), event.to_owned())).collect())
    }

    /// Reads the pages in the ring of each CPU. Reading removes them from the ring.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_pages(&self, mut each: impl FnMut(usize, &[u8])) -> Result<()> {
        let mut page = vec![0; page_bytes()];
        for processor in 0..usize::try_from(processors()?)? {
            let path = self.path.join(format!("per_cpu/cpu{processor}/trace_pipe_raw"));
            let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
            let mut raw = match opened {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.with_context(|| format!("cannot open {}", path.display()))?,
            };
            for _ in 0..MOST_PAGES {
                match raw.read(&mut page) {
                    Ok(0) => break,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    read => {
                        let length = read.with_context(|| format!("cannot read {}", path.display()))?;
                        page.iter_mut().skip(length).for_each(|byte| *byte = 0);
                        each(processor, &page);
                    }
                }
            }
        }
        Ok(())
    }

    /// A file of tracefs that all instances share.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn shared(&self, file: &str) -> Result<Vec<u8>> {
        let path = self.root.join(file);
        read_whole(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The names in a directory that all instances share, sorted.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn names(&self, directory: &str) -> Result<Vec<String>> {
        let path = self.root.join(directory);
        let read = fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut names: Vec<_> = read.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Removes the instance. The kernel refuses that while the instance is being read.
    ///
    /// # Errors
    /// If the instance still exists after a second; the daemon tries again at its next start.
    pub fn remove(&self) -> Result<()> {
        let _ = self.write("tracing_on", "0");
        for _ in 0..10 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(100)),
                removed => return removed.with_context(|| format!("cannot remove {}", self.path.display())),
            }
        }
        bail!("cannot remove {}: somebody has a file of it open", self.path.display())
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = self.path.join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        let written = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("cannot write {text} to {}", path.display()))
    }

    /// Writes without O_TRUNC, which would disable the enabled tracepoints.
    fn append(&self, file: &str, text: &str) -> std::io::Result<()> {
        let mut file: File = OpenOptions::new().append(true).open(self.path.join(file))?;
        file.write_all(format!("{text}\n").as_bytes())
    }
}

/// Reads a file in large pieces: of `header_page`, the kernel returns only the result of the first read (show_header() of
/// kernel/trace/trace_events.c).
fn read_whole(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let (mut content, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(content),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => content.extend(piece.iter().take(read?)),
        }
    }
}

/// Removes the instances of daemons that have ended.
fn remove_stale(instances: &Path) {
    let Ok(entries) = fs::read_dir(instances) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((pid, _)) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')) else {
            continue;
        };
        let Ok(pid) = pid.parse::<u32>() else { continue };
        // Process ids are used again, so the process must have the name of this program.
        let own = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let is_alive = fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == own);
        if pid != std::process::id() && !is_alive {
            match fs::remove_dir(entry.path()) {
                Ok(()) => tracing::info!("removed {}, which an earlier run has left", entry.path().display()),
                Err(error) => tracing::warn!("cannot remove {}: {error}", entry.path().display()),
            }
        }
    }
}

/// The number of CPUs for which the kernel has rings.
///
/// # Errors
/// If the system does not say.
pub fn processors() -> Result<u64> {
    let processors = sysconf(SysconfVar::_NPROCESSORS_CONF)?.context("the number of processors is not known")?;
    Ok(u64::try_from(processors)?)
}
