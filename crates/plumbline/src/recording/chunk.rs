//! The container of a recording: chunks that are compressed one by one, and limited in size so that a reader can hold one in memory.

use std::io::{self, Read, Write};

use super::facts::RecordedInterval;
use probes::{RECORD_SIZE, Slice};

/// The first bytes of every recording.
pub const MAGIC: [u8; 8] = *b"PLUMBREC";
/// The version of prefix and chunks. The content of a chunk may change without a new version: it is JSON, and readers skip unknown keys.
pub const VERSION: u32 = 1;
/// Bytes in front of the first chunk: magic, version, zero.
pub const PREFIX: usize = 16;
/// Bytes in front of a chunk's payload: kind, bytes stored, bytes unpacked, zero.
pub const CHUNK_HEAD: usize = 16;
/// The largest chunk on disk, bytes.
pub const MOST_STORED: u32 = 16 << 20;
/// The largest chunk when unpacked, bytes.
pub const MOST_UNPACKED: u32 = 32 << 20;
/// In every version, the kinds of chunks are below this; any other number is damage.
const KINDS: u32 = 256;
/// zstd's level. An always-on recorder needs little CPU time more than small files.
const LEVEL: i32 = 1;

/// What a chunk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ChunkKind {
    /// One `RecordingHeader` as JSON.
    Header = 1,
    /// Any number of intervals.
    Intervals = 2,
    /// One `End` as JSON.
    End = 3,
}

/// The prefix of a file.
pub fn prefix() -> [u8; PREFIX] {
    let mut bytes = [0; PREFIX];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Why bytes are not a recording, or not a chunk of one.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file does not begin as a recording does.
    #[error("it is no recording of `plumbline record`")]
    NotOne,
    /// The recording has another version.
    #[error(
        "it is a recording of version {0}; this program reads version {VERSION}: use the program that made it, or a newer one"
    )]
    Version(u32),
    /// The file ends in the middle of a chunk, as when the recorder was killed.
    #[error("it was cut off in the middle of a chunk")]
    CutOff,
    /// A chunk that no recorder can have written.
    #[error("a chunk at byte {at} is damaged: {what}")]
    Damaged {
        /// Where the chunk begins in the file.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Packs a payload as a chunk.
pub fn pack(kind: ChunkKind, payload: &[u8], compressor: &mut zstd::bulk::Compressor<'_>) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::other("a chunk is too large");
    let unpacked = u32::try_from(payload.len()).ok().filter(|length| *length <= MOST_UNPACKED).ok_or_else(too_large)?;
    let stored = compressor.compress(payload)?;
    let length = u32::try_from(stored.len()).ok().filter(|length| *length <= MOST_STORED).ok_or_else(too_large)?;
    let mut chunk = Vec::with_capacity(CHUNK_HEAD + stored.len());
    for word in [kind as u32, length, unpacked, 0] {
        chunk.extend_from_slice(&word.to_le_bytes());
    }
    chunk.extend_from_slice(&stored);
    Ok(chunk)
}

/// A compressor whose frames carry a checksum.
pub fn compressor() -> io::Result<zstd::bulk::Compressor<'static>> {
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    Ok(compressor)
}

/// Reads the prefix.
pub fn read_prefix(file: &mut impl Read) -> Result<(), RecordingError> {
    let mut bytes = [0; PREFIX];
    if read_up_to(file, &mut bytes)? < PREFIX || bytes[..8] != MAGIC {
        return Err(RecordingError::NotOne);
    }
    match u32_at(&bytes, 8) {
        Some(VERSION) => Ok(()),
        version => Err(RecordingError::Version(version.unwrap_or_default())),
    }
}

