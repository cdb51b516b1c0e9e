//! The queue of batches that wait to be sent, bounded by their bytes.

use std::collections::VecDeque;

use super::{Signal, request::EncodedRequest};

/// Batches in the order in which they came.
pub struct Queue {
    batches: VecDeque<EncodedRequest>,
    bytes: usize,
    limit: usize,
}

impl Queue {
    /// An empty queue for at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { batches: VecDeque::new(), bytes: 0, limit }
    }

    /// Adds a batch. Calls `lost` with each batch that is dropped to make room, or with `batch` itself if it is too
    /// large. The oldest metrics are dropped first: counters are sums since the start, so newer batches contain them.
    /// An incident is sent only once.
    pub fn add(&mut self, batch: EncodedRequest, mut lost: impl FnMut(EncodedRequest)) {
        if batch.body.len() > self.limit {
            return lost(batch);
        }
        self.bytes += batch.body.len();
        self.batches.push_back(batch);
        while self.bytes > self.limit {
            let metrics = self.batches.iter().position(|batch| batch.signal == Signal::Metrics);
            let Some(gone) = self.batches.remove(metrics.unwrap_or(0)) else { return };
            self.bytes -= gone.body.len();
            lost(gone);
        }
    }

    /// The oldest batch.
    pub fn first(&self) -> Option<&EncodedRequest> {
        self.batches.front()
    }

    /// Removes the oldest batch, if there is one.
    pub fn remove_first(&mut self) {
        self.bytes -= self.batches.pop_front().map_or(0, |batch| batch.body.len());
    }

    /// Whether no batch waits.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The most bytes that may wait.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(signal: Signal, items: u64, bytes: usize) -> EncodedRequest {
        EncodedRequest { signal, items, body: vec![0; bytes].into() }
    }

    /// Adds a batch; returns the `items` of the batches lost by that, and of those that wait.
    fn add(queue: &mut Queue, batch: EncodedRequest) -> (Vec<u64>, Vec<u64>) {
        let mut lost = Vec::new();
        queue.add(batch, |gone| lost.push(gone.items));
        (lost, queue.batches.iter().map(|batch| batch.items).collect())
    }

    #[test]
    fn the_oldest_metrics_go_first_and_incidents_last() {
        let mut queue = Queue::new(100);
        assert_eq!(add(&mut queue, batch(Signal::Logs, 1, 40)), (vec![], vec![1]));
        assert_eq!(add(&mut queue, batch(Signal::Metrics, 2, 40)), (vec![], vec![1, 2]));
        assert_eq!(add(&mut queue, batch(Signal::Metrics, 3, 40)), (vec![2], vec![1, 3]));
        assert_eq!(add(&mut queue, batch(Signal::Logs, 4, 60)), (vec![3], vec![1, 4]));
        assert_eq!(add(&mut queue, batch(Signal::Logs, 5, 60)), (vec![1, 4], vec![5]));
        assert_eq!(add(&mut queue, batch(Signal::Logs, 6, 101)), (vec![6], vec![5]), "larger than all there is");
        queue.remove_first();
        assert!(queue.is_empty() && queue.bytes == 0);
        queue.remove_first();
    }
}
