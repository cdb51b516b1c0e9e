//! Summarizes a recording.

use std::collections::{BTreeMap, HashMap};

use model::{Direction, Histogram, Operation};

use super::{
    layers::{LayerBytes, LayerDepth},
    record::{End, IoEntry, IoInterval, IoLine},
};

/// The most processes whose course over time is kept; later ones have sums only.
const MOST_COURSES: usize = 4096;

/// A whole recording.
#[derive(Debug, Default)]
pub struct IoSummary {
    /// By type of file system and mount.
    pub flows: BTreeMap<(String, String), LayerBytes>,
    /// By mount, depth, layer and operation.
    pub operations: BTreeMap<(String, LayerDepth, String, String), Histogram>,
    /// Calls that moved bytes, by depth, layer and direction.
    pub transfers: BTreeMap<(LayerDepth, String, Direction), Histogram>,
    pub processes: HashMap<u32, ProcessSummary>,
    pub course: Vec<IntervalBytes>,
    pub end: Option<End>,
    /// Entries of operations that this program does not know.
    pub not_understood: u64,
}

/// The bytes of one look.
#[derive(Debug)]
pub struct IntervalBytes {
    /// The end of the look, seconds since the start.
    pub end_s: f64,
    pub lasted_s: f64,
    pub bytes: BTreeMap<(LayerDepth, Direction), u64>,
}

/// The operations of one process.
#[derive(Debug, Default)]
pub struct ProcessSummary {
    pub comm: String,
    pub job: String,
    pub rank: Option<u32>,
    /// By depth: nanoseconds in reading, in writing and in everything else, and bytes read and written.
    pub at: BTreeMap<LayerDepth, ProcessShare>,
    /// Index of the look, depth and bytes.
    pub course: Vec<(usize, LayerDepth, u64)>,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct ProcessShare {
    pub reading_ns: u64,
    pub writing_ns: u64,
    pub other_ns: u64,
    pub read: u64,
    pub written: u64,
    pub calls: u64,
}

impl ProcessShare {
    pub fn ns(&self) -> u64 {
        self.reading_ns + self.writing_ns + self.other_ns
    }

    pub fn plus(&self, more: &Self) -> Self {
        Self {
            reading_ns: self.reading_ns + more.reading_ns,
            writing_ns: self.writing_ns + more.writing_ns,
            other_ns: self.other_ns + more.other_ns,
            read: self.read + more.read,
            written: self.written + more.written,
            calls: self.calls + more.calls,
        }
    }
}

impl IoSummary {
    pub fn add(&mut self, line: IoLine) {
        match line {
            IoLine::Header(_) => {}
            IoLine::Interval(interval) => self.add_interval(&interval),
            IoLine::End(end) => self.end = Some(end),
        }
    }

    fn add_interval(&mut self, interval: &IoInterval) {
        let IoInterval { at_s, seconds, .. } = *interval;
        self.course.push(IntervalBytes { end_s: at_s, lasted_s: seconds, bytes: BTreeMap::new() });
        for entry in &interval.entries {
            let operation = probes::protocol(&entry.layer).and_then(|protocol| protocol.operation(&entry.op));
            match operation.and_then(|operation| Some((operation, LayerDepth::of(operation)?))) {
                Some((operation, depth)) => self.add_entry(entry, operation, depth),
                None => self.not_understood += 1,
            }
        }
    }

    fn add_entry(&mut self, entry: &IoEntry, operation: Operation, depth: LayerDepth) {
        let (amounts, direction) = (entry.amounts(), operation.direction());
        self.flows.entry((entry.fstype.clone(), entry.mount.clone())).or_default().add(operation, &amounts);
        let key = (entry.mount.clone(), depth, entry.layer.clone(), entry.op.clone());
        self.operations.entry(key).or_default().merge(&amounts);
        if let Some(direction) = direction {
            self.transfers.entry((depth, entry.layer.clone(), direction)).or_default().merge(&amounts);
            if let Some(look) = self.course.last_mut() {
                *look.bytes.entry((depth, direction)).or_default() += entry.bytes;
            }
        }
        let (look, room) = (self.course.len() - 1, self.processes.len() < MOST_COURSES);
        let process = self.processes.entry(entry.pid).or_default();
        // The last name counts: a shell's child has the shell's name until it calls exec.
        if !entry.comm.is_empty() {
            process.comm.clone_from(&entry.comm);
        }
        process.job.clone_from(&entry.job);
        process.rank = entry.rank.or(process.rank);
        let share = process.at.entry(depth).or_default();
        share.calls += entry.calls;
        match direction {
            Some(Direction::Read) => {
                (share.reading_ns, share.read) = (share.reading_ns + entry.ns, share.read + entry.bytes)
            }
            Some(Direction::Written) => {
                (share.writing_ns, share.written) = (share.writing_ns + entry.ns, share.written + entry.bytes);
            }
            None => share.other_ns += entry.ns,
        }
        if entry.bytes > 0 && (room || !process.course.is_empty()) {
            process.course.push((look, depth, entry.bytes));
        }
    }