/// Reads the kind and payload of the chunk at byte `at`, and advances `at` to the next chunk. Skips chunks of unknown kinds. `None` at the end
/// of the file.
pub fn read(file: &mut impl Read, at: &mut u64) -> Result<Option<(ChunkKind, Vec<u8>)>, RecordingError> {
    loop {
        let mut head = [0; CHUNK_HEAD];
        match read_up_to(file, &mut head)? {
            0 => return Ok(None),
            CHUNK_HEAD => {}
            _ => return Err(RecordingError::CutOff),
        }
        let damaged = |what: &str| RecordingError::Damaged { at: *at, what: what.to_owned() };
        let [kind, stored, unpacked, zero] = [0, 4, 8, 12].map(|place| u32_at(&head, place).unwrap_or_default());
        if kind >= KINDS || zero != 0 {
            return Err(damaged("no recorder writes such a head"));
        }
        if stored > MOST_STORED || unpacked > MOST_UNPACKED {
            return Err(damaged("it claims to be larger than any chunk is"));
        }
        // The memory grows with the bytes that are read, not with the length that the chunk claims.
        let mut bytes = Vec::new();
        file.by_ref().take(stored.into()).read_to_end(&mut bytes)?;
        if bytes.len() < stored as usize {
            return Err(RecordingError::CutOff);
        }
        let kind = match kind {
            1 => Some(ChunkKind::Header),
            2 => Some(ChunkKind::Intervals),
            3 => Some(ChunkKind::End),
            _ => None,
        };
        let begins = *at;
        *at += CHUNK_HEAD as u64 + u64::from(stored);
        let Some(kind) = kind else { continue };
        let mut payload = Vec::new();
        let unpack = zstd::stream::read::Decoder::with_buffer(bytes.as_slice());
        unpack
            .and_then(|decoder| decoder.take(u64::from(unpacked) + 1).read_to_end(&mut payload))
            .map_err(|error| RecordingError::Damaged { at: begins, what: error.to_string() })?;
        if payload.len() != unpacked as usize {
            return Err(RecordingError::Damaged {
                at: begins,
                what: "it unpacks to another length than it claims".into(),
            });
        }
        return Ok(Some((kind, payload)));
    }
}

/// Appends an interval to a payload.
pub fn put_interval(payload: &mut Vec<u8>, interval: &RecordedInterval) -> io::Result<()> {
    let at = payload.len();
    payload.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut *payload, &interval.facts)?;
    let length = u32::try_from(payload.len() - at - 4).map_err(io::Error::other)?;
    if let Some(place) = payload.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
    payload.extend_from_slice(&(interval.slices.len() as u32).to_le_bytes());
    for slice in &interval.slices {
        payload.extend_from_slice(&slice.cpu.to_le_bytes());
        payload.extend_from_slice(&((slice.bytes.len() / RECORD_SIZE) as u32).to_le_bytes());
        payload.extend_from_slice(&slice.first.to_le_bytes());
        payload.write_all(&slice.bytes)?;
    }
    Ok(())
}

/// Takes the next interval off a payload; `None` at its end. The error says why the bytes are no interval.
pub fn take_interval(payload: &mut &[u8]) -> Result<Option<RecordedInterval>, String> {
    if payload.is_empty() {
        return Ok(None);
    }
    let short = || "an interval is cut off".to_owned();
    let length = take_word(payload).ok_or_else(short)?;
    let json = take(payload, length as usize).ok_or_else(short)?;
    let facts =
        serde_json::from_slice(json).map_err(|error| format!("an interval's facts are not understood: {error}"))?;
    let count = take_word(payload).ok_or_else(short)?;
    let mut slices = Vec::new();
    for _ in 0..count {
        let (cpu, records) = (take_word(payload).ok_or_else(short)?, take_word(payload).ok_or_else(short)?);
        let first = take(payload, 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let bytes = (records as usize).checked_mul(RECORD_SIZE).and_then(|length| take(payload, length));
        let (Some(first), Some(bytes)) = (first, bytes) else { return Err(short()) };
        slices.push(Slice { cpu, first, bytes: bytes.to_vec() });
    }
    Ok(Some(RecordedInterval { facts, slices, begins_segment: false }))
}

fn take<'a>(from: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(taken)
}

fn take_word(from: &mut &[u8]) -> Option<u32> {
    take(from, 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Fills `bytes` up to the end of the file. Returns the number of bytes read.
fn read_up_to(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
