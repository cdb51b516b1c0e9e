//! Which operations a latency rule judges, and against which threshold: the three modes.

use std::{collections::BTreeMap, time::Duration};

use model::{Operation, Protocol};

/// The meaning of a rule's two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListMode {
    /// Every operation but the excluded; the tracked ones against thresholds of their own.
    All,
    /// Only tracked operations.
    TrackOnly,
    /// All operations except excluded ones, at the default threshold.
    ExcludeOnly,
}

impl ListMode {
    /// The modes with their names in the configuration.
    pub const NAMES: [(&str, ListMode); 3] =
        [("all", Self::All), ("trackonly", Self::TrackOnly), ("excludeonly", Self::ExcludeOnly)];
}

/// What a latency rule says about operations.
#[derive(Debug)]
pub struct OperationSelection<'a> {
    /// The meaning of the lists.
    pub mode: ListMode,
    /// The threshold of operations without their own.
    pub default_threshold: Duration,
    /// Operations named to be judged, each with its own threshold if it has one.
    pub track: &'a [(Operation, Option<Duration>)],
    /// Operations named not to be judged.
    pub exclude: &'a [Operation],
    /// Whether operations that wait by design are judged without being tracked by name.
    pub waiting_too: bool,
}

impl OperationSelection<'_> {
    /// The threshold of every operation that is judged.
    pub fn thresholds(&self, protocol: &'static Protocol) -> BTreeMap<Operation, Duration> {
        protocol.all_operations().filter_map(|operation| Some((operation, self.threshold(operation)?))).collect()
    }

    fn threshold(&self, operation: Operation) -> Option<Duration> {
        let tracked = self.track.iter().find(|(tracked, _)| *tracked == operation);
        let own = tracked.map(|(_, threshold)| threshold.unwrap_or(self.default_threshold));
        let others = (self.waiting_too || !operation.only_by_name()).then_some(self.default_threshold);
        let excluded = self.exclude.contains(&operation);
        match self.mode {
            ListMode::TrackOnly => own,
            ListMode::All | ListMode::ExcludeOnly if excluded => None,
            ListMode::All => own.or(others),
            ListMode::ExcludeOnly => others,
        }
    }
}
