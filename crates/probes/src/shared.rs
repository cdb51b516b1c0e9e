//! The maps that all probes share: created once, given to every probe's object, read by user space.

use std::{os::fd::AsFd, path::Path, time::Duration};

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder, OpenObject};
use model::{Code, Histogram, Mount, MountKey, Operation};
use nix::time::{ClockId, clock_getres};

use crate::{
    Filter, batches, decode, directory, filesystems,
    generated::{
        Plain, counter, fixed_settings, histogram, histogram_key, mount_name, probe_id, settings, usage as raw_usage,
    },
    names,
    processes::Followed,
    recorder::{self, Recorder, Slice, Tail},
    spec::Spec,
    specs,
    usage::{self, Usage, Who},
    watched_namespace,
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shared.bpf.o"));

/// Size of each probe's share of `settings.threshold` (bpf/event.h); the array's type holds us to it.
pub(crate) const MAX_OPERATIONS: usize = 128;
const THRESHOLDS: usize = probe_id::MAX_PROBES.0 as usize * MAX_OPERATIONS;
/// Size of each probe's share of `settings.ordinary`.
const MAX_ORDINARY: usize = 32;
const ORDINARY: usize = probe_id::MAX_PROBES.0 as usize * MAX_ORDINARY;

/// What is read by other programs, and therefore pinned by the daemon.
const PINNED: &[&str] = &["version", "mounts", "operation_names", "histograms", "recorder", "counters", "mount_names"];

/// How the shared maps are sized and who may fill them.
pub(crate) struct Sizes {
    pub ring_bytes: u32,
    pub recorder_records: u32,
    pub usage_keys: u32,
}

/// What one probe has done since it was loaded, summed over the CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbeCounters {
    /// Operations seen to start.
    pub started: u64,
    /// Of those, operations seen to finish.
    pub finished: u64,
    /// Events meant for the ring. `produced` = events drained + `lost_ring`, exactly, once the ring is empty.
    pub produced: u64,
    /// Events that found the ring full.
    pub lost_ring: u64,
    /// Operations that could not be timed.
    pub lost_inflight: u64,
    /// Operations missing in the histograms.
    pub lost_histogram: u64,
    /// Operations that were not counted by requester, although this was wanted: there were too many requesters.
    pub other_usage: u64,
    /// Events left out on purpose during a flood; the weight of the reported events makes up for them.
    pub sampled_out: u64,
    /// In-flight entries that never finished and were removed by age.
    pub swept: u64,
    /// SMB: waits for credits that timed out or were interrupted, so that nothing was sent.
    pub never_sent: u64,
    /// mpiio: operations that are missing in the histograms' bytes.
    pub bytes_unknown: u64,
}

