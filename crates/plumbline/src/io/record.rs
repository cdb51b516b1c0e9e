//! A recording: the result of every look as a line of JSON, compressed with zstd. The first line is the header, the last has the totals. A recording
//! that was cut off lacks the last line and can be read up to there.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use model::{Histogram, Mount, sparse};
use serde::{Deserialize, Serialize};

use super::{files::FileUse, known, meter::IoSample, owner::Owner};

/// The version of the lines' format.
const VERSION: u32 = 1;
/// The most bytes that are read of a recording, uncompressed.
const MOST_BYTES: u64 = 4 << 30;
/// The longest line, bytes: an interval of 65 536 entries.
const LONGEST_LINE: u64 = 256 << 20;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum IoLine {
    Header(IoHeader),
    Interval(IoInterval),
    End(End),
}

/// The header of a recording.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct IoHeader {
    pub version: u32,
    pub host: String,
    pub kernel: String,
    pub started: String,
    /// Empty if no command was started.
    pub command: Vec<String>,
    /// The watched layers.
    pub layers: Vec<String>,
    /// The least duration of operations that are listed by file, milliseconds.
    pub slow_ms: f64,
}

/// The result of one look.
#[derive(Debug, Serialize, Deserialize)]
pub struct IoInterval {
    /// The end of the interval, seconds since the start.
    pub at_s: f64,
    pub seconds: f64,
    pub entries: Vec<IoEntry>,
}

/// The operations of one kind of one process on one mount.
#[derive(Debug, Serialize, Deserialize)]
pub struct IoEntry {
    pub layer: String,
    pub op: String,
    pub fstype: String,
    pub mount: String,
    /// 0: processes for which there was no room.
    pub pid: u32,
    pub comm: String,
    pub job: String,
    /// The rank in an MPI job, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    pub calls: u64,
    pub bytes: u64,
    pub errors: u64,
    pub ns: u64,
    /// Index and count of the non-empty buckets of sizes: [`Histogram::sizes`].
    pub sizes: Vec<(usize, u64)>,
    /// Index and count of the non-empty buckets of latencies: [`Histogram::buckets`].
    pub latencies: Vec<(usize, u64)>,
}

/// The values that are known only at the end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct End {
    pub seconds: f64,
    /// The command's exit code, if there was one.
    pub status: Option<i32>,
    pub slowest: Vec<SlowFile>,
    /// Operations that are missing or have no requester, by cause.
    pub losses: BTreeMap<String, u64>,
    /// The number of processes that are ranks of an MPI job, including those without I/O.
    #[serde(default)]
    pub ranks: u32,
    /// The use of files by process and file; empty in older recordings, and if the kernel refuses it.
    #[serde(default)]
    pub files: Vec<FileUse>,
    /// The durations of slow operations, by mount, layer and operation.
    #[serde(default)]
    pub durations: Vec<known::Duration>,
}

/// Slow operations on one file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SlowFile {
    pub layer: String,
    pub mount: String,
    pub file: String,
    pub calls: u64,
    pub bytes: u64,
    pub total_ms: f64,
    pub longest_ms: f64,
    /// The longest operation.
    pub op: String,
}

impl IoEntry {
    pub fn new(sample: &IoSample, mount: &Mount, owner: &Owner, rank: Option<u32>) -> Self {
        let amounts = &sample.amounts;
        Self {
            layer: sample.operation.protocol().name.into(),
            op: sample.operation.name().into(),
            fstype: mount.fstype.clone(),
            mount: mount.label().to_owned(),
            pid: sample.pid,
            comm: owner.comm.clone(),
            job: owner.cgroup.job.clone(),
            rank,
            calls: amounts.count,
            bytes: amounts.bytes,
            errors: amounts.errors,
            ns: amounts.sum,
            sizes: sparse(&amounts.sizes),
            latencies: sparse(&amounts.buckets),
        }
    }

    /// The histogram of the entry.
    pub fn amounts(&self) -> Histogram {
        let mut amounts = Histogram {
            count: self.calls,
            sum: self.ns,
            bytes: self.bytes,
            errors: self.errors,
            ..Histogram::default()
        };
        let fill = |to: &mut [u64], from: &[(usize, u64)]| {
            for (index, count) in from {
                if let Some(slot) = to.get_mut(*index) {
                    *slot = *count;
                }
            }
        };
        fill(&mut amounts.sizes, &self.sizes);
        fill(&mut amounts.buckets, &self.latencies);
        amounts
    }
}

