//! What is written is read again, and nothing that is read is trusted.

use std::{
    fs,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use model::{Event, Histogram, MountKey};
use probes::{RECORD_SIZE, Slice};
use proptest::prelude::*;

use super::*;

/// A record as `struct record` lays it out: an SMB write of a millisecond.
fn record(end: u64) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_SIZE];
    bytes[..8].copy_from_slice(&end.to_ne_bytes());
    bytes[8..16].copy_from_slice(&7_u64.to_ne_bytes());
    bytes[16..20].copy_from_slice(&1000_u32.to_ne_bytes());
    bytes[56..58].copy_from_slice(&9_u16.to_ne_bytes());
    bytes[58] = 1;
    bytes
}

fn interval(at: u64, operations: u64) -> RecordedInterval {
    let ends = (0..operations).map(|index| at + index);
    let slice = Slice { cpu: 1, first: at, bytes: ends.flat_map(record).collect() };
    let slices = if operations > 0 { vec![slice] } else { vec![] };
    RecordedInterval { facts: IntervalFacts { at, ..IntervalFacts::default() }, slices, begins_segment: false }
}

/// As many operations, of sizes that do not compress.
fn noisy(at: u64, operations: u64) -> RecordedInterval {
    let mut interval = interval(at, operations);
    let mut noise = at;
    for record in interval.slices.iter_mut().flat_map(|slice| slice.bytes.chunks_exact_mut(RECORD_SIZE)) {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        record[40..44].copy_from_slice(&noise.to_be_bytes()[..4]);
    }
    interval
}

fn header() -> RecordingHeader {
    RecordingHeader {
        host: "here".into(),
        run: "one".into(),
        cpus: 2,
        records_per_cpu: 64,
        numbers: numbering(),
        ..RecordingHeader::default()
    }
}

