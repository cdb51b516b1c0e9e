//! The control socket: how `plumbline snapshot` reaches the daemon. One line in, one line out.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// Name of the socket in the runtime directory.
const SOCKET: &str = "control";
/// Requests that are read in one go.
const MAX_AT_ONCE: usize = 8;
/// A peer that does not talk within this time is no friend.
const PATIENCE: Duration = Duration::from_millis(200);

/// The daemon's end.
pub struct Control {
    listener: UnixListener,
}

impl Control {
    /// Listens in the runtime directory, for root only. The lock is held: an old socket there is nobody's.
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

    /// Those who ask for a snapshot now; the others that wait get their turn with the next wake-up.
    pub fn snapshot_requests(&self) -> Vec<UnixStream> {
        let mut wanted = Vec::new();
        for _ in 0..MAX_AT_ONCE {
            let Ok((mut stream, _)) = self.listener.accept() else { break };
            match read_request(&mut stream) {
                Ok(request) if request == "snapshot" => wanted.push(stream),
                Ok(_) => answer(stream, "error unknown request"),
                Err(_) => {}
            }
        }
        wanted
    }
}

fn read_request(stream: &mut UnixStream) -> Result<String> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(64)).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Answers and hangs up. A peer that has gone is no error.
pub fn answer(mut stream: UnixStream, line: &str) {
    let _ = writeln!(stream, "{line}");
}

/// The other end: asks the running daemon for a snapshot and waits for it. Returns the bundle's path.
///
/// # Errors
///
/// When no daemon is running, or the bundle was lost; the message says why.
pub fn request_snapshot(runtime: &Path, patience: Duration) -> Result<String> {
    let path = runtime.join(SOCKET);
    let stream = UnixStream::connect(&path).map_err(|error| {
        let what = match error.kind() {
            ErrorKind::PermissionDenied => "not permitted to ask the daemon at {}; run as root",
            _ => "no daemon answers at {}; start one with `plumbline run`, or `systemctl start plumbline`",
        };
        anyhow::Error::from(error).context(what.replace("{}", &path.display().to_string()))
    })?;
    ask(stream, patience)
}

fn ask(mut stream: UnixStream, patience: Duration) -> Result<String> {
    stream.set_read_timeout(Some(patience))?;
    let mut line = String::new();
    let answered = writeln!(stream, "snapshot").and_then(|()| BufReader::new(stream).read_line(&mut line));
    match answered {
        // EAGAIN is how a time limit on a socket ends.
        Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("the daemon did not answer in time"),
        // It went away between two of our calls: what that is called depends on which.
        Err(error) => bail!("the daemon went away: {error}"),
        Ok(_) => {}
    }
    match line.trim().split_once(' ') {
        Some(("bundle", path)) => Ok(path.to_owned()),
        Some(("error", message)) => bail!("{message}"),
        _ => bail!("the daemon went away"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_goes_before_it_is_asked_is_an_error_and_no_broken_pipe() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let error = ask(ours, PATIENCE).unwrap_err();
        assert!(error.to_string().starts_with("the daemon went away"), "{error:#}");
        assert!(error.chain().all(|cause| !cause.is::<std::io::Error>()), "{error:?}");
    }
}
