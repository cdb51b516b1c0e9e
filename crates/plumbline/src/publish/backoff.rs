//! The pauses between retries, which double.

use std::time::{Duration, Instant};

/// The first pause after a failure, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// The longest pause that a server may request; a longer request is cut to this.
const LONGEST_ASKED_FOR: Duration = Duration::from_secs(300);

/// The pauses between retries.
#[derive(Debug, Default)]
pub struct Backoff {
    /// After a failure: the time of the next retry, and the current length of the pause, which doubles each time.
    wait: Option<(Instant, Duration)>,
}

impl Backoff {
    /// The time of the next retry; `None` if the last request succeeded.
    pub fn until(&self) -> Option<Instant> {
        self.wait.map(|(until, _)| until)
    }

    /// Whether the next retry is still in the future.
    pub fn is_waiting(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    /// Notes a failure; `asked` is the pause that the server requested. Returns whether this is the first failure since
    /// the last success.
    pub fn failed(&mut self, asked: Option<Duration>) -> bool {
        let [shortest, longest] = PAUSES;
        let pause = self.wait.map_or(shortest, |(_, pause)| (pause * 2).min(longest));
        let wait = asked.map_or(pause, |asked| asked.clamp(shortest, LONGEST_ASKED_FOR));
        self.wait.replace((Instant::now() + wait, pause)).is_none()
    }

    /// Notes a success. Returns whether the request before it had failed.
    pub fn worked(&mut self) -> bool {
        self.wait.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_again_after_a_success() {
        let mut backoff = Backoff::default();
        let mut pause = |asked| {
            let first = backoff.failed(asked);
            (first, (backoff.until().unwrap() - Instant::now()).as_secs_f64().round() as u64)
        };
        assert_eq!([pause(None), pause(None), pause(None)], [(true, 1), (false, 2), (false, 4)]);
        assert_eq!(pause(Some(Duration::from_secs(30))), (false, 30), "as the server asked");
        assert_eq!(pause(Some(Duration::from_secs(3000))), (false, 300));
        assert_eq!([pause(None), pause(None)], [(false, 32), (false, 60)]);
        assert!(backoff.is_waiting() && backoff.worked() && !backoff.is_waiting() && !backoff.worked());
        assert!(backoff.failed(None));
    }
}