    /// The recorded time, seconds.
    pub fn seconds(&self) -> f64 {
        let looked = self.course.last().map_or(0.0, |look| look.end_s);
        self.end.as_ref().map_or(looked, |end| end.seconds.max(looked))
    }

    /// The number of processes that are ranks of an MPI job, including those without I/O; 0 if none is known.
    pub fn ranks(&self) -> u64 {
        self.end.as_ref().map_or(0, |end| end.ranks.into())
    }

    /// The shortest and longest durations of slow operations, nanoseconds; `None` if no operation was slow.
    pub fn known_durations(&self, mount: &str, layer: &str, op: &str) -> Option<(u64, u64)> {
        let durations = &self.end.as_ref()?.durations;
        let found = durations.iter().find(|known| known.mount == mount && known.layer == layer && known.op == op);
        found.map(|known| (known.shortest_ns, known.longest_ns))
    }

    /// The layer of the figures by process: system calls, else the nearest layer that was watched.
    pub fn main_depth(&self) -> LayerDepth {
        let seen = |depth: &LayerDepth| self.transfers.keys().any(|(other, ..)| other == depth);
        let order = [LayerDepth::SystemCalls, LayerDepth::FileSystem, LayerDepth::Library, LayerDepth::Server];
        order.into_iter().find(seen).unwrap_or(LayerDepth::SystemCalls)
    }

    /// The calls at that depth that moved bytes, and those among them that moved fewer than `bytes`, a power of two.
    pub fn smaller_than(&self, depth: LayerDepth, bytes: u64) -> (u64, u64) {
        let limit = Histogram::size_of(bytes).unwrap_or(0);
        let of_depth = self.transfers.iter().filter(|((other, ..), _)| *other == depth);
        of_depth.fold((0, 0), |(all, small), (_, amounts)| {
            let below: u64 = amounts.sizes.iter().take(limit).sum();
            (all + amounts.sizes.iter().sum::<u64>(), small + below)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(layer: &str, op: &str, pid: u32, sizes: &[u64]) -> IoEntry {
        let mut amounts = Histogram::default();
        sizes.iter().for_each(|bytes| amounts.add(1_000_000, *bytes, false));
        IoEntry {
            layer: layer.into(),
            op: op.into(),
            fstype: "cifs".into(),
            mount: "/mnt/share".into(),
            pid,
            comm: "app".into(),
            job: String::new(),
            rank: None,
            calls: amounts.count,
            bytes: amounts.bytes,
            errors: 0,
            ns: amounts.sum,
            sizes: amounts.sizes.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect(),
            latencies: amounts.buckets.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect(),
        }
    }

    #[test]
    fn what_was_recorded_adds_up() {
        let mut summary = IoSummary::default();
        for at in 1..=3 {
            let entries = vec![
                entry("syscalls", "write", 7, &[100, 5000]),
                entry("syscalls", "open", 7, &[0]),
                entry("smb", "SMB2_WRITE", 9, &[5100]),
                entry("elsewhere", "write", 7, &[1]),
            ];
            summary.add(IoLine::Interval(IoInterval { at_s: f64::from(at), seconds: 1.0, entries }));
        }
        let flow = &summary.flows[&("cifs".into(), "/mnt/share".into())];
        assert_eq!(flow.bytes(Direction::Written, LayerDepth::SystemCalls), Some(15_300));
        assert_eq!(flow.bytes(Direction::Written, LayerDepth::Server), Some(15_300));
        let share = summary.processes[&7].at[&LayerDepth::SystemCalls];
        assert_eq!((share.writing_ns, share.other_ns, share.written, share.calls), (6_000_000, 3_000_000, 15_300, 9));
        assert_eq!(summary.smaller_than(LayerDepth::SystemCalls, 4096), (6, 3));
        assert_eq!(
            (summary.seconds(), summary.not_understood, summary.main_depth()),
            (3.0, 3, LayerDepth::SystemCalls)
        );
    }
}