impl ProbeCounters {
    /// Losses by cause: the names of the metric's `cause` label.
    pub fn losses(&self) -> [(&'static str, u64); 3] {
        [("ring_full", self.lost_ring), ("inflight_full", self.lost_inflight), ("histograms_full", self.lost_histogram)]
    }

    /// Operations under way, or whose end was missed: zero if no operation is in flight.
    pub fn unfinished(&self) -> u64 {
        self.started.saturating_sub(self.finished + self.swept)
    }
}

pub(crate) struct SharedMaps {
    maps: Vec<(String, MapHandle)>,
    settings: settings,
    fixed: fixed_settings,
}

impl SharedMaps {
    /// Of all processes, or of those that are `followed`.
    pub fn create(sizes: &Sizes, followed: Option<&Followed>) -> libbpf_rs::Result<Self> {
        let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?).unwrap_or(u32::MAX).max(1);
        let per_cpu = recorder::per_cpu(sizes.recorder_records, cpus);
        let operations = specs().filter(|spec| spec.is_first()).map(|spec| spec.protocol.all_operations().count());
        let others = u32::try_from(operations.sum::<usize>()).unwrap_or(u32::MAX);
        let mut builder = ObjectBuilder::default();
        let mut object = builder.open_memory(OBJECT)?;
        object.progs_mut().for_each(|mut program| program.set_autoload(false));
        for mut map in object.maps_mut() {
            match map.name().as_encoded_bytes() {
                b"events" => map.set_max_entries(sizes.ring_bytes)?,
                b"recorder" => map.set_max_entries(per_cpu * cpus)?,
                b"followed" => match followed {
                    Some(followed) => map.reuse_fd(followed.map().as_fd())?,
                    None => map.set_max_entries(1)?,
                },
                b"usage" if sizes.usage_keys > 0 => map.set_max_entries(sizes.usage_keys + others)?,
                _ => {}
            }
        }
        let object = object.load()?;
        let maps = object
            .maps()
            .filter(|map| !map.name().to_string_lossy().contains('.'))
            .map(|map| Ok((map.name().to_string_lossy().into_owned(), MapHandle::try_from(&map)?)))
            .collect::<libbpf_rs::Result<Vec<_>>>()?;
        let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map(Duration::from).unwrap_or_default();
        let settings = settings {
            threshold: [u64::MAX; THRESHOLDS],
            failures: [0; THRESHOLDS],
            ordinary: [0; ORDINARY],
            ..settings::default()
        };
        let fixed = fixed_settings {
            // The coarse clocks advance with the tick: their resolution is a jiffy (kernel/time/posix-timers.c).
            tick_ns: u64::try_from(tick.as_nanos()).unwrap_or_default(),
            recorder_mask: per_cpu - 1,
            mount_namespace: watched_namespace::identity().ok().and_then(|id| id.try_into().ok()).unwrap_or_default(),
            only_followed: followed.is_some().into(),
            accounts: (sizes.usage_keys > 0).into(),
        };
        let shared = Self { maps, settings, fixed };
        shared.write_settings()?;
        directory::describe(&shared)?;
        if sizes.usage_keys > 0 {
            shared.make_others()?;
        }
        Ok(shared)
    }

    /// Creates the entries that count operations whose own entry finds no room, while there is room for them.
    fn make_others(&self) -> libbpf_rs::Result<()> {
        let map = self.map("usage")?;
        for spec in specs().filter(|spec| spec.is_first()) {
            for operation in spec.protocol.all_operations() {
                let key = usage::other(spec.id.0, operation.code());
                map.update(key.as_bytes(), raw_usage::default().as_bytes(), MapFlags::ANY)?;
            }
        }
        Ok(())
    }

    /// The map called `name`.
    pub fn map(&self, name: &str) -> libbpf_rs::Result<&MapHandle> {
        self.maps.iter().find(|(known, _)| known == name).map(|(_, map)| map).ok_or_else(|| {
            libbpf_rs::Error::from(std::io::Error::other(format!("the shared object has no map called {name}")))
        })
    }

