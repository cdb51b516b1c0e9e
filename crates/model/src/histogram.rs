//! Histograms. Latency buckets are powers of two, four to each; size buckets are powers of two.

/// Number of buckets. Bucket 0 is below 1 024 ns; the last is everything from 2^38 ns (275 s).
pub const BUCKETS: usize = 114;

/// Number of sizes. Size n is from 2^n bytes on, the last everything from 2^31.
pub const SIZES: usize = 32;

/// log2 of the steps within each power of two.
const SUB_BITS: u32 = 2;
/// The first power of two with buckets of its own: 2^10 ns.
const FIRST_EXPONENT: u32 = 10;

/// Every operation of one kind on one mount since the probe was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// Operations.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub sum: u64,
    /// Sum of their payload bytes.
    pub bytes: u64,
    /// How many failed.
    pub errors: u64,
    /// Operations per bucket; see [`Histogram::bucket_of`].
    pub buckets: [u64; BUCKETS],
    /// Operations that moved bytes, by size; see [`Histogram::size_of`].
    pub sizes: [u64; SIZES],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { count: 0, sum: 0, bytes: 0, errors: 0, buckets: [0; BUCKETS], sizes: [0; SIZES] }
    }
}

impl Histogram {
    /// The index of the bucket for a duration in nanoseconds. `bucket_of` in observe.h of the probes must return the same; a test
    /// compares them.
    pub fn bucket_of(duration: u64) -> usize {
        let Some(exponent) = duration.checked_ilog2().filter(|exponent| *exponent >= FIRST_EXPONENT) else {
            return 0;
        };
        let step = (duration >> (exponent - SUB_BITS)) & ((1 << SUB_BITS) - 1);
        let bucket = u64::from((exponent - FIRST_EXPONENT) << SUB_BITS) + step + 1;
        usize::try_from(bucket).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
    }

    /// The index of the size bucket for a number of bytes: floor(log2(bytes)); `None` for 0 bytes.
    pub fn size_of(bytes: u64) -> Option<usize> {
        let size = usize::try_from(bytes.checked_ilog2()?).ok()?;
        Some(size.min(SIZES - 1))
    }

    /// The smallest duration, in nanoseconds, that falls into a bucket.
    pub fn lower_bound(bucket: usize) -> u64 {
        let Some(index) = bucket.min(BUCKETS - 1).checked_sub(1) else { return 0 };
        let (exponent, step) = (index >> SUB_BITS, (index & ((1 << SUB_BITS) - 1)) as u64);
        ((1 << SUB_BITS) + step) << (exponent as u32 + FIRST_EXPONENT - SUB_BITS)
    }

    /// Counts one operation.
    pub fn add(&mut self, duration: u64, bytes: u64, failed: bool) {
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
        self.bytes = self.bytes.saturating_add(bytes);
        self.errors += u64::from(failed);
        if let Some(bucket) = self.buckets.get_mut(Self::bucket_of(duration)) {
            *bucket += 1;
        }
        if let Some(size) = Self::size_of(bytes).and_then(|size| self.sizes.get_mut(size)) {
            *size += 1;
        }
    }

    /// Adds another histogram's operations. Counts saturate: a damaged recording may claim any.
    pub fn merge(&mut self, other: &Self) {
        let add = |count: &mut u64, more: u64| *count = count.saturating_add(more);
        add(&mut self.count, other.count);
        add(&mut self.sum, other.sum);
        add(&mut self.bytes, other.bytes);
        add(&mut self.errors, other.errors);
        self.buckets.iter_mut().zip(other.buckets).for_each(|(bucket, more)| add(bucket, more));
        self.sizes.iter_mut().zip(other.sizes).for_each(|(size, more)| add(size, more));
    }

