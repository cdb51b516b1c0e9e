//! Reads a recording, or a directory of segments, interval by interval. The reader trusts none of its input.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use probes::RECORD_SIZE;

use super::{
    chunk::{self, ChunkKind, RecordingError},
    facts::{RecordedInterval, RecordingHeader, numbering},
    segments,
};

/// The offset in `struct record` of the operation's code, 2 bytes, and of the probe's number, 1 byte.
const CODE_AT: usize = 56;
const PROBE_AT: usize = 58;

/// The next item of a recording.
#[derive(Debug)]
pub enum RecordingItem {
    /// The following intervals are from this run of a recorder; the data of earlier runs no longer apply. Always the first item.
    Run(Box<RecordingHeader>),
    /// An interval of that run.
    Interval(Box<RecordedInterval>),
}

/// A recording being read.
pub struct RecordingReader {
    files: VecDeque<PathBuf>,
    current: Option<Current>,
    run: Option<RecordingHeader>,
    numbers: Numbers,
    notes: Vec<String>,
    damaged: bool,
}

struct Current {
    path: PathBuf,
    file: Box<dyn Read>,
    at: u64,
    payload: Vec<u8>,
    used: usize,
    ended: bool,
}

impl RecordingReader {
    /// Opens a recording, or all segments of a directory.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is no recording, or is of another version.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let files: VecDeque<PathBuf> = match path.is_dir() {
            true => segments::list(path).with_context(|| format!("cannot read {shown}"))?.into(),
            false => [path.to_owned()].into(),
        };
        if files.is_empty() {
            bail!(
                "{shown} is a directory without recordings; name the file, or the directory `recorder` of the daemon's output"
            );
        }
        let mut reader = Self::of_files(files);
        reader.open_next()?;
        Ok(reader)
    }

    /// Notes for the operator: where the recording was cut off or is damaged.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether the reader found bytes that no recorder can have written.
    pub fn damaged(&self) -> bool {
        self.damaged
    }

    /// The next item; `None` at the end. If a file is cut off or damaged, returns the items before the damage and adds a note.
    ///
    /// # Errors
    ///
    /// When the next segment cannot be opened.
    pub fn next(&mut self) -> Result<Option<RecordingItem>> {
        loop {
            let Some(current) = &mut self.current else {
                if self.files.is_empty() {
                    return Ok(None);
                }
                self.open_next()?;
                continue;
            };
            match current.next(&self.numbers) {
                Ok(Some(ChunkContent::Interval(interval))) => return Ok(Some(RecordingItem::Interval(interval))),
                Ok(Some(ChunkContent::Header(header))) => {
                    let same = self.run.as_ref().is_some_and(|run| run.run == header.run && !run.run.is_empty());
                    self.learn_own(&header);
                    self.numbers = Numbers::of(&header);
                    if !same {
                        self.run = Some((*header).clone());
                        return Ok(Some(RecordingItem::Run(header)));
                    }
                }
                Ok(None) => {
                    if !current.ended && self.files.is_empty() {
                        self.notes.push(format!(
                            "{} has no end: its recorder was killed, or still writes",
                            current.path.display()
                        ));
                    }
                    self.current = None;
                }
                Err(error) => {
                    self.damaged |= !matches!(error, RecordingError::CutOff);
                    self.notes.push(format!("{}: {error}; what comes before that is used", current.path.display()));
                    self.current = None;
                }
            }
        }
    }

    /// Registers the operations that the operator of the recording's host had defined, so that this program knows them.
    fn learn_own(&mut self, header: &RecordingHeader) {
        for (protocol, operations) in
            header.numbers.iter().filter(|(id, _)| probes::own::is_own(**id)).map(|(_, it)| it)
        {
            let operations: Vec<_> = operations.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
            if let Err(error) = probes::own::learn(protocol, &operations) {
                self.notes.push(format!(
                    "the operations of {} are left out: {error}",
                    model::text::printable(protocol.as_bytes())
                ));
            }
        }
    }

    fn open_next(&mut self) -> Result<()> {
        let Some(path) = self.files.pop_front() else { return Ok(()) };
        let shown = path.display().to_string();
        let file = File::open(&path).with_context(|| format!("cannot read {shown}"))?;
        self.begin(path, Box::new(BufReader::with_capacity(1 << 16, file)))
    }

    /// Reads a recording that is in memory.
    ///
    /// # Errors
    ///
    /// When it is no recording, or of another version.
    pub fn of_bytes(bytes: Vec<u8>) -> Result<Self> {
        let mut reader = Self::of_files(VecDeque::new());
        reader.begin("memory".into(), Box::new(io::Cursor::new(bytes)))?;
        Ok(reader)
    }

    fn of_files(files: VecDeque<PathBuf>) -> Self {
        Self { files, current: None, run: None, numbers: Numbers::default(), notes: vec![], damaged: false }
    }

    fn begin(&mut self, path: PathBuf, mut file: Box<dyn Read>) -> Result<()> {
        let shown = path.display().to_string();
        match chunk::read_prefix(&mut file) {
            Ok(()) => {}
            // The recorder was killed just after it had created this segment.
            Err(RecordingError::NotOne) if self.run.is_some() => {
                self.notes.push(format!("{shown}: {}; it is left out", RecordingError::NotOne));
                return Ok(());
            }
            Err(error) => return Err(anyhow::Error::from(error).context(shown)),
        }
        let at = chunk::PREFIX as u64;
        self.current = Some(Current { path, file, at, payload: vec![], used: 0, ended: false });
        Ok(())
    }
}

