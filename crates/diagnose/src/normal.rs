//! The recent normal of a figure, learned from the figure's own past, and the detection of lasting departures from it.
//!
//! Windows with few operations are merged until they have enough operations for a *sample*. A sample out of the normal
//! is not learned at once. If more follow, it was the first of a lasting departure. If the next is normal again, it is
//! learned.

use std::collections::{BTreeMap, VecDeque};

use model::{Histogram, MountKey, Nanos, Operation};

use crate::{FinishedOperations, Window, rule::Pace};

/// How many windows are merged for one sample at most. A mount that needs more is quiet, and is not judged.
pub(crate) const POOLED: u64 = 10;
/// One in this many learned samples is ignored as an outlier, at least one, so that it does not hide later departures.
const OUTLIERS: usize = 40;
/// How many figures one rule follows at most. The one that was last seen longest ago is discarded, and learned anew.
const FOLLOWED: usize = 1024;

/// One figure of one operation on one mount.
pub(crate) type FigureKey = (Operation, MountKey, usize);

/// All figures that a rule follows; a sample is `N` numbers. Bounded by 1024 of them, each at most 1.2 KB and 4 bytes
/// for each number of its history.
pub(crate) struct LearnedFigures<const N: usize> {
    pace: Pace,
    series: BTreeMap<FigureKey, LearnedSeries<N>>,
    /// The number of windows so far.
    now: u64,
}

/// The operations of consecutive windows, merged.
pub(crate) struct MergedWindows {
    pub histogram: Histogram,
    pub from: Nanos,
    pub to: Nanos,
}

struct LearnedSeries<const N: usize> {
    /// Boxed, since most of it is zero and it comes and goes.
    pool: Option<Box<MergedWindows>>,
    /// The number of the window in which the pool began, and of the last one with operations.
    pooled_since: u64,
    seen: u64,
    learned: VecDeque<[f32; N]>,
    /// Consecutive samples out of the normal, and the start of the first.
    run: Vec<[f32; N]>,
    run_from: Nanos,
    departed: Option<Departed>,
}

#[derive(Default)]
struct Departed {
    /// Number of samples out of the normal.
    out: usize,
    /// Number of consecutive normal samples since the last of these.
    back: usize,
}

/// The learned samples of a figure.
pub(crate) struct LearnedNormal<'a, const N: usize>(&'a VecDeque<[f32; N]>);

impl<const N: usize> LearnedFigures<N> {
    pub fn new(pace: Pace) -> Self {
        Self { pace, series: BTreeMap::new(), now: 0 }
    }

    /// Counts a new window.
    pub fn next_window(&mut self) {
        self.now += 1;
    }

    /// Adds the operations that finished in a window. Returns all that were merged once there are `least` operations;
    /// else `None`.
    pub fn pool(
        &mut self,
        index: usize,
        finished: &FinishedOperations,
        window: &Window,
        least: u64,
    ) -> Option<MergedWindows> {
        let now = self.now;
        let series = self.series((finished.operation, finished.mount, index));
        series.seen = now;
        if now.saturating_sub(series.pooled_since) >= POOLED {
            series.pool = None;
        }
        let pool = series.pool.get_or_insert_with(|| {
            series.pooled_since = now;
            Box::new(MergedWindows { histogram: Histogram::default(), from: window.from, to: window.to })
        });
        pool.histogram.merge(&finished.histogram);
        pool.to = window.to;
        (pool.histogram.count >= least).then(|| series.pool.take().map(|stretch| *stretch))?
    }