    /// The operations that were added since `earlier`, an older copy of this histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut delta = Self {
            count: self.count.saturating_sub(earlier.count),
            sum: self.sum.saturating_sub(earlier.sum),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            errors: self.errors.saturating_sub(earlier.errors),
            buckets: self.buckets,
            sizes: self.sizes,
        };
        let buckets = delta.buckets.iter_mut().zip(earlier.buckets);
        buckets.for_each(|(bucket, earlier)| *bucket = bucket.saturating_sub(earlier));
        let sizes = delta.sizes.iter_mut().zip(earlier.sizes);
        sizes.for_each(|(size, earlier)| *size = size.saturating_sub(earlier));
        delta
    }

    /// The duration, in nanoseconds, below which `share` (0 to 1) of the operations lie; `None` without operations.
    ///
    /// The result lies in the bucket of the true value, and between the shortest and the longest operation. Its error
    /// is less than a quarter of the true value, or less than 1 024 ns below 1 024 ns. In the first and the last bucket
    /// in use, the sum of all durations bounds it. Within these bounds it is interpolated.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        self.quantile_knowing(share, None)
    }

    /// Like [`Histogram::quantile`], where exact durations of some operations are known: `known` are the shortest and
    /// the longest of these.
    pub fn quantile_knowing(&self, share: f64, known: Option<(u64, u64)>) -> Option<u64> {
        let is_used = |count: &u64| *count > 0;
        let (first, last) = (self.buckets.iter().position(is_used)?, self.buckets.iter().rposition(is_used)?);
        self.quantile_within(share, |index, count| {
            let mean = self.mean_in(index, count);
            let known_here = |duration: u64| (Self::bucket_of(duration) == index).then_some(duration as f64);
            // The shortest operation is in the first bucket, and is at most that bucket's mean.
            let low = if index > first {
                Self::lower_bound(index) as f64
            } else {
                known.and_then(|(shortest, _)| known_here(shortest)).unwrap_or(mean.1)
            };
            let high = if index < last {
                Self::upper_bound(index)
            } else {
                known.and_then(|(_, longest)| known_here(longest)).unwrap_or(mean.0)
            };
            (low, high)
        })
    }

    /// Like [`Histogram::quantile`], but interpolated between the bucket's bounds only. The result changes evenly as
    /// operations move from one bucket to the next, which suits comparisons of two histograms. It may lie outside the
    /// range from the shortest to the longest operation.
    pub fn even_quantile(&self, share: f64) -> Option<u64> {
        self.quantile_within(share, |index, _| (Self::lower_bound(index) as f64, Self::lower_bound(index + 1) as f64))
    }

    /// `bounds` takes a bucket and its number of operations, and returns the range over which these are assumed to be
    /// spread evenly.
    fn quantile_within(&self, share: f64, bounds: impl Fn(usize, u64) -> (f64, f64)) -> Option<u64> {
        let wanted = wanted(&self.buckets, share);
        let mut seen = 0_u64;
        for (index, count) in self.buckets.iter().enumerate() {
            if seen.saturating_add(*count) >= wanted {
                let (low, high) = bounds(index, *count);
                let within = (wanted - seen) as f64 / *count as f64;
                return Some((low + (high - low).max(0.0) * within) as u64);
            }
            seen = seen.saturating_add(*count);
        }
        None
    }

    /// The range, nanoseconds, in which the mean of a bucket's `count` operations must lie, given the sum of all
    /// durations.
    fn mean_in(&self, bucket: usize, count: u64) -> (f64, f64) {
        let others = || self.buckets.iter().enumerate().filter(|(other, count)| *other != bucket && **count > 0);
        let least: f64 = others().map(|(other, count)| Self::lower_bound(other) as f64 * *count as f64).sum();
        let most: f64 = others().map(|(other, count)| Self::upper_bound(other) * *count as f64).sum();
        let (low, high) = (Self::lower_bound(bucket) as f64, Self::upper_bound(bucket));
        let mean = |of_others: f64| ((self.sum as f64 - of_others) / count as f64).clamp(low, high);
        (mean(most), mean(least))
    }

    /// The exclusive upper bound of a bucket, nanoseconds; infinity for the last bucket.
    fn upper_bound(bucket: usize) -> f64 {
        if bucket + 1 < BUCKETS { Self::lower_bound(bucket + 1) as f64 } else { f64::INFINITY }
    }
}

/// Index and count of each element that is not zero.
pub fn sparse(counts: &[u64]) -> Vec<(usize, u64)> {
    counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect()
}

/// The bucket in which the quantile `share` (0 to 1) of `counts` lies; `None` if all counts are 0.
pub fn quantile_index(counts: &[u64], share: f64) -> Option<usize> {
    let wanted = wanted(counts, share);
    let mut seen = 0_u64;
    counts.iter().position(|count| {
        seen = seen.saturating_add(*count);
        seen >= wanted
    })
}