fn write(path: &Path, intervals: impl Iterator<Item = RecordedInterval>) -> Written {
    let writer = RecordingWriter::to_file(path, Limit(1 << 30), header()).unwrap();
    for interval in intervals {
        // A test may outrun the disk; a recorder does not.
        while writer.interval(interval.clone()) == Handed::Lost {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    writer.finish()
}

/// All that can be read: how many runs, the intervals, and the notes.
fn read(mut reader: RecordingReader) -> (usize, Vec<RecordedInterval>, Vec<String>) {
    let (mut runs, mut intervals) = (0, Vec::new());
    while let Some(item) = reader.next().unwrap() {
        match item {
            RecordingItem::Run(_) => runs += 1,
            RecordingItem::Interval(interval) => intervals.push(*interval),
        }
    }
    (runs, intervals, reader.notes().to_vec())
}

fn operations(intervals: &[RecordedInterval]) -> Vec<Event> {
    intervals.iter().flat_map(|interval| &interval.slices).flat_map(probes::operations_of).collect()
}

#[test]
fn what_was_recorded_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let written = write(&path, (1..=100).map(|at| interval(at * 1000, at % 7)));
    let (runs, intervals, notes) = read(RecordingReader::open(&path).unwrap());
    assert_eq!((runs, intervals.len(), notes), (1, 100, vec![]));
    assert_eq!(operations(&intervals).len() as u64, written.operations);
    assert_eq!((written.intervals, written.full, written.error.as_str()), (100, false, ""));
    assert_eq!(written.bytes, fs::metadata(&path).unwrap().len());
}

#[test]
fn an_event_survives_a_recording() {
    let raw = operations(&[interval(5_000_000, 1)]);
    let event = RecordedEvent::new(&raw[0]);
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(serde_json::from_str::<RecordedEvent>(&json).unwrap().event().unwrap(), raw[0]);
    assert_eq!((event.operation.as_str(), event.mount), ("smb:SMB2_WRITE", MountKey(7)));
    assert_eq!(RecordedEvent::default().event(), None, "an operation that this program does not have");
}

#[test]
fn what_finished_adds_up_again() {
    let operation = operation_named("smb:SMB2_READ").unwrap();
    let (mut histogram, mut sum) = (Histogram::default(), Histogram::default());
    [1_000, 1_000_000, 7_000_000].iter().for_each(|duration| histogram.add(*duration, 4096, false));
    let facts = FinishedFacts::new(operation, MountKey(1), &histogram);
    facts.add_to(&mut sum);
    assert_eq!(sum, histogram);
    let hostile = FinishedFacts { count: u64::MAX, latencies: vec![(usize::MAX, 1), (0, u64::MAX)], ..facts };
    hostile.add_to(&mut sum);
    assert_eq!(sum.count, u64::MAX);
}

#[test]
fn operations_are_known_by_name_whatever_their_numbers_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    // A version in which a write was operation 1 of probe 12, and operation 0 is one that we do not have.
    let numbers = [(12, ("smb".to_owned(), vec!["SMB3_TELEPATHY".to_owned(), "SMB2_WRITE".to_owned()]))].into();
    let writer = RecordingWriter::to_file(&path, Limit(1 << 20), RecordingHeader { numbers, ..header() }).unwrap();
    let mut theirs = interval(1000, 2);
    theirs.slices[0].bytes[56..59].copy_from_slice(&[1, 0, 12]);
    theirs.slices[0].bytes[RECORD_SIZE + 56..RECORD_SIZE + 59].copy_from_slice(&[0, 0, 12]);
    writer.interval(theirs);
    writer.finish();
    let (_, intervals, _) = read(RecordingReader::open(&path).unwrap());
    let names: Vec<_> = operations(&intervals).iter().map(|event| event.operation.name()).collect();
    assert_eq!(names, ["SMB2_WRITE"]);
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_good_up_to_its_last_whole_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let (path, cut) = (folder.path().join("recording"), folder.path().join("cut"));
    // A chunk each.
    let large = (1..=5).map(|at| interval(at * 100_000, 5_000));
    write(&path, large);
    let bytes = fs::read(&path).unwrap();
    let mut before = 0;
    for length in (chunk::PREFIX..bytes.len()).step_by(97) {
        fs::write(&cut, &bytes[..length]).unwrap();
        let (_, intervals, notes) = read(RecordingReader::open(&cut).unwrap());
        assert!(intervals.len() >= before, "at {length}: {} intervals after {before}", intervals.len());
        assert_eq!(notes.len(), 1, "at {length}: {notes:?}");
        before = intervals.len();
    }
    assert_eq!(before, 5);
}

#[test]
fn bytes_that_no_recorder_wrote_are_noticed_wherever_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    // A chunk each.
    write(&path, (1..=3).map(|at| noisy(at * 100_000, 5_000)));
    let whole = fs::read(&path).unwrap();
    let mut at = chunk::PREFIX;
    let mut heads = Vec::new();
    while let Some(stored) = whole.get(at + 4..at + 8) {
        heads.push(at);
        at += chunk::CHUNK_HEAD + u32::from_le_bytes(stored.try_into().unwrap()) as usize;
    }
    assert_eq!(heads.len(), 5, "the header, the intervals, and the end");
    for at in heads.iter().flat_map(|at| at - 4..at + chunk::CHUNK_HEAD + 4).filter(|at| *at >= chunk::PREFIX) {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(b"XXXX");
        let (_, _, notes) = read(RecordingReader::of_bytes(bytes).unwrap());
        assert_eq!(notes.len(), 1, "at byte {at} of {}: {notes:?}", whole.len());
    }
}

#[test]
fn a_file_never_grows_beyond_its_limit_and_ends_as_it_should() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let limit = 32 << 10;
    let writer = RecordingWriter::to_file(&path, Limit(limit), header()).unwrap();
    // What its thread has no time for is not written.
    let until = Instant::now() + Duration::from_secs(30);
    let mut at = 0;
    while !writer.written().full {
        assert!(Instant::now() < until, "{:?}", writer.written());
        at += 100_000;
        let _ = writer.interval(interval(at, 1000));
        std::thread::sleep(Duration::from_micros(100));
    }
    let written = writer.finish();
    assert!(written.full && written.intervals > 0, "{written:?}");
    assert!(fs::metadata(&path).unwrap().len() <= limit);
    let (_, intervals, notes) = read(RecordingReader::open(&path).unwrap());
    assert_eq!((intervals.len() as u64, notes), (written.intervals, vec![]));
}