    /// Takes a sample of a stretch that began at `from`. `is_out` returns whether the sample is out of the normal, or
    /// `None` if the sample is to be ignored. Its last argument tells whether the figure has departed, for hysteresis.
    ///
    /// Returns the start of a departure when it has lasted long enough. While it continues, returns the start of each
    /// further stretch out of the normal. Otherwise returns `None`.
    pub fn take(
        &mut self,
        key: FigureKey,
        from: Nanos,
        sample: [f32; N],
        is_out: impl Fn(&LearnedNormal<'_, N>, &[f32; N], bool) -> Option<bool>,
    ) -> Option<Nanos> {
        let pace = self.pace;
        self.series(key).take(pace, from, sample, is_out)
    }

    /// The learned samples of a figure; `None` if it is not followed.
    pub fn normal(&self, key: FigureKey) -> Option<LearnedNormal<'_, N>> {
        self.series.get(&key).map(|series| LearnedNormal(&series.learned))
    }

    fn series(&mut self, key: FigureKey) -> &mut LearnedSeries<N> {
        if self.series.len() >= FOLLOWED && !self.series.contains_key(&key) {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.seen).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.series.remove(&oldest));
        }
        self.series.entry(key).or_insert_with(LearnedSeries::new)
    }
}

impl<const N: usize> LearnedSeries<N> {
    fn new() -> Self {
        Self {
            pool: None,
            pooled_since: 0,
            seen: 0,
            learned: VecDeque::new(),
            run: Vec::new(),
            run_from: 0,
            departed: None,
        }
    }

    fn take(
        &mut self,
        pace: Pace,
        from: Nanos,
        sample: [f32; N],
        is_out: impl Fn(&LearnedNormal<'_, N>, &[f32; N], bool) -> Option<bool>,
    ) -> Option<Nanos> {
        if self.learned.len() < pace.warm_up {
            self.learn(sample, pace);
            return None;
        }
        let out = is_out(&LearnedNormal(&self.learned), &sample, self.departed.is_some())?;
        match (&mut self.departed, out) {
            (None, false) => {
                std::mem::take(&mut self.run).into_iter().for_each(|earlier| self.learn(earlier, pace));
                self.learn(sample, pace);
                None
            }
            (None, true) => {
                if self.run.is_empty() {
                    self.run_from = from;
                }
                self.run.push(sample);
                if self.run.len() < pace.sustained {
                    return None;
                }
                self.run.clear();
                self.departed = Some(Departed { out: pace.sustained, back: 0 });
                Some(self.run_from)
            }
            (Some(departed), true) => {
                *departed = Departed { out: departed.out + 1, back: 0 };
                // The departure is as long as the history: it is the normal from now on, and is learned.
                if departed.out >= pace.history {
                    self.departed = None;
                    self.learned.clear();
                    return None;
                }
                Some(from)
            }
            (Some(departed), false) => {
                departed.back += 1;
                if departed.back >= pace.sustained {
                    self.departed = None;
                }
                None
            }
        }
    }

    fn learn(&mut self, sample: [f32; N], pace: Pace) {
        if self.learned.len() >= pace.history {
            self.learned.pop_front();
        }
        self.learned.push_back(sample);
    }
}

impl<const N: usize> LearnedNormal<'_, N> {
    /// Every sample.
    pub fn samples(&self) -> impl Iterator<Item = &[f32; N]> {
        self.0.iter()
    }

    /// The upper median of the number with this index; 0 without samples.
    pub fn median(&self, index: usize) -> f32 {
        median(self.samples().filter_map(|sample| sample.get(index).copied()).collect())
    }
}

/// The upper median; 0 without values.
pub(crate) fn median(values: Vec<f32>) -> f32 {
    let middle = values.len() / 2;
    smallest(values, middle)
}

/// The highest value without outliers; 0 without values.
pub(crate) fn upper_end(values: Vec<f32>) -> f32 {
    -lower_end(values.into_iter().map(|value| -value).collect())
}

/// The lowest value without outliers; 0 without values.
pub(crate) fn lower_end(values: Vec<f32>) -> f32 {
    let outliers = (values.len() / OUTLIERS).max(1);
    smallest(values, outliers)
}

/// The value at index `rank` in ascending order, or the highest if there are fewer; 0 without values.
fn smallest(mut values: Vec<f32>, rank: usize) -> f32 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    *values.select_nth_unstable_by(rank.min(last), f32::total_cmp).1
}
