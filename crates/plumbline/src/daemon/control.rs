//! The control socket, by which `plumbline snapshot` reaches the daemon. A request is one line, and so is its answer.

use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

/// Name of the socket in the runtime directory.
const SOCKET: &str = "control";
/// The most requests that are read at one wake-up.
const MAX_AT_ONCE: usize = 8;
/// How long a peer may take to send its request: the daemon's thread waits for it.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(200);

/// The longest time that a snapshot may cover.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// A client's request for a snapshot.
pub struct SnapshotRequest {
    /// The client's connection, for the answer.
    pub stream: UnixStream,
    /// The time from now on that the snapshot covers; `None`: a snapshot of now.
    pub span: Option<Duration>,
}

/// The daemon's end of the socket.
pub struct ControlSocket {
    listener: UnixListener,
}

impl ControlSocket {
    /// Listens in the runtime directory, for root only. The caller holds the lock, so an old socket there belongs to a
    /// daemon that has ended, and is replaced.
    ///
    /// # Errors
    ///
    /// When the socket cannot be made.
    pub fn listen(runtime: &Path) -> Result<Self> {
        let path = runtime.join(SOCKET);
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen at {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener })
    }

    /// The listening socket, to wait for.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// The peers that request a snapshot, at most [`MAX_AT_ONCE`]; further ones are read at the next wake-up.
    pub fn snapshot_requests(&self) -> Vec<SnapshotRequest> {
        let mut wanted = Vec::new();
        for _ in 0..MAX_AT_ONCE {
            let Ok((mut stream, _)) = self.listener.accept() else { break };
            match read_request(&mut stream).as_deref().map(snapshot_of) {
                Ok(Some(span)) => wanted.push(SnapshotRequest { stream, span }),
                Ok(None) => answer(stream, "error unknown request"),
                Err(_) => {}
            }
        }
        wanted
    }
}

/// Parses `snapshot` or `snapshot SECONDS`. Returns the time that the snapshot covers, if any; `None` if the request is neither.
fn snapshot_of(request: &str) -> Option<Option<Duration>> {
    let seconds = request.strip_prefix("snapshot")?;
    if seconds.is_empty() {
        return Some(None);
    }
    let span = Duration::try_from_secs_f64(seconds.strip_prefix(' ')?.parse().ok()?).ok()?;
    (span <= LONGEST).then_some(Some(span))
}

fn read_request(stream: &mut UnixStream) -> Result<String> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(64)).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Answers with one line and closes the connection. A peer that has gone is no error.
pub fn answer(mut stream: UnixStream, line: &str) {
    let _ = writeln!(stream, "{line}");
}

/// Requests a snapshot from the running daemon and waits for the bundle: for `timeout`, plus the time that the snapshot covers. Calls `waits`
/// with the time that has passed, once a second. Returns the bundle's path.
///
/// # Errors
///
/// When no daemon is running, or the bundle was lost; the message says why.
pub fn request_snapshot(
    runtime: &Path,
    span: Option<Duration>,
    timeout: Duration,
    waits: impl FnMut(Duration),
) -> Result<String> {
    let path = runtime.join(SOCKET);
    let stream = UnixStream::connect(&path).map_err(|error| {
        let what = match error.kind() {
            ErrorKind::PermissionDenied => "not permitted to ask the daemon at {}; run as root",
            _ => "no daemon answers at {}; start one with `plumbline run`, or `systemctl start plumbline`",
        };
        anyhow::Error::from(error).context(what.replace("{}", &path.display().to_string()))
    })?;
    ask(stream, span, timeout, waits)
}

fn ask(
    mut stream: UnixStream,
    span: Option<Duration>,
    timeout: Duration,
    mut waits: impl FnMut(Duration),
) -> Result<String> {
    let request = span.map_or("snapshot".to_owned(), |span| format!("snapshot {}", span.as_secs_f64()));
    let began = Instant::now();
    let limit = timeout + span.unwrap_or_default();
    let mut line = String::new();
    let answered = writeln!(stream, "{request}").and_then(|()| {
        while !is_readable(&stream, Duration::from_secs(1).min(limit))? {
            if began.elapsed() >= limit {
                return Err(ErrorKind::WouldBlock.into());
            }
            waits(began.elapsed());
        }
        BufReader::new(stream).read_line(&mut line)
    });
    match answered {
        Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("the daemon did not answer in time"),
        // The daemon ended between two calls; the error depends on which call failed.
        Err(error) => bail!("the daemon went away: {error}"),
        Ok(_) => {}
    }
    match line.trim().split_once(' ') {
        Some(("bundle", path)) => Ok(path.to_owned()),
        Some(("error", message)) => bail!("{message}"),
        _ => bail!("the daemon went away"),
    }
}

/// Waits until the stream can be read or the other end is closed. Returns false if that takes longer than `limit`.
fn is_readable(stream: &UnixStream, limit: Duration) -> io::Result<bool> {
    let mut wanted = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    match poll(&mut wanted, PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_asked_for_of_now_or_of_some_seconds() {
        assert_eq!(snapshot_of("snapshot"), Some(None));
        assert_eq!(snapshot_of("snapshot 1.5"), Some(Some(Duration::from_millis(1500))));
        for wrong in
            ["", "snap", "snapshot ", "snapshot x", "snapshot -1", "snapshot 3601", "snapshot1", "snapshot inf"]
        {
            assert_eq!(snapshot_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_daemon_that_goes_before_it_is_asked_is_an_error_and_no_broken_pipe() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let error = ask(ours, None, REQUEST_TIMEOUT, |_| ()).unwrap_err();
        assert!(error.to_string().starts_with("the daemon went away"), "{error:#}");
        assert!(error.chain().all(|cause| !cause.is::<std::io::Error>()), "{error:?}");
    }
}
