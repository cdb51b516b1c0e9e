//! Spools the output of an action in a compressed file without a name, since tar needs the size before the content.
//!
//! The spool is compressed so that large output does not use up the disk limit.

use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};

use super::retention::{Claimed, DiskQuota};
use super::store::Store;

/// A fast level and a small window, since the bundle compresses the output again.
const LEVEL: i32 = 1;
const WINDOW_LOG: u32 = 17;

/// When to stop collecting.
#[derive(Debug, Clone)]
pub struct OutputBounds {
    /// The most bytes to keep, before compression.
    pub cap: u64,
    /// The most bytes on disk, after compression. Beyond it, writing fails and all output is lost.
    pub share: u64,
    /// When to stop; `None`: no limit.
    pub deadline: Option<Instant>,
    /// Set when the output is no longer wanted.
    pub cancelled: Arc<AtomicBool>,
}

impl OutputBounds {
    /// No bounds, for files of the daemon itself.
    pub fn none() -> Self {
        Self { cap: u64::MAX, share: u64::MAX, deadline: None, cancelled: Arc::default() }
    }
}

/// Why output ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The cap was reached.
    Cap,
    /// The time was over, or the output is no longer wanted.
    Time,
}

/// Takes the output of one action. A write beyond a bound writes what is allowed, and the next one fails. So a loop
/// that writes and returns errors needs no further checks.
pub struct Output {
    /// Buffered, since JSON comes in pieces of a few bytes, and a call of zstd costs more than compressing such a piece.
    encoder: BufWriter<zstd::stream::write::Encoder<'static, Claimed>>,
    bounds: OutputBounds,
    bytes: u64,
    stopped: Option<Stopped>,
    /// The lines with the labels that the action sets.
    pub labels: Vec<u8>,
}

impl Output {
    /// Creates the spool.
    ///
    /// # Errors
    /// If the temporary file cannot be created.
    pub fn create(store: &Store, quota: &Arc<DiskQuota>, bounds: OutputBounds) -> Result<Self> {
        let file = store.create_unnamed().context("cannot create a temporary file in the output directory")?;
        let mut encoder = zstd::stream::write::Encoder::new(Claimed::new(file, quota.clone(), bounds.share), LEVEL)?;
        encoder.window_log(WINDOW_LOG)?;
        Ok(Self { encoder: BufWriter::new(encoder), bounds, bytes: 0, stopped: None, labels: Vec::new() })
    }

    /// The bytes written so far, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes may still be written.
    pub fn left(&self) -> u64 {
        self.bounds.cap.saturating_sub(self.bytes)
    }

    /// Why the output ended early; `None` if it did not.
    pub fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }

    /// Fails when it is time to stop; for loops that seldom write.
    ///
    /// # Errors
    /// `TimedOut` when the time is over or the output is no longer wanted.
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

    /// Ends the output and returns the spool.
    ///
    /// # Errors
    /// If the remaining bytes cannot be written.
    pub fn finish(self) -> io::Result<Spool> {
        let mut file = self.encoder.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
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

/// Finished output, ready to be copied into the bundle.
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
        let (text, stopped) = bounded(OutputBounds::none(), write);
        assert_eq!(stopped, None);
        text
    }

    /// What `write` writes within bounds, and whether it was stopped.
    pub fn bounded(bounds: OutputBounds, write: impl FnOnce(&mut Output) -> Result<()>) -> (String, Option<Stopped>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path(), crate::evidence::INCIDENTS).unwrap());
        let quota = Arc::new(DiskQuota::default());
        quota.survey(store.clone(), 1 << 30, &|_| Duration::MAX, SystemTime::now(), None).unwrap();
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
        let bounds = OutputBounds { cap: 10, ..OutputBounds::none() };
        let (text, stopped) = bounded(bounds, |out| Ok(out.write_all(b"0123456789abcdef")?));
        assert_eq!((text.as_str(), stopped), ("0123456789", Some(Stopped::Cap)));
        let bounds = OutputBounds { cap: 10, ..OutputBounds::none() };
        let (text, stopped) = bounded(bounds, |out| Ok(out.write_all(b"0123456789")?));
        assert_eq!((text.as_str(), stopped), ("0123456789", None));
    }

    #[test]
    fn output_ends_when_its_time_is_over() {
        let bounds = OutputBounds { deadline: Some(Instant::now()), ..OutputBounds::none() };
        assert_eq!(bounded(bounds, |out| Ok(out.write_all(b"late")?)), (String::new(), Some(Stopped::Time)));
    }
}