enum ChunkContent {
    Header(Box<RecordingHeader>),
    Interval(Box<RecordedInterval>),
}

impl Current {
    fn next(&mut self, numbers: &Numbers) -> Result<Option<ChunkContent>, RecordingError> {
        loop {
            let begins = self.at;
            let damaged = |what| RecordingError::Damaged { at: begins, what };
            let mut rest = self.payload.get(self.used..).unwrap_or_default();
            if let Some(mut interval) = chunk::take_interval(&mut rest).map_err(damaged)? {
                self.used = self.payload.len() - rest.len();
                numbers.translate(&mut interval);
                return Ok(Some(ChunkContent::Interval(Box::new(interval))));
            }
            let Some((kind, payload)) = chunk::read(&mut self.file, &mut self.at)? else { return Ok(None) };
            match kind {
                ChunkKind::Header => {
                    let header = serde_json::from_slice(&payload).map_err(|error| damaged(error.to_string()))?;
                    return Ok(Some(ChunkContent::Header(Box::new(header))));
                }
                ChunkKind::Intervals => (self.payload, self.used) = (payload, 0),
                ChunkKind::End => self.ended = true,
            }
        }
    }
}

/// Translates the numbers in a recording's records to those of this program, by the names of the operations.
#[derive(Debug, Default)]
struct Numbers(Option<BTreeMap<OperationNumber, Option<OperationNumber>>>);

/// A probe's number, and the code of one of its operations.
type OperationNumber = (u8, u16);

impl Numbers {
    fn of(header: &RecordingHeader) -> Self {
        let ours = numbering();
        if header.numbers.is_empty() || header.numbers == ours {
            return Self(None);
        }
        let index = |names: &[String], name: &str| names.iter().position(|known| known == name && !name.is_empty());
        let mut table = BTreeMap::new();
        for (probe, (protocol, names)) in &header.numbers {
            let known = ours.iter().find(|(_, (name, _))| name == protocol);
            for (code, name) in names.iter().enumerate().take(usize::from(u16::MAX)) {
                let to = known.and_then(|(id, (_, known))| Some((*id, u16::try_from(index(known, name)?).ok()?)));
                table.insert((*probe, code as u16), to);
            }
        }
        Self(Some(table))
    }

    /// Translates the records. Clears those of operations that this program does not have.
    fn translate(&self, interval: &mut RecordedInterval) {
        let Some(table) = &self.0 else { return };
        let records = interval.slices.iter_mut().flat_map(|slice| slice.bytes.chunks_exact_mut(RECORD_SIZE));
        for record in records {
            let (Some([low, high]), Some(probe)) = (record.get(CODE_AT..CODE_AT + 2), record.get(PROBE_AT)) else {
                continue;
            };
            match table.get(&(*probe, u16::from_ne_bytes([*low, *high]))) {
                Some(Some((probe, code))) => {
                    record[CODE_AT..CODE_AT + 2].copy_from_slice(&code.to_ne_bytes());
                    record[PROBE_AT] = *probe;
                }
                _ => record.fill(0),
            }
        }
    }
}
