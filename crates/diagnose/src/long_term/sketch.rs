//! A histogram of times in a few dozen bytes, in which old times lose weight.

use model::Histogram;

/// A bucket with a lower count is removed.
const LEAST: f32 = 0.02;

/// The highest count of a bucket.
const MOST: f32 = 1e9;

/// The number of times in each bucket of [`Histogram::bucket_of`]. Empty buckets are not stored: there are at most 114,
/// mostly a dozen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sketch(Vec<(u8, f32)>);

impl Sketch {
    /// The reverse of [`Sketch::buckets`]. Leaves out invalid buckets and counts.
    pub fn of(buckets: impl IntoIterator<Item = (u8, f32)>) -> Self {
        let mut sketch = Self::default();
        let sound =
            |(bucket, count): &(u8, f32)| usize::from(*bucket) < model::BUCKETS && (LEAST..=MOST).contains(count);
        buckets.into_iter().filter(sound).for_each(|(bucket, count)| sketch.add_to(bucket, count));
        sketch
    }

    /// The buckets and their counts, shortest times first.
    pub fn buckets(&self) -> &[(u8, f32)] {
        &self.0
    }

    /// Adds one time, nanoseconds.
    pub fn add(&mut self, time: u64) {
        let bucket = u8::try_from(Histogram::bucket_of(time)).unwrap_or(u8::MAX);
        self.add_to(bucket, 1.0);
    }

    fn add_to(&mut self, bucket: u8, count: f32) {
        match self.0.binary_search_by_key(&bucket, |(at, _)| *at) {
            Ok(index) => self.0.get_mut(index).into_iter().for_each(|(_, sum)| *sum = (*sum + count).min(MOST)),
            Err(index) => self.0.insert(index, (bucket, count)),
        }
    }

    /// Adds another sketch, as if it had `count` times.
    pub(super) fn add_all(&mut self, other: &Self, count: u64) {
        let part = count as f32 / other.count().max(LEAST);
        other.0.iter().for_each(|(bucket, of)| self.add_to(*bucket, of * part));
    }

    /// Multiplies all counts by `part`, 0 to 1.
    pub fn fade(&mut self, part: f32) {
        self.0.retain_mut(|(_, count)| {
            *count *= part;
            *count >= LEAST
        });
    }

    /// The sum of all counts, which fading has reduced.
    pub fn count(&self) -> f32 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The average of the times, nanoseconds, as if each were in the middle of its bucket; `None` if there are no times.
    pub fn mean(&self) -> Option<f64> {
        let middle = |bucket: u8| {
            let ends = [usize::from(bucket), usize::from(bucket) + 1].map(|end| Histogram::lower_bound(end) as f64);
            f64::midpoint(ends[0], ends[1])
        };
        let sum: f64 = self.0.iter().map(|(bucket, count)| middle(*bucket) * f64::from(*count)).sum();
        let count = f64::from(self.count());
        (count > 0.0).then(|| sum / count)
    }

    /// The quantile `share` (0 to 1) of the times, nanoseconds, interpolated in its bucket; `None` if there are no
    /// times.
    pub fn quantile(&self, share: f32) -> Option<u64> {
        let wanted = share.clamp(0.0, 1.0) * self.count();
        let mut seen = 0.0;
        for (bucket, count) in &self.0 {
            if seen + count >= wanted {
                let (low, high) =
                    (Histogram::lower_bound((*bucket).into()), Histogram::lower_bound(usize::from(*bucket) + 1));
                let within = ((wanted - seen) / count).clamp(0.0, 1.0);
                return Some(low + (high.saturating_sub(low) as f64 * f64::from(within)) as u64);
            }
            seen += count;
        }
        // Only rounding errors lead here.
        self.0.last().map(|(bucket, _)| Histogram::lower_bound(usize::from(*bucket) + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_a_quarter_of_the_truth_and_the_past_fades() {
        let mut sketch = Sketch::default();
        (1..=1_000_u64).for_each(|time| sketch.add(time * 10_000));
        let off = |share: f32, truth: f64| (sketch.quantile(share).unwrap() as f64 / truth - 1.0).abs();
        assert!(off(0.5, 5e6) < 0.26 && off(0.9, 9e6) < 0.26 && off(0.1, 1e6) < 0.26);
        let mut faded = sketch.clone();
        faded.fade(0.5);
        (0..2_000).for_each(|_| faded.add(100_000_000));
        assert_eq!(faded.count(), 2_500.0);
        assert!(faded.quantile(0.5).unwrap() > 90_000_000);
        (0..100).for_each(|_| faded.fade(0.5));
        assert_eq!((faded.buckets().len(), faded.quantile(0.5)), (0, None));
        assert_eq!(Sketch::of(sketch.buckets().iter().copied()), sketch);
        assert_eq!(Sketch::of([(200, 1.0), (3, f32::NAN), (4, -1.0)]), Sketch::default());
    }
}
