//! The control socket, by which `plumbline snapshot` reaches the daemon. A request is one line, and so is its answer.

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
/// The most requests that are read at one wake-up.
const MAX_AT_ONCE: usize = 8;
/// How long a peer may take to send its request: the daemon's thread waits for it.
const PATIENCE: Duration = Duration::from_millis(200);

/// The daemon's end of the socket.
pub struct Control {
    listener: UnixListener,
}

impl Control {
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

/// Answers with one line and closes the connection. A peer that has gone is no error.
pub fn answer(mut stream: UnixStream, line: &str) {
    let _ = writeln!(stream, "{line}");
}

/// Requests a snapshot from the running daemon and waits for the bundle. Returns its path.
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
        // A read beyond the socket's time limit fails with EAGAIN.
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
