//! Assigns slices to rows of a trace file. Slices of one row must nest, but requests of one thread may overlap.

use std::collections::HashMap;

use model::Nanos;

/// The most rows of one thread; further overlapping slices share the last row.
const MOST: usize = 64;
/// The most threads whose rows are remembered. Beyond this, all are forgotten.
const MOST_THREADS: usize = 65_536;

/// The rows of threads, each with the time until which it is occupied.
#[derive(Debug, Default)]
pub struct ThreadLanes(HashMap<(u32, u32), Vec<Nanos>>);

impl ThreadLanes {
    /// The first row of a thread that is free at `start`, and whether it is new. The row is then occupied until `end`.
    pub fn take(&mut self, thread: (u32, u32), start: Nanos, end: Nanos) -> (usize, bool) {
        if self.0.len() > MOST_THREADS {
            self.0.clear();
        }
        let lanes = self.0.entry(thread).or_default();
        let free = lanes.iter().position(|until| *until <= start);
        let is_new = free.is_none() && lanes.len() < MOST;
        if is_new {
            lanes.push(0);
        }
        let lane = free.unwrap_or(lanes.len() - 1);
        if let Some(until) = lanes.get_mut(lane) {
            *until = end.max(*until);
        }
        (lane, is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_has_rows_of_its_own_and_a_free_row_is_used_again() {
        let mut lanes = ThreadLanes::default();
        let mut take = |thread, start, end| lanes.take((thread, thread), start, end);
        assert_eq!([take(1, 0, 10), take(1, 5, 15), take(1, 10, 20)], [(0, true), (1, true), (0, false)]);
        assert_eq!([take(2, 5, 6), take(1, 12, 13), take(1, 15, 16)], [(0, true), (2, true), (1, false)]);
    }
}
