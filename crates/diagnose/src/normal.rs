//! The recent normal of one figure, learned from itself, and when a departure from it is believed.
//!
//! Windows with few operations say little, so they are put together until there are enough, which makes a *sample*. A
//! sample out of the normal is not learned until it is known what it is: the first of a lasting departure, or, if the next
//! is as ever again, a part of the normal.

use std::collections::{BTreeMap, VecDeque};

use model::{Histogram, MountKey, Nanos, Operation};

use crate::{Finished, Window, rule::Pace};

/// Windows that are put together for one sample at the most: what takes longer is a quiet mount, and not judged.
pub(crate) const POOLED: u64 = 10;
/// Of the samples learned, one in this many may lie beyond what is called normal: outliers do not hide what follows.
const OUTLIERS: usize = 40;
/// Figures followed at a time by one rule; the one not seen for longest makes room, and is learned anew.
const FOLLOWED: usize = 1024;

/// One figure of one operation on one mount.
pub(crate) type Key = (Operation, MountKey, usize);

/// All figures that a rule follows; a sample is `N` numbers. Bounded by 1024 of them, each at most 1.2 KB and 4 bytes
/// for each number of its history.
pub(crate) struct Figures<const N: usize> {
    pace: Pace,
    series: BTreeMap<Key, Series<N>>,
    /// Windows so far.
    now: u64,
}

/// What a stretch of windows with enough operations held.
pub(crate) struct Stretch {
    pub histogram: Histogram,
    pub from: Nanos,
    pub to: Nanos,
}

struct Series<const N: usize> {
    /// Boxed, since most of it is zero and it comes and goes.
    pool: Option<Box<Stretch>>,
    /// The window in which the pool began, and the last one in which there was anything.
    pooled_since: u64,
    seen: u64,
    learned: VecDeque<[f32; N]>,
    /// Samples out of the normal, one after the other, and when the first began.
    run: Vec<[f32; N]>,
    run_from: Nanos,
    departed: Option<Departed>,
}

#[derive(Default)]
struct Departed {
    /// Samples out of the normal.
    out: usize,
    /// Samples in a row that were not.
    back: usize,
}

/// What was learned.
pub(crate) struct Normal<'a, const N: usize>(&'a VecDeque<[f32; N]>);

impl<const N: usize> Figures<N> {
    pub fn new(pace: Pace) -> Self {
        Self { pace, series: BTreeMap::new(), now: 0 }
    }

    /// A window begins.
    pub fn next_window(&mut self) {
        self.now += 1;
    }

    /// Adds what finished; hands out what it makes with the windows before, once those are `least` operations.
    pub fn pool(&mut self, index: usize, finished: &Finished, window: &Window, least: u64) -> Option<Stretch> {
        let now = self.now;
        let series = self.series((finished.operation, finished.mount, index));
        series.seen = now;
        if now.saturating_sub(series.pooled_since) >= POOLED {
            series.pool = None;
        }
        let pool = series.pool.get_or_insert_with(|| {
            series.pooled_since = now;
            Box::new(Stretch { histogram: Histogram::default(), from: window.from, to: window.to })
        });
        pool.histogram.merge(&finished.histogram);
        pool.to = window.to;
        (pool.histogram.count >= least).then(|| series.pool.take().map(|stretch| *stretch))?
    }

    /// Takes a sample of a stretch that began at `from`. `is_out` says whether it lies out of the normal, or `None` if it says nothing and is to be forgotten; its last
    /// argument, whether that has been so for a while, so that it can ask for more before it is well again. Returns since
    /// when, if this is a departure that has lasted.
    pub fn take(
        &mut self,
        key: Key,
        from: Nanos,
        sample: [f32; N],
        is_out: impl Fn(&Normal<'_, N>, &[f32; N], bool) -> Option<bool>,
    ) -> Option<Nanos> {
        let pace = self.pace;
        self.series(key).take(pace, from, sample, is_out)
    }

    /// What was learned of a figure.
    pub fn normal(&self, key: Key) -> Option<Normal<'_, N>> {
        self.series.get(&key).map(|series| Normal(&series.learned))
    }

    fn series(&mut self, key: Key) -> &mut Series<N> {
        if self.series.len() >= FOLLOWED && !self.series.contains_key(&key) {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.seen).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.series.remove(&oldest));
        }
        self.series.entry(key).or_insert_with(Series::new)
    }
}

impl<const N: usize> Series<N> {
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
        is_out: impl Fn(&Normal<'_, N>, &[f32; N], bool) -> Option<bool>,
    ) -> Option<Nanos> {
        if self.learned.len() < pace.warm_up {
            self.learn(sample, pace);
            return None;
        }
        let out = is_out(&Normal(&self.learned), &sample, self.departed.is_some())?;
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
                // It has been so for as long as memory goes: that is the normal now, and is learned.
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

impl<const N: usize> Normal<'_, N> {
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

/// What all but a few outliers are at or below; 0 without values.
pub(crate) fn upper_end(values: Vec<f32>) -> f32 {
    -lower_end(values.into_iter().map(|value| -value).collect())
}

/// What all but a few outliers are at or above; 0 without values.
pub(crate) fn lower_end(values: Vec<f32>) -> f32 {
    let outliers = (values.len() / OUTLIERS).max(1);
    smallest(values, outliers)
}

/// The value that `rank` others are below, or the last; 0 without values.
fn smallest(mut values: Vec<f32>, rank: usize) -> f32 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    *values.select_nth_unstable_by(rank.min(last), f32::total_cmp).1
}
