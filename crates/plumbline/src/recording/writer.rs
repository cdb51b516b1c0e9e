//! The recorder's thread: packs intervals into chunks and writes them, so that no other thread waits for the disk.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{
    chunk::{self, ChunkKind},
    facts::{RecordedInterval, RecordingHeader},
    segments::Segments,
};

/// The most intervals that wait for the disk; further ones are dropped and counted.
const QUEUE: usize = 8;
/// A chunk is written when it has this many bytes, before compression, ...
const CHUNK_BYTES: usize = 256 << 10;
/// ... or when its first interval has this age. This limits the loss if the process is killed.
const CHUNK_AGE: Duration = Duration::from_secs(2);
/// The space that is kept free for the last chunk, bytes.
const END_BYTES: u64 = 1024;

/// The largest size of a file, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub u64);

/// The totals of a recording, which its last chunk contains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    /// Intervals.
    pub intervals: u64,
    /// Operations that ended.
    pub operations: u64,
    /// Events.
    pub events: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Whether the limit was reached.
    pub full: bool,
    /// Why writing stopped; empty if there was no error.
    pub error: String,
}

/// The destination of the chunks.
enum ChunkOutput {
    /// One file.
    File { file: File, bytes: u64, limit: Limit },
    /// The daemon's directory.
    Segments(Segments),
}

/// The handle of the recorder's thread.
pub struct RecordingWriter {
    queue: Option<SyncSender<WriterJob>>,
    thread: Option<JoinHandle<()>>,
    state: Arc<Mutex<Written>>,
    wants_segment: Arc<AtomicBool>,
}

enum WriterJob {
    /// The header of the following intervals; every segment begins with it.
    Header(Box<RecordingHeader>),
    Interval(Box<RecordedInterval>),
}

/// Whether an interval was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handed {
    /// The interval will be written.
    Over,
    /// The interval is lost because the disk is too slow.
    Lost,
}

impl RecordingWriter {
    /// Creates a file and starts the thread. An existing file is not replaced.
    ///
    /// # Errors
    ///
    /// When the file cannot be created.
    pub fn to_file(path: &Path, limit: Limit, header: RecordingHeader) -> Result<Self> {
        // In append mode, the next chunk follows the last complete one after `set_len` has cut an incomplete chunk off.
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Self::start(ChunkOutput::File { file, bytes: 0, limit }, header)
    }

    /// Starts the thread that writes segments to the daemon's directory.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn to_segments(segments: Segments, header: RecordingHeader) -> Result<Self> {
        Self::start(ChunkOutput::Segments(segments), header)
    }

    fn start(output: ChunkOutput, header: RecordingHeader) -> Result<Self> {
        let (queue, jobs) = sync_channel(QUEUE);
        let state = Arc::new(Mutex::new(Written::default()));
        let wants_segment = Arc::new(AtomicBool::new(false));
        let (shared, wanted) = (Arc::clone(&state), Arc::clone(&wants_segment));
        let thread = std::thread::Builder::new().name("recorder".into()).spawn(move || {
            let mut worker = RecordingThread::new(output, shared, wanted);
            worker.run(&jobs);
        })?;
        let writer = Self { queue: Some(queue), thread: Some(thread), state, wants_segment };
        writer.hand(WriterJob::Header(Box::new(header)));
        Ok(writer)
    }

    /// Passes an interval to the thread. Never waits.
    pub fn interval(&self, interval: RecordedInterval) -> Handed {
        self.hand(WriterJob::Interval(Box::new(interval)))
    }

    fn hand(&self, job: WriterJob) -> Handed {
        let sent = self.queue.as_ref().map(|queue| queue.try_send(job));
        match sent {
            Some(Ok(())) => Handed::Over,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => Handed::Lost,
        }
    }

    /// Whether the next interval should begin a segment. After a yes, the answer is no until the new segment is complete.
    pub fn wants_segment(&self) -> bool {
        self.wants_segment.swap(false, Ordering::Relaxed)
    }

    /// What has been written so far.
    pub fn written(&self) -> Written {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes the waiting intervals and the last chunk, and ends the thread.
    pub fn finish(mut self) -> Written {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.written()
    }
}

/// The counts of the payload that is not on disk yet.
#[derive(Default)]
struct Pending {
    since: Option<Instant>,
    intervals: u64,
    operations: u64,
    events: u64,
}

struct RecordingThread {
    output: ChunkOutput,
    state: Arc<Mutex<Written>>,
    payload: Vec<u8>,
    pending: Pending,
    /// The prefix and the header's chunk, with which each segment begins.
    header: Vec<u8>,
    wants_segment: Arc<AtomicBool>,
    /// Whether a new segment has been requested.
    asked: bool,
}

