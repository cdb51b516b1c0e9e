//! How long the incident's main kind of operation took before the incident.

use model::Incident;

/// The number of newest durations that are kept.
const KEPT: usize = 4_096;
/// The least number of durations for a median.
const ENOUGH: usize = 5;

/// Durations of one kind of operation, nanoseconds.
#[derive(Debug, Default)]
pub struct NormalDurations {
    operation: String,
    durations: Vec<u64>,
    added: usize,
}

impl NormalDurations {
    /// An empty collection for the kind of operation that ranks first in the incident.
    pub fn of(incident: &Incident) -> Self {
        let operation = incident.top.operations.first().map(|top| top.operation.clone()).unwrap_or_default();
        Self { operation, ..Self::default() }
    }

    /// Adds an operation that ended before the incident, if it is of this kind.
    pub fn add(&mut self, operation: &str, took: u64) {
        if operation != self.operation {
            return;
        }
        match self.durations.get_mut(self.added % KEPT) {
            Some(oldest) => *oldest = took,
            None => self.durations.push(took),
        }
        self.added += 1;
    }

    /// The number of durations that are kept.
    pub fn count(&self) -> u64 {
        self.durations.len() as u64
    }

    /// Their median, nanoseconds; `None` if there are too few.
    pub fn median(&self) -> Option<u64> {
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().filter(|_| sorted.len() >= ENOUGH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_newest() {
        let mut normal = NormalDurations::default();
        (0..4).for_each(|_| normal.add("", 7));
        assert_eq!(normal.median(), None);
        (0..2 * KEPT as u64).for_each(|n| normal.add("", n));
        normal.add("other", 1);
        assert_eq!((normal.count(), normal.median()), (KEPT as u64, Some(KEPT as u64 + KEPT as u64 / 2)));
    }
}