/// A recording that is being written.
pub struct IoRecordWriter {
    encoder: zstd::stream::write::Encoder<'static, BufWriter<File>>,
}

impl IoRecordWriter {
    /// Creates a recording. An existing file of that name is replaced.
    pub fn create(path: &Path, header: IoHeader) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        let encoder = zstd::stream::write::Encoder::new(BufWriter::new(file), 3)?;
        let mut writer = Self { encoder };
        writer.write(&IoLine::Header(IoHeader { version: VERSION, ..header }))?;
        Ok(writer)
    }

    /// Adds a line. It is passed to the kernel before this returns, so that it is not lost if the process is killed.
    pub fn write(&mut self, line: &IoLine) -> Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.encoder.write_all(&text).and_then(|()| self.encoder.flush()).context("cannot write the recording")
    }

    pub fn finish(mut self, end: End) -> Result<()> {
        self.write(&IoLine::End(end))?;
        self.encoder.finish()?.flush().context("cannot write the recording")
    }
}

/// Calls `each` for every line after the header. Returns the header, and whether the recording is complete.
pub fn read(path: &Path, mut each: impl FnMut(IoLine)) -> Result<(IoHeader, bool)> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let decoder = zstd::stream::read::Decoder::new(file)?;
    let mut lines = BufReader::new(decoder.take(MOST_BYTES));
    let not_one = || format!("{} is no recording of `plumbline io --record`", path.display());
    let header = match next(&mut lines) {
        Ok(Some(IoLine::Header(header))) => header,
        Ok(_) => bail!(not_one()),
        Err(error) => return Err(anyhow::Error::from(error).context(not_one())),
    };
    ensure!(
        header.version == VERSION,
        "{} is a recording of version {}; this program reads version {VERSION}",
        path.display(),
        header.version
    );
    loop {
        match next(&mut lines) {
            Ok(Some(end @ IoLine::End(_))) => {
                each(end);
                return Ok((header, true));
            }
            Ok(Some(line)) => each(line),
            // The recording was cut off by a crash, or is still being written.
            Ok(None) | Err(_) => return Ok((header, false)),
        }
    }
}

fn next(lines: &mut impl BufRead) -> io::Result<Option<IoLine>> {
    let mut line = Vec::new();
    if lines.take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{MountKey, text::Text};

    fn record(path: &Path) -> Histogram {
        let mut amounts = Histogram::default();
        [0, 4096, 1 << 40].iter().for_each(|bytes| amounts.add(3_000_000, *bytes, *bytes == 0));
        let operation = probes::protocol("syscalls").unwrap().operation("write").unwrap();
        let sample = IoSample {
            operation,
            mount: MountKey(1),
            cgroup: 0,
            pid: 7,
            comm: Text::default(),
            amounts: amounts.clone(),
        };
        let mut writer = IoRecordWriter::create(path, IoHeader { host: "here".into(), ..IoHeader::default() }).unwrap();
        let entries = vec![IoEntry::new(&sample, &Mount::default(), &Owner::default(), None)];
        writer.write(&IoLine::Interval(IoInterval { at_s: 1.0, seconds: 1.0, entries })).unwrap();
        writer.finish(End { seconds: 1.5, ..End::default() }).unwrap();
        amounts
    }

    #[test]
    fn what_was_recorded_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        let amounts = record(&path);
        let mut lines = Vec::new();
        let (header, whole) = read(&path, |line| lines.push(line)).unwrap();
        assert_eq!((header.host.as_str(), whole, lines.len()), ("here", true, 2));
        let IoLine::Interval(interval) = &lines[0] else { panic!("{lines:?}") };
        assert_eq!(interval.entries[0].amounts(), amounts);
    }

    #[test]
    fn one_that_was_cut_off_is_good_up_to_there_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        record(&path);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 12]).unwrap();
        let mut lines = 0;
        assert!(!read(&path, |_| lines += 1).unwrap().1);
        assert!(lines >= 1);
        std::fs::write(&path, "{}\n").unwrap();
        assert!(format!("{:#}", read(&path, |_| ()).unwrap_err()).contains("is no recording"));
    }
}
