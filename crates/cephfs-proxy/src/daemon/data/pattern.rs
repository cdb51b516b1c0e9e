//! How a file is read, as far as the daemon sees it: the requests for chunks that are not shown.

use std::{
    collections::HashSet,
    ops::{Range, RangeInclusive},
};

/// The fewest and the most chunks that are read in advance.
const FEWEST: usize = 16;
const MOST: usize = 64;
/// The most chunks of a file of which a part was read.
const MOST_MISSED: usize = 1024;

/// How a file is read.
#[derive(Default)]
pub struct ReadPattern {
    /// The last chunk that was asked for.
    last: usize,
    /// The end of what was read in advance, or is being read.
    ahead: usize,
    /// How many chunks were read in advance the last time; 0: the file is not read sequentially.
    window: usize,
    /// A chunk in the middle of these. It stays hidden, so that the daemon sees when clients have come that far.
    marker: Option<usize>,
    /// Chunks of which a part was asked for.
    missed: HashSet<usize>,
}

impl ReadPattern {
    /// Notes a request. Returns whether it continues those before, and what to read in advance, of a file of so many chunks.
    pub fn next(&mut self, wanted: &RangeInclusive<usize>, chunks: usize) -> (bool, Option<Range<usize>>) {
        let (first, last) = (*wanted.start(), *wanted.end());
        let before = std::mem::replace(&mut self.last, last);
        let is_marker = self.marker.is_some_and(|marker| wanted.contains(&marker));
        let goes_on = first == before + 1;
        if !(is_marker || goes_on || first == before) {
            (self.window, self.ahead, self.marker) = (0, 0, None);
            return (false, None);
        }
        if !(is_marker || goes_on && last + 1 >= self.ahead) {
            return (true, None);
        }
        let start = self.ahead.max(last + 1);
        self.window = (self.window * 2).clamp(FEWEST, MOST);
        let end = (start + self.window).min(chunks);
        if start >= end {
            self.marker = None;
            return (true, None);
        }
        (self.ahead, self.marker) = (end, Some(start + (end - start) / 2));
        (true, Some(start..end))
    }

    /// The chunk that stays hidden.
    pub fn marker(&self) -> Option<usize> {
        self.marker
    }

    /// Notes that a part of a chunk was asked for. Returns whether that was so before.
    pub fn misses(&mut self, chunk: usize) -> bool {
        if self.missed.remove(&chunk) {
            return true;
        }
        if self.missed.len() >= MOST_MISSED {
            self.missed.clear();
        }
        self.missed.insert(chunk);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_on_is_read_ahead_of_from_the_middle_of_what_was_read_ahead_before() {
        let mut pattern = ReadPattern::default();
        assert_eq!(pattern.next(&(0..=0), 1000), (true, None));
        assert_eq!(pattern.next(&(0..=0), 1000), (true, None), "again the same");
        assert_eq!(pattern.next(&(1..=1), 1000), (true, Some(2..18)));
        assert_eq!(pattern.marker(), Some(10));
        assert_eq!(pattern.next(&(10..=10), 1000), (true, Some(18..50)));
        assert_eq!(pattern.next(&(34..=35), 1000), (true, Some(50..114)));
        assert_eq!(pattern.next(&(82..=82), 120), (true, Some(114..120)), "up to the end");
    }

    #[test]
    fn who_reads_here_and_there_is_not_read_ahead_of() {
        let mut pattern = ReadPattern::default();
        for chunk in [50, 20, 70, 900] {
            assert_eq!(pattern.next(&(chunk..=chunk), 1000), (false, None));
            assert!(!pattern.misses(chunk));
        }
        assert!(pattern.misses(20));
    }
}
