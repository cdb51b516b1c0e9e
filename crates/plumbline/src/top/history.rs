//! The figures of the last looks, and their drawing in one line of text.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::Hash,
};

/// The most looks that are remembered: ten minutes at the default interval.
pub const LOOKS: usize = 300;
/// The most series that are remembered: as many as the page of metrics can have.
const MOST_SERIES: usize = 8192;

/// By key, the figure of each look, the newest last; `None`: nothing was measured at that look.
#[derive(Debug)]
pub struct FigureHistory<K>(BTreeMap<K, VecDeque<Option<u64>>>);

impl<K> Default for FigureHistory<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Hash + Clone> FigureHistory<K> {
    /// Adds the figures of one look. A series without any figure in the remembered looks is dropped.
    pub fn add(&mut self, now: impl IntoIterator<Item = (K, Option<u64>)>) {
        let mut now: BTreeMap<K, Option<u64>> = now.into_iter().collect();
        for (key, series) in &mut self.0 {
            series.push_back(now.remove(key).flatten());
            if series.len() > LOOKS {
                series.pop_front();
            }
        }
        self.0.retain(|_, series| series.iter().any(Option::is_some));
        let room = MOST_SERIES.saturating_sub(self.0.len());
        let new = now.into_iter().filter(|(_, figure)| figure.is_some()).take(room);
        self.0.extend(new.map(|(key, figure)| (key, VecDeque::from([figure]))));
    }

    /// Every key that has had a figure.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// The last `looks` figures of a key, the newest last.
    pub fn last(&self, key: &K, looks: usize) -> Vec<Option<u64>> {
        let series = self.0.get(key).map(|series| series.iter().copied().skip(series.len().saturating_sub(looks)));
        series.map(Iterator::collect).unwrap_or_default()
    }
}

/// One character for each figure, relative to the greatest figure; a space if nothing was measured.
pub fn sparkline(figures: &[Option<u64>]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = figures.iter().flatten().copied().max().unwrap_or(0).max(1);
    let bar = |figure: u64| {
        let eighth = (figure as f64 / most as f64 * BARS.len() as f64).ceil() as usize;
        BARS.get(eighth.saturating_sub(1)).copied().unwrap_or('█')
    };
    figures.iter().map(|figure| figure.map_or(' ', bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_high_as_its_figures_are_large() {
        assert_eq!(sparkline(&[Some(0), Some(1), None, Some(4), Some(8)]), "▁▁ ▄█");
        assert_eq!(sparkline(&[Some(0), Some(0)]), "▁▁");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[Some(u64::MAX), Some(1)]), "█▁");
    }

    #[test]
    fn so_many_looks_are_remembered_and_what_is_gone_is_forgotten() {
        let mut history = FigureHistory::default();
        history.add([("gone", Some(7)), ("stays", Some(1)), ("never", None)]);
        (0..LOOKS as u64).for_each(|look| history.add([("stays", Some(look))]));
        assert_eq!(history.keys().collect::<Vec<_>>(), [&"stays"]);
        assert_eq!(history.last(&"stays", 2), [Some(LOOKS as u64 - 2), Some(LOOKS as u64 - 1)]);
        assert_eq!(history.last(&"stays", 10_000).len(), LOOKS);
    }
}
