//! Reconnects after a daemon went away: requests wait for a while until there is a daemon again.

use std::{
    env,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cephfs_proxy::wire::Errno;

use crate::{
    fork,
    link::{CallError, DaemonLink},
};

/// How long requests wait for a daemon, unless this environment variable has another number of seconds.
const WAIT: Duration = Duration::from_secs(30);
const WAIT_VARIABLE: &str = "LIBCEPHFSD_WAIT";
/// The pause between attempts: doubled each time, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// After waiting without success, requests fail at once for this long, until one of them tries again.
const RESPITE: Duration = Duration::from_secs(1);
/// How many daemons may go away during one request. After that, the request itself may be what makes them fail.
const MOST_DAEMONS: u32 = 8;

/// The state while there is no connection to a place.
pub struct Outage {
    since: Instant,
    /// When and why an attempt last failed for good.
    refused: Option<(Instant, Errno)>,
}

fn reconnect_limit() -> Duration {
    let asked = env::var(WAIT_VARIABLE).ok().and_then(|text| text.parse().ok());
    asked.map_or(WAIT, Duration::from_secs)
}

/// Whether an error may be temporary: no daemon listens yet, or the daemon has no room for this client.
fn passes(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT
            | Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::PIPE
            | Errno::AGAIN
            | Errno::INTR
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::USERS
    )
}

/// The connection to a place. Connects if there is none, and waits for a daemon.
pub fn link(place: u64) -> Result<Arc<DaemonLink>, Errno> {
    let (reconnect_limit, mut pause) = (reconnect_limit(), FIRST_PAUSE);
    loop {
        let (since, had_daemon) = {
            let mut tables = fork::tables();
            if let Some(link) = tables.live_link(place) {
                return Ok(link);
            }
            let had_daemon = tables.links > 0;
            let outage = tables.outages.entry(place).or_insert_with(|| Outage { since: Instant::now(), refused: None });
            match outage.refused {
                Some((when, error)) if when.elapsed() < RESPITE => return Err(error),
                _ => (outage.since, had_daemon),
            }
        };
        let left = reconnect_limit.saturating_sub(since.elapsed());
        match DaemonLink::connect(place, left) {
            Ok(link) => return Ok(fork::tables().take_link(link)),
            // If this process never had a connection and there is no socket, waiting hardly helps.
            Err(error) if !had_daemon && error == Errno::NOENT => return Err(error),
            Err(error) if left.is_zero() || !passes(error) => {
                if let Some(outage) = fork::tables().outages.get_mut(&place) {
                    outage.refused = Some((Instant::now(), error));
                }
                return Err(error);
            }
            Err(_) => thread::sleep(pause.min(left)),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The connection to a place, for callers that had one: a temporary error becomes EIO. Other errors, such as a wrong protocol version, are returned
/// as they are.
pub fn link_again(place: u64) -> Result<Arc<DaemonLink>, Errno> {
    link(place).map_err(|error| if passes(error) { Errno::IO } else { error })
}

/// Runs `body`, and repeats it if the daemon went away and repeating does no harm.
pub fn again<T>(mut body: impl FnMut() -> Result<T, CallError>) -> Result<T, Errno> {
    let mut pause = Duration::ZERO;
    for _ in 0..MOST_DAEMONS {
        match body() {
            Ok(result) => return Ok(result),
            Err(CallError::NotStarted) => {}
            Err(CallError::Unknown) => return Err(Errno::IO),
            Err(CallError::Errno(errno)) => return Err(errno),
        }
        thread::sleep(pause);
        pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
    Err(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_no_harm_is_asked_for_twice() {
        let mut results = vec![Ok(7), Err(CallError::NotStarted), Err(CallError::NotStarted)];
        assert_eq!(again(|| results.pop().unwrap()), Ok(7));
        for (once, told) in [(CallError::Unknown, Errno::IO), (Errno::STALE.into(), Errno::STALE)] {
            let mut results: Vec<Result<(), CallError>> = vec![Err(once)];
            assert_eq!(again(|| results.pop().unwrap()), Err(told));
        }
    }
}
