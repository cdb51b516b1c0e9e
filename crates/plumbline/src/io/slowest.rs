//! The files on which slow operations took the most time.

use std::collections::HashMap;

use model::{Event, Mount, MountKey, text::Text};

use super::record::SlowFile;
use crate::view::event::milliseconds;

/// The most files that are kept. Beyond this, the half with the least time is dropped.
const MOST: usize = 4096;
/// The most files that are listed.
const LISTED: usize = 25;

#[derive(Debug, Default)]
pub struct Slowest {
    files: HashMap<FileKey, Slow>,
}

/// Layer, mount, file.
type FileKey = (&'static str, MountKey, Text<128>);

#[derive(Debug, Clone, Copy, Default)]
struct Slow {
    calls: u64,
    bytes: u64,
    total: u64,
    longest: u64,
    op: &'static str,
}

impl Slowest {
    pub fn add(&mut self, event: &Event) {
        let Some(file) = event.detail.file().filter(|file| !file.name.is_empty()) else { return };
        let (calls, bytes, took) = (u64::from(event.weight), event.bytes, event.duration);
        let key = (event.operation.protocol().name, event.mount, file.name);
        self.merge(
            key,
            Slow { calls, bytes: bytes * calls, total: took * calls, longest: took, op: event.operation.name() },
        );
    }

    fn merge(&mut self, key: FileKey, more: Slow) {
        if self.files.len() >= MOST {
            self.forget_half();
        }
        let slow = self.files.entry(key).or_default();
        slow.calls += more.calls;
        slow.bytes += more.bytes;
        slow.total += more.total;
        if more.longest >= slow.longest {
            (slow.longest, slow.op) = (more.longest, more.op);
        }
    }

    fn forget_half(&mut self) {
        let mut totals: Vec<u64> = self.files.values().map(|slow| slow.total).collect();
        totals.sort_unstable();
        let middle = totals.get(totals.len() / 2).copied().unwrap_or(u64::MAX);
        self.files.retain(|_, slow| slow.total > middle);
    }

    /// The files with the most time, the slowest first.
    pub fn list(&self, mount: impl Fn(MountKey) -> Mount) -> Vec<SlowFile> {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by_key(|(_, slow)| std::cmp::Reverse(slow.total));
        let row = |((layer, key, file), slow): (&FileKey, &Slow)| SlowFile {
            layer: (*layer).into(),
            mount: mount(*key).label().to_owned(),
            file: file.to_string(),
            calls: slow.calls,
            bytes: slow.bytes,
            total_ms: milliseconds(slow.total),
            longest_ms: milliseconds(slow.longest),
            op: slow.op.into(),
        };
        files.into_iter().take(LISTED).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_files_there_are_the_slowest_are_remembered() {
        let mut slowest = Slowest::default();
        for number in 0..20_000_u64 {
            let file = Text::new(format!("file-{number}").as_bytes());
            let duration = if number == 3 { 1 << 40 } else { 1_000_000 + number };
            slowest.merge(("syscalls", MountKey(1), file), Slow { total: duration, ..Slow::default() });
        }
        assert!(slowest.files.len() <= MOST);
        let listed = slowest.list(|_| Mount::default());
        assert_eq!((listed.len(), listed[0].file.as_str()), (LISTED, "file-3"));
    }
}