/// How many of all counted operations are at or below the quantile `share` (0 to 1); at least 1.
fn wanted(counts: &[u64], share: f64) -> u64 {
    let total = counts.iter().copied().fold(0, u64::saturating_add);
    (share.clamp(0.0, 1.0) * total as f64).ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_of_any_size_overflow_nothing(count: u64, other: u64, share in 0.0..1.0) {
            let mut histogram = Histogram::default();
            histogram.buckets[3] = count;
            histogram.buckets[9] = u64::MAX;
            let mut more = histogram.clone();
            more.buckets[3] = other;
            histogram.merge(&more);
            prop_assert!(histogram.quantile(share).is_some());
            prop_assert!(quantile_index(&histogram.buckets, share).is_some());
        }

        #[test]
        fn a_duration_lies_within_the_bounds_of_its_bucket(duration: u64) {
            let bucket = Histogram::bucket_of(duration);
            prop_assert!(Histogram::lower_bound(bucket) <= duration);
            prop_assert!(bucket == BUCKETS - 1 || duration < Histogram::lower_bound(bucket + 1));
        }

        #[test]
        fn a_quantile_is_within_a_quarter_of_the_truth(mut durations in prop::collection::vec(2_000_u64..1_000_000_000, 1..200)) {
            let mut histogram = Histogram::default();
            durations.iter().for_each(|duration| histogram.add(*duration, 0, false));
            durations.sort_unstable();
            let truth = durations[(durations.len() - 1) / 2] as f64;
            let seen = histogram.quantile(0.5).unwrap() as f64;
            prop_assert!((seen / truth - 1.0).abs() <= 0.26, "{} for {}", seen, truth);
        }

        #[test]
        fn a_quantile_lies_between_the_shortest_and_the_longest_in_the_bucket_of_the_truth(
            mut durations in prop::collection::vec(1_u64..1_000_000_000_000, 1..60),
            close_by in prop::collection::vec(40_200_000_u64..40_800_000, 0..60),
            share in 0.0_f64..=1.0,
            known: bool,
        ) {
            durations.extend(close_by);
            let mut histogram = Histogram::default();
            durations.iter().for_each(|duration| histogram.add(*duration, 0, false));
            durations.sort_unstable();
            let (shortest, longest) = (durations[0], durations[durations.len() - 1]);
            let seen = histogram.quantile_knowing(share, known.then_some((shortest, longest))).unwrap();
            prop_assert!((shortest..=longest).contains(&seen), "{} of {:?}", seen, durations);
            let truth = durations[((share * durations.len() as f64).ceil() as usize).clamp(1, durations.len()) - 1];
            let (low, high) = (Histogram::lower_bound(Histogram::bucket_of(truth)), Histogram::upper_bound(Histogram::bucket_of(truth)));
            prop_assert!(low <= seen && seen as f64 <= high, "{} for {}", seen, truth);
        }
    }

    /// They fell into the bucket from 33.6 to 41.9 ms, whose middle is 37.7 ms.
    #[test]
    fn operations_of_40_ms_have_no_median_of_38() {
        let mut histogram = Histogram::default();
        (0..=60).for_each(|step| histogram.add(40_200_000 + step * 10_000, 0, false));
        assert_eq!(histogram.quantile(0.5), Some(40_500_000));
        assert_eq!(histogram.quantile_knowing(1.0, Some((40_200_000, 40_800_000))), Some(40_800_000));
    }

    #[test]
    fn the_first_and_last_buckets_are_where_the_documentation_says() {
        assert_eq!(Histogram::bucket_of(1_023), 0);
        assert_eq!(Histogram::bucket_of(1_024), 1);
        assert_eq!(Histogram::lower_bound(BUCKETS - 1), 1 << 38);
        assert_eq!(Histogram::bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn a_size_is_that_of_the_power_of_two_below() {
        assert_eq!(
            [0, 1, 2, 4095, 4096, u64::MAX].map(Histogram::size_of),
            [None, Some(0), Some(1), Some(11), Some(12), Some(31)]
        );
        let mut histogram = Histogram::default();
        [0, 4096, 4097, 1 << 40].iter().for_each(|bytes| histogram.add(1, *bytes, false));
        assert_eq!((histogram.sizes[12], histogram.sizes[31], histogram.sizes.iter().sum::<u64>()), (2, 1, 3));
        assert_eq!(quantile_index(&histogram.sizes, 0.5), Some(12));
        assert_eq!(quantile_index(&[0; SIZES], 0.5), None);
    }
}
