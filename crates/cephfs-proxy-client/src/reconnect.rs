//! The daemon goes away and comes back: who asks for something meanwhile waits for a while, and then goes on.

use std::{
    env,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cephfs_proxy::wire::Errno;

use crate::{
    fork,
    link::{GONE, Link, UNKNOWN},
};

/// How long requests wait for a daemon, unless the environment says otherwise, in seconds.
const WAIT: Duration = Duration::from_secs(30);
const WAIT_VARIABLE: &str = "LIBCEPHFSD_WAIT";
/// Between attempts: so long at first, then twice as long each time, up to this.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// After it was in vain, requests fail at once for so long, before one tries again.
const RESPITE: Duration = Duration::from_secs(1);
/// So many daemons may go away below one request: then it may be the request that ends them.
const MOST_DAEMONS: u32 = 8;

/// While there is no daemon.
pub struct Outage {
    since: Instant,
    /// When it was last in vain, and why.
    refused: Option<(Instant, Errno)>,
}

fn patience() -> Duration {
    let asked = env::var(WAIT_VARIABLE).ok().and_then(|text| text.parse().ok());
    asked.map_or(WAIT, Duration::from_secs)
}

/// Whether it may be otherwise in a moment: nobody listens yet, or the daemon has no room for us.
fn passes(error: Errno) -> bool {
    matches!(
        error.0,
        libc::ENOENT
            | libc::ECONNREFUSED
            | libc::ECONNRESET
            | libc::EPIPE
            | libc::EAGAIN
            | libc::EINTR
            | libc::EMFILE
            | libc::ENFILE
            | libc::ENOMEM
            | libc::EUSERS
    )
}

/// The connection; made if there is none, which can take as long as a daemon is waited for.
pub fn link() -> Result<Arc<Link>, Errno> {
    let (patience, mut pause) = (patience(), FIRST_PAUSE);
    loop {
        let (since, met) = {
            let mut tables = fork::tables();
            if let Some(link) = tables.live_link() {
                return Ok(link);
            }
            let met = tables.links > 0;
            let outage = tables.outage.get_or_insert_with(|| Outage { since: Instant::now(), refused: None });
            match outage.refused {
                Some((when, error)) if when.elapsed() < RESPITE => return Err(error),
                _ => (outage.since, met),
            }
        };
        let left = patience.saturating_sub(since.elapsed());
        match Link::connect(left) {
            Ok(link) => return Ok(fork::tables().take_link(link)),
            // Where no daemon has ever been, there will hardly be one.
            Err(error) if !met && error.0 == libc::ENOENT => return Err(error),
            Err(error) if left.is_zero() || !passes(error) => {
                if let Some(outage) = &mut fork::tables().outage {
                    outage.refused = Some((Instant::now(), error));
                }
                return Err(error);
            }
            Err(_) => thread::sleep(pause.min(left)),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Likewise, for who has had one: that there is none is a failure of what is asked for. That it is of another version is not.
pub fn link_again() -> Result<Arc<Link>, Errno> {
    link().map_err(|error| if passes(error) { Errno(libc::EIO) } else { error })
}

/// Does something, and does it again if the daemon went away below it and that does no harm.
pub fn again<T>(mut body: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut pause = Duration::ZERO;
    for _ in 0..MOST_DAEMONS {
        match body() {
            Err(GONE) => {}
            Err(UNKNOWN) => return Err(Errno(libc::EIO)),
            result => return result,
        }
        thread::sleep(pause);
        pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
    Err(Errno(libc::EIO))
}
