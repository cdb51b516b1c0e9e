//! Pages that were read from the kernel's trace ring, by CPU, in bounded memory. Reading removes them from the ring, but the next incident may need
//! the same pages.

use std::collections::VecDeque;

use super::super::CaptureSpan;

/// A page begins with the time of its first event (struct buffer_data_page of kernel/trace/ring_buffer.c).
const TIME_BYTES: usize = 8;

/// The pages of all CPUs.
pub struct Pages {
    page_bytes: usize,
    most: usize,
    held: usize,
    processors: Vec<VecDeque<Box<[u8]>>>,
}

/// The pages of each CPU for a file, oldest first.
pub type Chosen<'a> = Vec<Vec<&'a [u8]>>;

impl Pages {
    /// Keeps at most `bytes` of pages.
    pub fn new(processors: usize, page_bytes: usize, bytes: u64) -> Self {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX) / page_bytes.max(1);
        Self { page_bytes, most: most.max(1), held: 0, processors: vec![VecDeque::new(); processors] }
    }

    /// Adds a page. If there is no room, the oldest page of all CPUs is dropped.
    pub fn add(&mut self, processor: usize, page: &[u8]) {
        if self.held >= self.most {
            let first = |pages: &VecDeque<Box<[u8]>>| pages.front().map(|page| time_of(page));
            let oldest = self.processors.iter_mut().filter(|pages| !pages.is_empty()).min_by_key(|pages| first(pages));
            self.held -= usize::from(oldest.and_then(VecDeque::pop_front).is_some());
        }
        if let Some(pages) = self.processors.get_mut(processor) {
            pages.push_back(page.into());
            self.held += 1;
        }
    }

    /// The pages that overlap a span (of the ring's clock), and how many were left out: the oldest ones, if all together exceed `limit` bytes.
    pub fn of(&self, span: CaptureSpan, limit: u64) -> (Chosen<'_>, usize) {
        let mut chosen: Chosen<'_> = self.processors.iter().map(|pages| of_one(pages, span)).collect();
        let most = usize::try_from(limit).unwrap_or(usize::MAX) / self.page_bytes.max(1);
        let all: usize = chosen.iter().map(Vec::len).sum();
        let left_out = all.saturating_sub(most);
        for _ in 0..left_out {
            let first = |pages: &Vec<&[u8]>| pages.first().map(|page| time_of(page));
            if let Some(pages) = chosen.iter_mut().filter(|pages| !pages.is_empty()).min_by_key(|pages| first(pages)) {
                pages.remove(0);
            }
        }
        (chosen, left_out)
    }
}

/// The pages of one CPU. A page's time ends where that of the next page begins.
fn of_one(pages: &VecDeque<Box<[u8]>>, span: CaptureSpan) -> Vec<&[u8]> {
    let ends = pages.iter().skip(1).map(|next| time_of(next)).chain([u64::MAX]);
    let wanted = pages.iter().zip(ends).filter(|(page, end)| span.overlaps(time_of(page), *end));
    wanted.map(|(page, _)| &**page).collect()
}

fn time_of(page: &[u8]) -> u64 {
    page.get(..TIME_BYTES).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(at: u64) -> Vec<u8> {
        [&at.to_ne_bytes()[..], &[0; 24]].concat()
    }

    fn times(pages: &Pages, from: u64, to: u64, limit: u64) -> (Vec<Vec<u64>>, usize) {
        let (chosen, left_out) = pages.of(CaptureSpan { from, to }, limit);
        (chosen.iter().map(|pages| pages.iter().map(|page| time_of(page)).collect()).collect(), left_out)
    }

    #[test]
    fn a_span_has_the_pages_that_reach_into_it_and_the_oldest_go_first() {
        let mut pages = Pages::new(2, 32, 5 * 32);
        for (processor, at) in [(0, 10), (0, 20), (1, 15), (0, 30), (1, 40)] {
            pages.add(processor, &page(at));
        }
        assert_eq!(times(&pages, 0, 100, 1000), (vec![vec![10, 20, 30], vec![15, 40]], 0));
        assert_eq!(times(&pages, 25, 35, 1000), (vec![vec![20, 30], vec![15]], 0));
        assert_eq!(times(&pages, 0, 100, 3 * 32), (vec![vec![20, 30], vec![40]], 2));
        pages.add(1, &page(50));
        pages.add(1, &page(60));
        assert_eq!(times(&pages, 0, 100, 1000).0, [vec![20, 30], vec![40, 50, 60]]);
        assert_eq!(pages.held, 5);
    }
}