    /// Gives an object our maps in place of its own declarations of them, and the settings that its programs are loaded with.
    pub fn lend_to(&self, object: &mut OpenObject) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if let Some(value) = map.initial_value_mut().filter(|_| name == ".rodata.fixed") {
                value.iter_mut().zip(self.fixed.as_bytes()).for_each(|(to, from)| *to = *from);
            }
            if let Some((_, ours)) = self.maps.iter().find(|(known, _)| *known == name) {
                map.reuse_fd(ours.as_fd())?;
            }
        }
        Ok(())
    }

    pub fn apply(&mut self, filter: &Filter) -> libbpf_rs::Result<()> {
        self.settings.threshold = [u64::MAX; THRESHOLDS];
        for (operation, threshold) in &filter.thresholds {
            let Some(spec) = Spec::of(operation.protocol()) else { continue };
            let index = spec.id.0 as usize * MAX_OPERATIONS + usize::from(operation.code());
            if let Some(slot) = self.settings.threshold.get_mut(index) {
                *slot = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
            }
        }
        self.settings.failures = [0; THRESHOLDS];
        for operation in &filter.failures {
            let slot = Spec::of(operation.protocol()).and_then(|spec| {
                self.settings.failures.get_mut(spec.id.0 as usize * MAX_OPERATIONS + usize::from(operation.code()))
            });
            slot.into_iter().for_each(|slot| *slot = 1);
        }
        self.settings.ordinary = [0; ORDINARY];
        for spec in specs() {
            let wanted = |code: &&Code| {
                filter.wanted_ordinary.iter().any(|(protocol, other)| *protocol == spec.protocol && other == *code)
            };
            let left = spec.protocol.ordinary.iter().filter(|code| !wanted(code)).take(MAX_ORDINARY);
            let slots = self.settings.ordinary.iter_mut().skip(spec.id.0 as usize * MAX_ORDINARY);
            for (slot, code) in slots.zip(left) {
                *slot = match code {
                    Code::Status(code) | Code::Errno(code) => *code,
                };
            }
        }
        self.settings.mount = filter.mount.0;
        self.settings.pid = filter.pid;
        self.settings.errors_only = filter.errors_only.into();
        self.settings.any_filesystem = filter.all_filesystems.into();
        self.settings.magic = filter.magic;
        self.settings.account = filter.account.code();
        self.settings.own_pid = if filter.watch_self { 0 } else { std::process::id() };
        self.settings.wake_bytes = filter.wake_bytes;
        self.write_settings()
    }

    /// Lets one event in 2^`shift` through.
    pub fn sample(&mut self, shift: u32) -> libbpf_rs::Result<()> {
        self.settings.sample_shift = shift;
        self.write_settings()
    }

    fn write_settings(&self) -> libbpf_rs::Result<()> {
        self.map("settings")?.update(&0_u32.to_ne_bytes(), self.settings.as_bytes(), MapFlags::ANY)
    }

    /// Whether local file systems are watched, too.
    pub fn any_filesystem(&self) -> bool {
        self.settings.any_filesystem != 0
    }

    /// One counter of a probe, summed over the CPUs.
    pub fn counter(&self, probe: probe_id, which: counter) -> libbpf_rs::Result<u64> {
        let index = probe.0 * counter::MAX_COUNTERS.0 + which.0;
        let per_cpu = self.map("counters")?.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
        Ok(per_cpu.iter().filter_map(|value| u64::from_bytes(value)).sum())
    }

    pub fn counters(&self, probe: probe_id) -> libbpf_rs::Result<ProbeCounters> {
        let read = |which| self.counter(probe, which);
        // Losses are read before the total that they are part of. So the difference of the two is never below zero,
        // although both go on counting.
        let lost_ring = read(counter::COUNT_LOST_RING)?;
        Ok(ProbeCounters {
            started: read(counter::COUNT_STARTED)?,
            finished: read(counter::COUNT_FINISHED)?,
            produced: read(counter::COUNT_PRODUCED)?,
            lost_ring,
            lost_inflight: read(counter::COUNT_LOST_INFLIGHT)?,
            lost_histogram: read(counter::COUNT_LOST_HISTOGRAM)?,
            other_usage: read(counter::COUNT_OTHER_USAGE)?,
            sampled_out: read(counter::COUNT_SAMPLED_OUT)?,
            swept: read(counter::COUNT_SWEPT)?,
            never_sent: read(counter::COUNT_NEVER_SENT)?,
            bytes_unknown: read(counter::COUNT_BYTES_UNKNOWN)?,
        })
    }

    /// Every histogram there is.
    pub fn histograms(&self) -> libbpf_rs::Result<Vec<(Operation, MountKey, Histogram)>> {
        let mut all = Vec::new();
        batches::each(self.map("histograms")?, |key, value| {
            let found = histogram_key::from_bytes(key).and_then(|key| {
                let operation = decode::operation(key.probe, key.operation)?;
                Some((operation, MountKey(key.mount), decode::decode_histogram(value)?))
            });
            all.extend(found);
        })?;
        Ok(all)
    }

    /// Puts a histogram in its place that nothing in the kernel counts in.
    pub fn set_histogram(&self, operation: Operation, mount: MountKey, is: &Histogram) -> libbpf_rs::Result<()> {
        let Some(spec) = Spec::of(operation.protocol()).filter(|_| is.count > 0) else { return Ok(()) };
        let key = histogram_key {
            mount: mount.0,
            operation: operation.code(),
            probe: u8::try_from(spec.id.0).unwrap_or_default(),
            ..histogram_key::default()
        };
        let Histogram { count, sum, bytes, errors, buckets, sizes } = *is;
        let value = histogram { count, sum, bytes, errors, buckets, sizes };
        self.map("histograms")?.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
    }

    /// Shows every entry of operations by who asked.
    pub fn usage(&self, mut show: impl FnMut(Who, Usage)) -> libbpf_rs::Result<()> {
        batches::each(self.map("usage")?, |key, value| {
            if let Some((who, usage)) = usage::decode(key, value) {
                show(who, usage);
            }
        })
    }

    /// Removes an entry, and returns its last value; `None` if there is no such entry.
    pub fn take_usage(&self, who: &Who) -> libbpf_rs::Result<Option<Usage>> {
        let Some(spec) = Spec::of(who.operation.protocol()).filter(|_| !who.is_other()) else { return Ok(None) };
        let key = usage::key_of(who, spec.id.0);
        let value = self.map("usage")?.lookup_and_delete(key.as_bytes())?;
        Ok(value.and_then(|value| usage::decode(key.as_bytes(), &value)).map(|(_, usage)| usage))
    }

    /// Removes the histograms of mounts that are `gone`. Returns how many.
    pub fn forget_mounts(&self, gone: impl Fn(MountKey) -> bool) -> libbpf_rs::Result<usize> {
        let map = self.map("histograms")?;
        // A key begins with the mount's.
        let is_gone = |key: &Vec<u8>| u64::from_bytes(key).is_some_and(|mount| gone(MountKey(mount)));
        let keys: Vec<Vec<u8>> = map.keys().filter(is_gone).collect();
        Ok(keys.into_iter().filter(|key| map.delete(key).is_ok()).count())
    }

    /// What a mount key that is a hash stands for.
    pub fn name_of(&self, key: MountKey) -> Option<Mount> {
        let value = self.map("mount_names").ok()?.lookup(&key.0.to_ne_bytes(), MapFlags::ANY).ok()??;
        let name = mount_name::from_bytes(&value)?;
        let source = model::text::Text::<256>::new(&name.source.map(i8::cast_unsigned)).to_string().replace('\\', "/");
        let (server, fstype) = filesystems::of_source(&source);
        Some(Mount { server: server.to_owned(), fstype: fstype.into(), source, ..Mount::default() })
    }

    /// A copy of the flight recorder as it is now.
    pub fn recorder(&self) -> libbpf_rs::Result<Recorder> {
        recorder::copy(self.map("recorder")?, self.fixed.recorder_mask + 1)
    }

    /// A reader of the flight recorder that begins with the oldest record.
    pub fn tail(&self) -> libbpf_rs::Result<Tail> {
        Tail::new(self.map("recorder")?, self.fixed.recorder_mask + 1)
    }

    /// What was recorded since the tail was last read, and how many records it missed.
    pub fn read_tail(&self, tail: &mut Tail) -> libbpf_rs::Result<(Vec<Slice>, u64)> {
        tail.read(|| self.recorded())
    }

    /// About `most` of the newest records, and how many were written since this was last asked with the same `seen`.
    pub fn newest(&self, seen: &mut Vec<u64>, most: usize) -> libbpf_rs::Result<(Vec<Slice>, u64)> {
        recorder::newest(self.map("recorder")?, self.fixed.recorder_mask + 1, seen, self.recorded()?, most)
    }

    /// How many records each CPU has written.
    fn recorded(&self) -> libbpf_rs::Result<Vec<u64>> {
        let index = counter::COUNT_RECORDED.0.to_ne_bytes();
        let heads = self.map("counters")?.lookup_percpu(&index, MapFlags::ANY)?.unwrap_or_default();
        Ok(heads.iter().filter_map(|head| u64::from_bytes(head)).collect())
    }

    /// Removes operations that began before `oldest` or whose requester has `ended`, by their keys, and returns how many; and
    /// entries not used since `unused`.
    pub fn sweep(
        &self,
        inflight: &dyn MapCore,
        probe: probe_id,
        oldest: u64,
        unused: u64,
        ended: impl Fn(&[u8]) -> bool,
    ) -> libbpf_rs::Result<u64> {
        let mut swept = 0;
        let keys: Vec<Vec<u8>> = inflight.keys().collect();
        for key in keys {
            let value = inflight.lookup(&key, MapFlags::ANY)?.unwrap_or_default();
            let [Some(start), Some(used)] = [0, 8].map(|at| u64::from_bytes(value.get(at..).unwrap_or_default()))
            else {
                continue;
            };
            let (finished, abandoned) = (start == 0 && used < unused, start != 0 && (start < oldest || ended(&key)));
            if (finished || abandoned) && inflight.delete(&key).is_ok() {
                swept += u64::from(abandoned);
            }
        }
        if swept > 0 {
            let index = (probe.0 * counter::MAX_COUNTERS.0 + counter::COUNT_SWEPT.0).to_ne_bytes();
            let map = self.map("counters")?;
            let mut values = map.lookup_percpu(&index, MapFlags::ANY)?.unwrap_or_default();
            if let Some(first) = values.first_mut() {
                let total = u64::from_bytes(first).unwrap_or_default() + swept;
                *first = total.to_ne_bytes().to_vec();
                map.update_percpu(&index, &values, MapFlags::ANY)?;
            }
        }
        Ok(swept)
    }

    /// Pins the maps that others read below `folder`, replacing what a crash left there.
    pub fn pin(&mut self, folder: &Path) -> libbpf_rs::Result<()> {
        names::write(self.map("operation_names")?)?;
        std::fs::create_dir_all(folder)?;
        for (name, map) in self.maps.iter_mut().filter(|(name, _)| PINNED.contains(&name.as_str())) {
            let path = folder.join(name.as_str());
            if path.exists() {
                std::fs::remove_file(&path)?;
            }
            map.pin(&path)?;
        }
        Ok(())
    }
}

