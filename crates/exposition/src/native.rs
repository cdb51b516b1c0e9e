//! Converts our histograms to exponential ones: Prometheus' native histograms, and OpenTelemetry's exponential histograms.
//!
//! Both have buckets whose bounds are powers of 2^(1/4) seconds (schema 2, scale 2). Our histograms have as many buckets in a power of two, but
//! their bounds are nanoseconds at equal distances: 1, 1.25, 1.5, 1.75. So the bounds differ. All operations of one of our buckets count in the
//! exponential bucket that contains the middle of our bucket. So no count ever decreases, as it would if the operations were divided between
//! buckets and rounded. A value read from the result is off by a factor of 1.33 at most (half of one of our buckets, and one exponential bucket).
//! The sum and the count are exact.

use std::sync::LazyLock;

use model::{BUCKETS, Histogram};

/// A histogram whose bucket bounds are powers of 2^(1/4) seconds.
pub struct Native {
    /// Operations that took less than [`Native::ZERO_THRESHOLD`].
    pub zero: u64,
    /// All operations.
    pub count: u64,
    /// The buckets that are not empty, in order, each with its index and the number of its operations. Bucket i ends at 2^(i/4) s.
    pub buckets: Vec<(i32, u64)>,
}

/// The index of the exponential bucket for each of our buckets. Our first bucket is the zero bucket, which has no index.
static INDEX: LazyLock<[i32; BUCKETS]> = LazyLock::new(|| {
    std::array::from_fn(|bucket| {
        let (low, high) = (Histogram::lower_bound(bucket) as f64, Histogram::lower_bound(bucket + 1) as f64);
        // The last bucket has no upper bound, so its operations count at its lower bound.
        let middle = (low.max(1.0) * high).sqrt() / 1e9;
        (middle.log2() * 4.0).ceil() as i32
    })
});

impl Native {
    /// The schema: a power of two contains 2^SCHEMA buckets.
    pub const SCHEMA: i32 = 2;
    /// Shorter durations, in nanoseconds, all count as zero. This is the bound of our first bucket.
    pub const ZERO_THRESHOLD: u64 = 1024;

    /// Converts one of our histograms.
    pub fn of(histogram: &Histogram) -> Self {
        let mut buckets: Vec<(i32, u64)> = Vec::new();
        let [zero, rest @ ..] = &histogram.buckets;
        for (index, count) in INDEX.iter().skip(1).zip(rest).filter(|(_, count)| **count > 0) {
            match buckets.last_mut().filter(|(last, _)| last == index) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((*index, *count)),
            }
        }
        Self { zero: *zero, count: histogram.buckets.iter().sum(), buckets }
    }

    /// Converts back to one of our histograms. Each bucket counts where its geometric middle lies. The sum, the bytes and the errors are not known.
    pub fn to_histogram(&self) -> Histogram {
        let mut histogram = Histogram { count: self.count, ..Histogram::default() };
        let middle = |index: &i32| ((f64::from(*index) - 0.5) / 4.0).exp2() * 1e9;
        let known = self.buckets.iter().map(|(index, count)| (Histogram::bucket_of(middle(index) as u64), *count));
        for (bucket, count) in known.chain([(0, self.zero)]) {
            if let Some(sum) = histogram.buckets.get_mut(bucket) {
                *sum = sum.saturating_add(count);
            }
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_counted_within_a_third_of_where_it_is() {
        for bucket in 1..BUCKETS - 1 {
            let [low, high] = [bucket, bucket + 1].map(|bucket| Histogram::lower_bound(bucket) as f64 / 1e9);
            let [from, to] = [INDEX[bucket] - 1, INDEX[bucket]].map(|index| 2_f64.powf(f64::from(index) / 4.0));
            assert!(high / from < 1.34 && to / low < 1.34, "{bucket}: {low}..{high} in {from}..{to}");
        }
    }

    #[test]
    fn buckets_are_in_order_and_none_meets_the_zero_bucket() {
        assert!(INDEX[1..].windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(2_f64.powf(f64::from(INDEX[1] - 1) / 4.0) >= Native::ZERO_THRESHOLD as f64 / 1e9);
        assert_eq!(INDEX[BUCKETS - 1], (((1_u64 << 38) as f64 / 1e9).log2() * 4.0).ceil() as i32);
    }

    #[test]
    fn nothing_is_lost_on_the_way() {
        let mut histogram = Histogram::default();
        (0..40).for_each(|exponent| (0..3).for_each(|_| histogram.add(1 << exponent, 0, false)));
        let native = Native::of(&histogram);
        assert_eq!(native.zero + native.buckets.iter().map(|(_, count)| count).sum::<u64>(), 120);
        assert_eq!((native.zero, native.count), (30, 120));
    }
}
