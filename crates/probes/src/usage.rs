//! Operations by who asked for them.

use model::{BUCKETS, Histogram, MountKey, Operation, SIZES, text::Text};

use crate::{
    decode,
    generated::{Plain, account, usage, usage_key},
};

/// In whose name operations are counted, beside the histograms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Account {
    /// Not by requester.
    #[default]
    Nobody,
    /// By cgroup; by process if the cgroup is not known, because a kernel worker ended the operation.
    Cgroup,
    /// In the process's.
    Process,
}

impl Account {
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Nobody => account::ACCOUNT_NOBODY.0,
            Self::Cgroup => account::ACCOUNT_CGROUP.0,
            Self::Process => account::ACCOUNT_PROCESS.0,
        }
    }
}

/// The properties of operations that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Who {
    /// The operation.
    pub operation: Operation,
    /// On which mount.
    pub mount: MountKey,
    /// Id of the cgroup (v2); 0 if it is not known.
    pub cgroup: u64,
    /// The process (thread group); 0 if only cgroups are told apart.
    pub pid: u32,
}

impl Who {
    /// Whether this entry counts operations that found no room, of all mounts and requesters.
    pub fn is_other(&self) -> bool {
        self.mount == MountKey::NONE && self.cgroup == 0 && self.pid == 0
    }
}

/// The counts of these operations.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Operations.
    pub calls: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of their durations, nanoseconds.
    pub ns: u64,
    /// How many failed.
    pub errors: u64,
    /// Operations that moved bytes, by [`Histogram::size_of`].
    pub sizes: [u32; SIZES],
    /// All operations by duration: [`Histogram::bucket_of`].
    pub buckets: [u32; BUCKETS],
    /// The name of the thread that came first; empty if it is not known.
    pub comm: Text<16>,
}

impl Default for Usage {
    fn default() -> Self {
        let (sizes, buckets) = ([0; SIZES], [0; BUCKETS]);
        Self { calls: 0, bytes: 0, ns: 0, errors: 0, sizes, buckets, comm: Text::default() }
    }
}

impl Usage {
    /// What was added since `earlier`, an older copy.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut delta = Self {
            calls: self.calls.saturating_sub(earlier.calls),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            ns: self.ns.saturating_sub(earlier.ns),
            errors: self.errors.saturating_sub(earlier.errors),
            ..*self
        };
        // The counters are 32 bits wide: many of the shortest operations can overflow them.
        delta.sizes.iter_mut().zip(earlier.sizes).for_each(|(size, earlier)| *size = size.wrapping_sub(earlier));
        let buckets = delta.buckets.iter_mut().zip(earlier.buckets);
        buckets.for_each(|(bucket, earlier)| *bucket = bucket.wrapping_sub(earlier));
        delta
    }

    /// These figures as a histogram.
    pub fn histogram(&self) -> Histogram {
        Histogram {
            count: self.calls,
            sum: self.ns,
            bytes: self.bytes,
            errors: self.errors,
            buckets: self.buckets.map(u64::from),
            sizes: self.sizes.map(u64::from),
        }
    }
}

/// The entry of these bytes; `None` if it names an operation that no probe has.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<(Who, Usage)> {
    let (key, raw) = (usage_key::from_bytes(key)?, usage::from_bytes(value)?);
    let operation = decode::operation(key.probe, key.operation)?;
    let who = Who { operation, mount: MountKey(key.mount), cgroup: key.cgroup, pid: key.pid };
    let usage { calls, bytes, ns, errors, sizes, buckets, comm } = raw;
    let comm = Text::new(&comm.map(i8::cast_unsigned));
    Some((who, Usage { calls, bytes, ns, errors, sizes, buckets, comm }))
}

/// The key of [`Who::is_other`] for an operation.
pub(crate) fn other(probe: u32, operation: u16) -> usage_key {
    usage_key { operation, probe: u8::try_from(probe).unwrap_or(u8::MAX), ..usage_key::default() }
}

/// The key of an entry.
pub(crate) fn key_of(who: &Who, probe: u32) -> usage_key {
    usage_key { mount: who.mount.0, cgroup: who.cgroup, pid: who.pid, ..other(probe, who.operation.code()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_32_bits_may_wrap() {
        let mut earlier = Usage { calls: u64::from(u32::MAX), ..Usage::default() };
        earlier.sizes[12] = u32::MAX;
        let mut now = Usage { calls: earlier.calls + 3, ..earlier };
        now.sizes[12] = 2;
        assert_eq!((now.since(&earlier).calls, now.since(&earlier).sizes[12]), (3, 3));
    }
}
