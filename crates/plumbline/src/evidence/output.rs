//! Where a part of a bundle is written while its size is not known yet: a compressed file without a name.
//!
//! tar wants sizes first. Compressed on the way, so that large parts of small bundles do not eat up the disk limit.

use std::io::{self, BufReader, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};

use super::retention::{Claimed, DiskQuota};
use super::store::Store;

/// Fast, and with a small window: it is only the way to the bundle.
const LEVEL: i32 = 1;
const WINDOW_LOG: u32 = 17;

/// When to stop collecting.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Bytes kept, before compression.
    pub cap: u64,
    /// Bytes on disk, after it. Beyond, there is an error and no output at all.
    pub share: u64,
    /// The end of the time allowed; `None` for no end.
    pub deadline: Option<Instant>,
    /// Set when nobody wants the output any more.
    pub cancelled: Arc<AtomicBool>,
}

impl Bounds {
    /// No bounds, for what the daemon itself writes.
    pub fn none() -> Self {
        Self { cap: u64::MAX, share: u64::MAX, deadline: None, cancelled: Arc::default() }
    }
}

/// Why output ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The cap was reached.
    Cap,
    /// The time was over, or nobody wants the output any more.
    Time,
}

/// Takes the output of one action. A write that would pass a bound writes what is allowed, then fails; so whoever
/// writes in a loop and passes errors on is bounded by that alone.
pub struct Output {
    encoder: zstd::stream::write::Encoder<'static, Claimed>,
    bounds: Bounds,
    bytes: u64,
    stopped: Option<Stopped>,
}

impl Output {
    /// Opens one.
    ///
    /// # Errors
    /// If the temporary file cannot be created.
    pub fn create(store: &Store, quota: &Arc<DiskQuota>, bounds: Bounds) -> Result<Self> {
        let file = store.create_unnamed().context("cannot create a temporary file in the output directory")?;
        let mut encoder = zstd::stream::write::Encoder::new(Claimed::new(file, quota.clone(), bounds.share), LEVEL)?;
        encoder.window_log(WINDOW_LOG)?;
        Ok(Self { encoder, bounds, bytes: 0, stopped: None })
    }

    /// Bytes taken so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that may still come.
    pub fn left(&self) -> u64 {
        self.bounds.cap.saturating_sub(self.bytes)
    }

    /// Why it took no more.
    pub fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }

    /// For loops that write seldom: fails when it is time to stop.
    ///
    /// # Errors
    /// `TimedOut` when the time is over or nobody wants the output.
    pub fn check(&mut self) -> io::Result<()> {
        let why = if self.bounds.cancelled.load(Ordering::Relaxed) {
            "cut short: the daemon is stopping, or the bundle is lost"
        } else if self.bounds.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            "not finished when its time was over"
        } else {
            return Ok(());
        };
        self.stopped.get_or_insert(Stopped::Time);
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// Ends the output.
    ///
    /// # Errors
    /// If what was left to write cannot be.
    pub fn finish(self) -> io::Result<Spool> {
        let mut file = self.encoder.finish()?;
        file.rewind()?;
        Ok(Spool { file, bytes: self.bytes })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        let allowed = bytes.len().min(usize::try_from(self.left()).unwrap_or(usize::MAX));
        let Some(part) = bytes.get(..allowed).filter(|part| !part.is_empty() || bytes.is_empty()) else {
            self.stopped.get_or_insert(Stopped::Cap);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the output cap is reached"));
        };
        let count = self.encoder.write(part)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A finished part, ready to be copied into the bundle.
pub struct Spool {
    file: Claimed,
    bytes: u64,
}

impl Spool {
    /// Its size, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its content.
    ///
    /// # Errors
    /// If the decompressor cannot be set up.
    pub fn into_reader(self) -> io::Result<impl Read> {
        zstd::stream::read::Decoder::with_buffer(BufReader::new(self.file))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    /// What `write` writes, as text.
    pub fn output_of(write: impl FnOnce(&mut Output) -> Result<()>) -> String {
        let (text, stopped) = bounded(Bounds::none(), write);
        assert_eq!(stopped, None);
        text
    }

    /// What `write` writes within bounds, and whether it was stopped.
    pub fn bounded(bounds: Bounds, write: impl FnOnce(&mut Output) -> Result<()>) -> (String, Option<Stopped>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path()).unwrap());
        let quota = Arc::new(DiskQuota::default());
        quota.survey(store.clone(), 1 << 30, Duration::MAX, SystemTime::now(), None).unwrap();
        let mut out = Output::create(&store, &quota, bounds).unwrap();
        let result = write(&mut out);
        let stopped = out.stopped();
        assert!(result.is_ok() || stopped.is_some(), "{result:?}");
        let mut text = String::new();
        out.finish().unwrap().into_reader().unwrap().read_to_string(&mut text).unwrap();
        (text, stopped)
    }

    #[test]
    fn output_is_cut_exactly_at_its_cap() {
        let bounds = Bounds { cap: 10, ..Bounds::none() };
        let (text, stopped) = bounded(bounds, |out| Ok(out.write_all(b"0123456789abcdef")?));
        assert_eq!((text.as_str(), stopped), ("0123456789", Some(Stopped::Cap)));
        let bounds = Bounds { cap: 10, ..Bounds::none() };
        let (text, stopped) = bounded(bounds, |out| Ok(out.write_all(b"0123456789")?));
        assert_eq!((text.as_str(), stopped), ("0123456789", None));
    }

    #[test]
    fn output_ends_when_its_time_is_over() {
        let bounds = Bounds { deadline: Some(Instant::now()), ..Bounds::none() };
        assert_eq!(bounded(bounds, |out| Ok(out.write_all(b"late")?)), (String::new(), Some(Stopped::Time)));
    }
}
