//! The daemon's recordings: the last minutes, in segments of about a minute each. The oldest segments are deleted first.

use std::{
    collections::VecDeque,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

/// The directory below the output directory.
pub const DIRECTORY: &str = "recorder";
/// What a segment's name ends with.
const ENDING: &str = ".plumbrec";
/// The time that a segment covers.
const SEGMENT: Duration = Duration::from_secs(60);
/// A segment takes at most this part of the space for all.
const PARTS: u64 = 8;

/// The segments of a directory.
pub struct Segments {
    /// Kept open. Files are reached only through this descriptor, so a later mount on the path has no effect.
    directory: File,
    keep: Duration,
    limit: u64,
    /// Name and size, oldest first. If `current` is set, the last one is being written.
    files: VecDeque<(String, u64)>,
    current: Option<(File, Instant)>,
}

impl Segments {
    /// Opens the directory, and creates it if it is missing. Keeps segments of earlier runs for which there is room.
    ///
    /// # Errors
    ///
    /// When the directory can be neither opened nor created.
    pub fn open(output_dir: &Path, keep: Duration, limit: u64) -> io::Result<Self> {
        let path = output_dir.join(DIRECTORY);
        match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
        let directory = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |about| about.len());
        let named = |path: &PathBuf| Some((path.file_name()?.to_str()?.to_owned(), size(path)));
        let files = list(&path)?.iter().filter_map(named).collect();
        Ok(Self { directory, keep, limit, files, current: None })
    }

    /// The size of all segments, bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Whether the current segment is large or old enough to be ended.
    pub fn is_complete(&self) -> bool {
        let size = self.files.back().map_or(0, |(_, bytes)| *bytes);
        self.current.as_ref().is_some_and(|(_, since)| since.elapsed() >= SEGMENT || size >= self.limit / PARTS)
    }

    /// Ends the current segment: the next chunk begins a new one.
    pub fn end_segment(&mut self) {
        self.current = None;
    }

    /// Appends a chunk to the current segment. If there is none, creates one that begins with `header`.
    ///
    /// # Errors
    ///
    /// When the chunk cannot be written; the segment then ends with the previous chunk.
    pub fn append(&mut self, header: &[u8], chunk: &[u8]) -> io::Result<()> {
        let length = chunk.len() as u64;
        if length + header.len() as u64 > self.limit {
            return Err(io::Error::other("a chunk is larger than the recorder may keep; raise keep_mb of `recorder`"));
        }
        self.make_room(length + header.len() as u64);
        if self.current.is_none() {
            self.begin(header)?;
        }
        let result = match &mut self.current {
            Some((file, _)) => file.write_all(chunk),
            None => Ok(()),
        };
        match result {
            Ok(()) => drop(self.files.back_mut().map(|(_, bytes)| *bytes += length)),
            Err(_) => self.end_at_the_last_chunk(),
        }
        result
    }

    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        let utc = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ");
        let name = format!("{utc}{ENDING}");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path(&name))?;
        if let Err(error) = file.write_all(header) {
            let _ = fs::remove_file(self.path(&name));
            return Err(error);
        }
        self.files.push_back((name, header.len() as u64));
        self.current = Some((file, Instant::now()));
        Ok(())
    }

    fn end_at_the_last_chunk(&mut self) {
        if let (Some((file, _)), Some((_, bytes))) = (self.current.take(), self.files.back()) {
            let _ = file.set_len(*bytes);
        }
    }

    /// Deletes segments that are too old, and the oldest until `bytes` more fit.
    fn make_room(&mut self, bytes: u64) {
        let now = SystemTime::now();
        // The current segment is not deleted.
        while self.files.len() > usize::from(self.current.is_some()) {
            let Some((name, _)) = self.files.front() else { return };
            let path = self.path(name);
            let modified = fs::metadata(&path).and_then(|about| about.modified()).unwrap_or(now);
            let too_old = now.duration_since(modified).is_ok_and(|age| age > self.keep);
            if !too_old && self.bytes() + bytes <= self.limit {
                return;
            }
            let _ = fs::remove_file(path);
            self.files.pop_front();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()).into()
    }
}

/// The segments in a directory, oldest first.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.filter_map(Result::ok).map(|entry| entry.path());
    let is_segment =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(ENDING));
    let mut segments: Vec<_> = entries.filter(is_segment).collect();
    segments.sort();
    Ok(segments)
}