#[test]
fn segments_stay_within_their_limit_the_oldest_go_first_and_others_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 512 << 10;
    let segments = Segments::open(folder.path(), Duration::from_secs(3600), limit).unwrap();
    let directory = folder.path().join(segments::DIRECTORY);
    fs::write(directory.join("notes"), "mine").unwrap();
    let writer = RecordingWriter::to_segments(segments, header()).unwrap();
    for at in 1..=1000 {
        let begins_segment = writer.wants_segment();
        while writer.interval(RecordedInterval { begins_segment, ..noisy(at * 100_000, 400) }) == Handed::Lost {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let written = writer.finish();
    let sizes: Vec<_> =
        segments::list(&directory).unwrap().iter().map(|path| fs::metadata(path).unwrap().len()).collect();
    assert!(sizes.len() > 2 && sizes.iter().sum::<u64>() <= limit, "{sizes:?}");
    assert_eq!(written.error, "");
    let (runs, intervals, notes) = read(RecordingReader::open(&directory).unwrap());
    assert_eq!((runs, notes), (1, vec![]), "segments of one run are one run");
    assert!(intervals.len() < 1000 && intervals.last().unwrap().facts.at == 1000 * 100_000);
    assert_eq!(fs::read_to_string(directory.join("notes")).unwrap(), "mine");
    // What is too old goes with the next chunk.
    let mut segments = Segments::open(folder.path(), Duration::ZERO, limit).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    segments.append(b"", b"chunk").unwrap();
    assert_eq!(segments::list(&directory).unwrap().len(), 1);
}

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    let refused = |bytes: &[u8]| format!("{:#}", RecordingReader::of_bytes(bytes.to_vec()).err().unwrap());
    assert!(refused(b"").contains("is no recording"));
    assert!(refused(b"PLUMBRE").contains("is no recording"));
    let mut newer = chunk::prefix();
    newer[8] = 2;
    assert!(refused(&newer).contains("of version 2"));
    let folder = tempfile::tempdir().unwrap();
    let error = RecordingReader::open(folder.path()).err().unwrap();
    assert!(format!("{error:#}").contains("without recordings"), "{error:#}");
}

/// A recording in memory of intervals in which nothing ended.
pub fn of_facts(all: Vec<IntervalFacts>) -> Vec<u8> {
    let mut payload = Vec::new();
    for facts in all {
        chunk::put_interval(&mut payload, &RecordedInterval { facts, ..RecordedInterval::default() }).unwrap();
    }
    of_chunks(&[
        (chunk::ChunkKind::Header, serde_json::to_vec(&header()).unwrap()),
        (chunk::ChunkKind::Intervals, payload),
    ])
}

/// A recording in memory, with these chunks.
fn of_chunks(chunks: &[(chunk::ChunkKind, Vec<u8>)]) -> Vec<u8> {
    let mut compressor = chunk::compressor().unwrap();
    let mut bytes = chunk::prefix().to_vec();
    for (kind, payload) in chunks {
        bytes.write_all(&chunk::pack(*kind, payload, &mut compressor).unwrap()).unwrap();
    }
    bytes
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(bytes: Vec<u8>) {
        let mut recording = chunk::prefix().to_vec();
        recording.extend(&bytes);
        read(RecordingReader::of_bytes(recording).unwrap());
        read(RecordingReader::of_bytes(of_chunks(&[(chunk::ChunkKind::Header, bytes.clone())])).unwrap());
        read(RecordingReader::of_bytes(of_chunks(&[(chunk::ChunkKind::Intervals, bytes)])).unwrap());
    }
}
