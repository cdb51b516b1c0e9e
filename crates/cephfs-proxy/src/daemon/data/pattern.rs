//! The read pattern of a file, as the daemon sees it: the requests for chunks that are not shown.

use std::{
    mem,
    ops::{Range, RangeInclusive},
    time::{Duration, Instant},
};

/// The fewest and the most chunks that are read in advance.
const FEWEST: usize = 16;
const MOST: usize = 64;
/// Reads of a chunk within this time usually count as one: a client reads the chunk in small pieces, or several clients read the file at once.
/// libcephfs serves such reads faster than a chunk is filled.
const APART: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };
/// The bits for the chunks of a file; chunks of larger files share them.
const MOST_BITS: usize = 1 << 16;

/// The read pattern of a file.
#[derive(Default)]
pub struct ReadPattern {
    /// The last requested chunk.
    last: usize,
    /// The end of the range that was read in advance, or is being read.
    ahead: usize,
    /// The number of chunks of the last read in advance; 0: the file is not read sequentially.
    window: usize,
    /// A chunk in the middle of that range. It stays hidden, so that the daemon sees when clients have reached it.
    marker: Option<usize>,
    /// The chunks that were requested before, and so are worth filling.
    asked: AskedBefore,
}

/// The requested chunks.
#[derive(Default)]
struct AskedBefore {
    /// A bit for each chunk: requested since `since`, and before that.
    now: Vec<u64>,
    before: Vec<u64>,
    since: Option<Instant>,
    /// The number of requested chunks.
    count: usize,
}

impl ReadPattern {
    /// Notes a request. If the request continues the previous ones, returns the range to read in advance, of a file of this many chunks.
    pub fn next(&mut self, wanted: &RangeInclusive<usize>, chunks: usize) -> Option<Range<usize>> {
        let (first, last) = (*wanted.start(), *wanted.end());
        let before = mem::replace(&mut self.last, last);
        let is_marker = self.marker.is_some_and(|marker| wanted.contains(&marker));
        let goes_on = first == before + 1;
        if !(is_marker || goes_on || first == before) {
            (self.window, self.ahead, self.marker) = (0, 0, None);
            return None;
        }
        if !(is_marker || goes_on && last + 1 >= self.ahead) {
            return None;
        }
        let start = self.ahead.max(last + 1);
        self.window = (self.window * 2).clamp(FEWEST, MOST);
        let end = (start + self.window).min(chunks);
        if start >= end {
            self.marker = None;
            return None;
        }
        (self.ahead, self.marker) = (end, Some(start + (end - start) / 2));
        Some(start..end)
    }

    /// The chunk that stays hidden.
    pub fn marker(&self) -> Option<usize> {
        self.marker
    }

    /// Notes that a chunk was requested. Returns whether the chunk had been requested before, some time ago. After more than `most` chunks, all
    /// requests are forgotten: the file is read once from beginning to end, or is read at random and does not fit in the cache.
    pub fn is_asked_again(&mut self, chunk: usize, most: usize) -> bool {
        let AskedBefore { now, before, since, count } = &mut self.asked;
        let time = Instant::now();
        if since.is_none_or(|since| time - since >= APART) {
            *since = Some(time);
            let last = mem::take(now);
            before.resize(before.len().max(last.len()), 0);
            before.iter_mut().zip(last).for_each(|(before, last)| *before |= last);
        }
        let (word, bit) = place(chunk);
        now.resize(now.len().max(word + 1), 0);
        let was_before = before.get(word).is_some_and(|bits| bits & bit != 0);
        if !was_before && now[word] & bit == 0 {
            *count += 1;
        }
        now[word] |= bit;
        if *count > most {
            self.asked = AskedBefore::default();
        }
        was_before
    }

    /// Whether a chunk was requested.
    pub fn was_asked(&self, chunk: usize) -> bool {
        let (word, bit) = place(chunk);
        [&self.asked.now, &self.asked.before].iter().any(|asked| asked.get(word).is_some_and(|bits| bits & bit != 0))
    }
}

/// The word and the bit of a chunk.
fn place(chunk: usize) -> (usize, u64) {
    (chunk % MOST_BITS / 64, 1 << (chunk % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_on_is_read_ahead_of_from_the_middle_of_what_was_read_ahead_before() {
        let mut pattern = ReadPattern::default();
        assert_eq!(pattern.next(&(0..=0), 1000), None);
        assert_eq!(pattern.next(&(0..=0), 1000), None, "again the same");
        assert_eq!(pattern.next(&(1..=1), 1000), Some(2..18));
        assert_eq!(pattern.marker(), Some(10));
        assert_eq!(pattern.next(&(10..=10), 1000), Some(18..50));
        assert_eq!(pattern.next(&(34..=35), 1000), Some(50..114));
        assert_eq!(pattern.next(&(82..=82), 120), Some(114..120), "up to the end");
    }

    #[test]
    fn who_reads_here_and_there_is_not_read_ahead_of() {
        let mut pattern = ReadPattern::default();
        for chunk in [50, 20, 70, 900] {
            assert_eq!(pattern.next(&(chunk..=chunk), 1000), None);
            assert!(!pattern.is_asked_again(chunk, 4));
        }
        assert!(pattern.is_asked_again(20, 4));
        assert!(pattern.was_asked(900) && !pattern.was_asked(901));
        assert!(!pattern.is_asked_again(5, 4), "the fifth");
        assert!(!pattern.is_asked_again(20, 4), "all was forgotten");
    }
}