impl RecordingThread {
    fn new(output: ChunkOutput, state: Arc<Mutex<Written>>, wants_segment: Arc<AtomicBool>) -> Self {
        let (payload, header, pending) = (Vec::new(), Vec::new(), Pending::default());
        Self { output, state, payload, pending, header, wants_segment, asked: false }
    }

    fn run(&mut self, jobs: &Receiver<WriterJob>) {
        let Ok(mut compressor) = chunk::compressor() else {
            return self.failed(&io::Error::other("zstd cannot be set up"));
        };
        while let Ok(job) = jobs.recv() {
            let result = match job {
                WriterJob::Header(header) => self.begin(&header, &mut compressor),
                WriterJob::Interval(interval) => self.take(&interval, &mut compressor),
            };
            if let Err(error) = result {
                self.failed(&error);
            }
        }
        let end = self.flush(&mut compressor).and_then(|()| {
            let written = serde_json::to_vec(&*self.lock())?;
            let last = chunk::pack(ChunkKind::End, &written, &mut compressor)?;
            self.append(&last, true)
        });
        if let Err(error) = end {
            self.failed(&error);
        }
    }

    fn begin(&mut self, header: &RecordingHeader, compressor: &mut zstd::bulk::Compressor<'_>) -> io::Result<()> {
        let mut chunk = chunk::prefix().to_vec();
        chunk.extend(chunk::pack(ChunkKind::Header, &serde_json::to_vec(header)?, compressor)?);
        self.header = chunk;
        if let ChunkOutput::File { .. } = self.output {
            let chunk = std::mem::take(&mut self.header);
            self.append(&chunk, true)?;
        }
        Ok(())
    }

    fn take(&mut self, interval: &RecordedInterval, compressor: &mut zstd::bulk::Compressor<'_>) -> io::Result<()> {
        if self.lock().full {
            return Ok(());
        }
        if interval.begins_segment {
            self.flush(compressor)?;
            if let ChunkOutput::Segments(segments) = &mut self.output {
                segments.end_segment();
            }
            self.asked = false;
        }
        let records = interval.slices.iter().map(|slice| slice.bytes.len()).sum::<usize>();
        // The size of the records alone may reach the limit of a chunk.
        if self.payload.len() + records > CHUNK_BYTES {
            self.flush(compressor)?;
        }
        chunk::put_interval(&mut self.payload, interval)?;
        self.pending.intervals += 1;
        self.pending.operations += (records / probes::RECORD_SIZE) as u64;
        self.pending.events += interval.facts.events.len() as u64;
        let since = *self.pending.since.get_or_insert_with(Instant::now);
        if self.payload.len() >= CHUNK_BYTES || since.elapsed() >= CHUNK_AGE {
            self.flush(compressor)?;
        }
        Ok(())
    }

    fn flush(&mut self, compressor: &mut zstd::bulk::Compressor<'_>) -> io::Result<()> {
        if self.payload.is_empty() {
            return Ok(());
        }
        let packed = chunk::pack(ChunkKind::Intervals, &self.payload, compressor);
        self.payload.clear();
        self.payload.shrink_to(CHUNK_BYTES);
        let pending = std::mem::take(&mut self.pending);
        self.append(&packed?, false)?;
        let mut state = self.lock();
        if !state.full {
            state.intervals += pending.intervals;
            state.operations += pending.operations;
            state.events += pending.events;
        }
        Ok(())
    }

    /// Writes a chunk completely or not at all. `always`: the chunk is the header or the end, for which space is kept free.
    fn append(&mut self, chunk: &[u8], always: bool) -> io::Result<()> {
        let length = chunk.len() as u64;
        let state = Arc::clone(&self.state);
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut self.output {
            ChunkOutput::File { file, bytes, limit } => {
                if !always && (state.full || *bytes + length + END_BYTES > limit.0) {
                    state.full = true;
                    return Ok(());
                }
                if let Err(error) = file.write_all(chunk) {
                    // Cuts off the incomplete chunk, so that the file ends with a complete one.
                    let _ = file.set_len(*bytes);
                    return Err(error);
                }
                *bytes += length;
                state.bytes = *bytes;
            }
            ChunkOutput::Segments(segments) => {
                segments.append(&self.header, chunk)?;
                state.bytes = segments.bytes();
                state.error.clear();
                if segments.is_complete() && !std::mem::replace(&mut self.asked, true) {
                    self.wants_segment.store(true, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Takes note of an error. It ends a file; the daemon's directory is tried again with the next chunk.
    fn failed(&self, error: &io::Error) {
        let mut state = self.lock();
        if let ChunkOutput::File { .. } = self.output {
            state.full = true;
        }
        if state.error.is_empty() {
            state.error = error.to_string();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Written> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
