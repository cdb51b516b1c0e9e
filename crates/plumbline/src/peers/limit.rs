//! Limits how often something may be done.

use std::{
    collections::VecDeque,
    net::IpAddr,
    time::{Duration, Instant},
};

/// The time over which uses are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// A limit of uses per minute for each address, and one for all addresses together. The latter also limits the memory.
pub struct RateLimit {
    each: usize,
    all: usize,
    /// The uses of the last minute, oldest first.
    taken: VecDeque<(Instant, IpAddr)>,
}

impl RateLimit {
    pub fn new(each: usize, all: usize) -> Self {
        Self { each, all, taken: VecDeque::new() }
    }

    /// Counts a use.
    ///
    /// # Errors
    ///
    /// If that would exceed a limit: the time until the next use is allowed.
    pub fn take(&mut self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let is_old = |(at, _): &(Instant, IpAddr)| now.saturating_duration_since(*at) >= WINDOW;
        while self.taken.front().is_some_and(is_old) {
            self.taken.pop_front();
        }
        let mine = || self.taken.iter().filter(|(_, of)| *of == from);
        let first = if mine().count() >= self.each {
            mine().next()
        } else if self.taken.len() >= self.all {
            self.taken.front()
        } else {
            self.taken.push_back((now, from));
            return Ok(());
        };
        Err(first.map_or(WINDOW, |(at, _)| (*at + WINDOW).saturating_duration_since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_too_often_hears_when_to_ask_again_and_keeps_nobody_else_from_asking() {
        let (one, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let (begin, mut limit) = (Instant::now(), RateLimit::new(2, 4));
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!((limit.take(one, at(0)), limit.take(one, at(10))), (Ok(()), Ok(())));
        assert_eq!(limit.take(one, at(20)), Err(Duration::from_secs(40)));
        assert_eq!((limit.take(other, at(20)), limit.take(other, at(20))), (Ok(()), Ok(())));
        assert_eq!(limit.take("10.0.0.3".parse().unwrap(), at(30)), Err(Duration::from_secs(30)), "all together");
        assert_eq!((limit.take(one, at(60)), limit.take(one, at(60))), (Ok(()), Err(Duration::from_secs(10))));
    }
}
