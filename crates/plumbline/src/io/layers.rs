//! The layers that I/O passes through, one below the other, and the bytes of a mount at each layer.

use std::{collections::BTreeMap, sync::LazyLock};

use model::{Direction, Histogram, Level, Operation};

use super::rows::size;

/// The depth of a layer; layers side by side have the same depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerDepth {
    Library,
    SystemCalls,
    FileSystem,
    Server,
}

/// The probes of all layers, uppermost first, with their depths.
pub static LAYERS: LazyLock<Vec<(&'static str, LayerDepth)>> = LazyLock::new(|| {
    let mut layers: Vec<_> =
        probes::protocols().filter_map(|protocol| Some((protocol.name, LayerDepth::at(protocol.level)?))).collect();
    layers.sort_by_key(|(_, depth)| *depth);
    layers
});

impl LayerDepth {
    /// The layer of an operation; `None` if it belongs to no layer, such as an event of a connection.
    pub fn of(operation: Operation) -> Option<Self> {
        Self::at(operation.level())
    }

    fn at(level: Level) -> Option<Self> {
        match level {
            Level::Library => Some(Self::Library),
            Level::SystemCall => Some(Self::SystemCalls),
            Level::FileSystem => Some(Self::FileSystem),
            Level::Daemon | Level::Request => Some(Self::Server),
            Level::Own | Level::Proxy | Level::Transport | Level::Connection | Level::Served => None,
        }
    }

    /// Uppermost first.
    pub const ALL: &[Self] = &[Self::Library, Self::SystemCalls, Self::FileSystem, Self::Server];

    /// Whether one of these probes watches the layer.
    pub fn is_one_of(self, layers: &[String]) -> bool {
        LAYERS.iter().any(|(name, depth)| *depth == self && layers.iter().any(|layer| layer == name))
    }

    /// The name of the layer's operations.
    pub fn calls(self) -> &'static str {
        match self {
            Self::Library => "calls of MPI-IO",
            Self::SystemCalls => "system calls",
            Self::FileSystem => "calls of the file system",
            Self::Server => "requests to servers",
        }
    }

    /// The layer's phrase in a sentence about bytes.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Library => "asked of MPI-IO",
            Self::SystemCalls => "into the kernel",
            Self::FileSystem => "to the file system",
            Self::Server => "to the server",
        }
    }
}

/// Bytes by layer and direction, of one mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerBytes {
    bytes: BTreeMap<(Direction, LayerDepth), u64>,
}

impl LayerBytes {
    pub fn add(&mut self, operation: Operation, amounts: &Histogram) {
        if let (Some(depth), Some(direction)) = (LayerDepth::of(operation), operation.direction()) {
            *self.bytes.entry((direction, depth)).or_default() += amounts.bytes;
        }
    }

    /// The bytes in this direction at that layer; `None` if none were seen.
    pub fn bytes(&self, direction: Direction, depth: LayerDepth) -> Option<u64> {
        self.bytes.get(&(direction, depth)).copied()
    }

    /// The bytes in this direction in words: `asked of MPI-IO 8 MiB, into the kernel 16 MiB`; `None` if there were none. `watched`: the layers
    /// that were watched.
    pub fn line(&self, direction: Direction, watched: &[LayerDepth]) -> Option<String> {
        let all = LayerDepth::ALL;
        if all.iter().all(|depth| self.bytes(direction, *depth).unwrap_or(0) == 0) {
            return None;
        }
        // Without MPI, MPI-IO is not mentioned. A local file system has no server layer.
        let known = |depth: &&LayerDepth| {
            let seen_at_all = self.bytes.keys().any(|(_, other)| other == *depth);
            watched.contains(depth)
                && (seen_at_all || matches!(depth, LayerDepth::SystemCalls | LayerDepth::FileSystem))
        };
        let phrase =
            |depth: &LayerDepth| format!("{} {}", depth.phrase(), size(self.bytes(direction, *depth).unwrap_or(0)));
        Some(all.iter().filter(known).map(phrase).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(protocol: &str, name: &str) -> Operation {
        probes::protocol(protocol).unwrap().operation(name).unwrap()
    }

    fn moved(bytes: u64) -> Histogram {
        Histogram { count: 1, bytes, ..Histogram::default() }
    }

    #[test]
    fn the_layers_are_told_side_by_side_reads_and_writes_apart() {
        let mut flow = LayerBytes::default();
        flow.add(operation("syscalls", "write"), &moved(8 << 20));
        flow.add(operation("syscalls", "write"), &moved(8 << 20));
        flow.add(operation("vfs", "write"), &moved(16 << 20));
        flow.add(operation("smb", "SMB2_WRITE"), &moved(4 << 20));
        flow.add(operation("syscalls", "open"), &moved(0));
        let watched = [LayerDepth::Library, LayerDepth::SystemCalls, LayerDepth::FileSystem, LayerDepth::Server];
        assert_eq!(
            flow.line(Direction::Written, &watched).unwrap(),
            "into the kernel 16 MiB, to the file system 16 MiB, to the server 4 MiB"
        );
        assert_eq!(flow.line(Direction::Read, &watched), None);
    }

    #[test]
    fn every_probe_of_a_layer_reads_and_writes() {
        let names: Vec<_> = LAYERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["mpiio", "syscalls", "vfs", "smb", "nfs", "fuse", "ceph"]);
        for (name, _) in LAYERS.iter() {
            let Some(protocol) = probes::protocol(name) else { continue };
            for direction in [Direction::Read, Direction::Written] {
                assert!(protocol.all_operations().any(|op| op.direction() == Some(direction)), "{name}");
            }
        }
        assert_eq!(operation("syscalls", "readdir").direction(), None);
        assert_eq!(operation("vfs", "writeback").direction(), None);
    }
}