/// Removes what [`SharedMaps::pin`] made, by this process or by one that was killed.
pub(crate) fn unpin(folder: &Path) {
    for name in PINNED {
        let _ = std::fs::remove_file(folder.join(name));
    }
    let _ = std::fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's are cheaper to find, and must be the same.
    #[test]
    fn the_kernel_side_finds_the_buckets_that_the_model_has() {
        let name = "the_kernel_side_finds_the_buckets_that_the_model_has";
        let mut builder = ObjectBuilder::default();
        let mut object = builder.open_memory(OBJECT).unwrap();
        object.progs_mut().for_each(|mut program| {
            let is_wanted = program.name() == "bucket";
            program.set_autoload(is_wanted);
        });
        let object = match object.load() {
            Ok(object) => object,
            Err(error) => return eprintln!("SKIP {name}: no program can be loaded: {error}"),
        };
        let variables = object.maps().find(|map| map.name() == ".data.bucket").unwrap();
        let program = object.progs_mut().find(|program| program.name() == "bucket").unwrap();
        let edges =
            (0..64).flat_map(|exponent| (0..8_u64).map(move |eighth| (1 << exponent) + ((eighth << exponent) >> 3)));
        for value in edges.flat_map(|edge| [edge - 1, edge, edge + 1]).chain([0, u64::MAX]) {
            let mut bytes = variables.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            bytes[..8].copy_from_slice(&value.to_ne_bytes());
            variables.update(&0_u32.to_ne_bytes(), &bytes, MapFlags::ANY).unwrap();
            program.test_run(libbpf_rs::ProgramInput::default()).unwrap();
            let bytes = variables.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            let found = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            assert_eq!(found(8), Histogram::bucket_of(value), "{value} ns");
            if let Some(size) = Histogram::size_of(value) {
                assert_eq!(found(12), size, "{value} bytes");
            }
        }
    }

    /// As many as fill no batch exactly.
    #[test]
    fn every_histogram_is_read_however_they_lie_in_the_kernels_table() {
        let name = "every_histogram_is_read_however_they_lie_in_the_kernels_table";
        let shared = match SharedMaps::create(&Sizes { ring_bytes: 4096, recorder_records: 64, usage_keys: 0 }, None) {
            Ok(shared) => shared,
            Err(error) => return eprintln!("SKIP {name}: no maps can be made: {error}"),
        };
        let map = shared.map("histograms").unwrap();
        for mount in 1..=3000_u64 {
            let key = histogram_key {
                mount,
                operation: 0,
                probe: probe_id::PROBE_SYSCALLS.0 as u8,
                ..histogram_key::default()
            };
            let value = histogram { count: mount, ..histogram::default() };
            map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).unwrap();
        }
        let mut counts: Vec<_> = shared.histograms().unwrap().iter().map(|(_, key, one)| (key.0, one.count)).collect();
        counts.sort_unstable();
        assert_eq!(counts, (1..=3000).map(|mount| (mount, mount)).collect::<Vec<_>>());
    }
}
