//! The current contents of the control file: how long each operation waits, and the error that it returns.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::errno::Errno;

/// The control file's format, for `--help`.
pub const HELP: &str = "\
The control file holds words, each OPERATION=MILLISECONDS, OPERATION=ERRNO or OPERATION=MILLISECONDS:ERRNO, as in
`write=300 read=50:EIO`. OPERATION is lookup, getattr, setattr, create, open, read, write, flush (a close), fsync,
readdir, unlink, mkdir, rmdir, rename, or all for those not named. It may change at any time: an operation that waits
already ends as soon as it has waited as long as the file says then. A file beside it whose name is longer by `.asked`, if it is there when
slowfs starts, gets a line with the name of each operation.";

/// The operation names that the control file may contain, and `all`.
const OPERATIONS: [&str; 15] = [
    "all", "lookup", "getattr", "setattr", "create", "open", "read", "write", "flush", "fsync", "readdir", "unlink",
    "mkdir", "rmdir", "rename",
];

/// How often a waiting operation checks whether the control file has changed.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long an operation waits, and the error that it returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fault {
    delay: Duration,
    error: Option<Errno>,
}

impl FromStr for Fault {
    type Err = String;

    /// Parses `300`, `EIO` or `300:EIO`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (delay, error) = match text.split_once(':') {
            Some((delay, error)) => (Some(delay), Some(error)),
            None if text.starts_with('E') => (None, Some(text)),
            None => (Some(text), None),
        };
        let delay = match delay {
            Some(delay) => delay.parse().map_err(|_| format!("{delay:?} is no number of milliseconds"))?,
            None => 0,
        };
        let error = error.map(|name| errno(name).ok_or_else(|| format!("{name:?} is no errno"))).transpose()?;
        Ok(Self { delay: Duration::from_millis(delay), error })
    }
}

fn errno(name: &str) -> Option<Errno> {
    (1..=133).map(Errno::from_raw).find(|errno| format!("{errno:?}") == name)
}

type Faults = BTreeMap<String, Fault>;

fn parse(text: &str) -> Result<Faults, String> {
    text.split_whitespace()
        .map(|word| {
            let (operation, fault) = word.split_once('=').ok_or_else(|| format!("{word:?} is not OPERATION=..."))?;
            if !OPERATIONS.contains(&operation) {
                return Err(format!("{operation:?} is no operation; those are {}", OPERATIONS.join(" ")));
            }
            Ok((operation.to_owned(), fault.parse()?))
        })
        .collect()
}

/// The control file, and its contents when it was last read.
pub struct ControlFile {
    path: PathBuf,
    /// The file in which the requested operations are recorded.
    asked: Option<fs::File>,
    last: Mutex<(String, Faults)>,
}

impl ControlFile {
    /// The control file at `path`, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        let mut beside = path.clone().into_os_string();
        beside.push(".asked");
        let asked = fs::OpenOptions::new().append(true).open(beside).ok();
        Self { path, asked, last: Mutex::default() }
    }

    /// Waits as long as the control file says for `operation`.
    ///
    /// # Errors
    ///
    /// The error that the control file says for `operation`.
    pub fn wait(&self, operation: &str) -> Result<(), Errno> {
        // One write for each line, so that the lines of several threads do not mix.
        if let Some(Err(error)) =
            self.asked.as_ref().map(|mut asked| asked.write_all(format!("{operation}\n").as_bytes()))
        {
            eprintln!("slowfs: {operation} is not taken down: {error}");
        }
        let start = Instant::now();
        loop {
            let fault = self.fault(operation);
            let left = fault.delay.saturating_sub(start.elapsed());
            if left.is_zero() {
                return fault.error.map_or(Ok(()), Err);
            }
            sleep(left.min(LOOK_AGAIN));
        }
    }

    fn fault(&self, operation: &str) -> Fault {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => format!("unreadable: {error}"),
            Ok(text) => text,
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != text {
            match parse(&text) {
                Ok(faults) => last.1 = faults,
                Err(error) => eprintln!("slowfs: {}: {error}; going on as before", self.path.display()),
            }
            last.0 = text;
        }
        last.1.get(operation).or_else(|| last.1.get("all")).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(delay_ms: u64, error: Option<Errno>) -> Fault {
        Fault { delay: Duration::from_millis(delay_ms), error }
    }

    #[test]
    fn a_delay_an_error_or_both_can_be_given() {
        assert_eq!("300".parse(), Ok(fault(300, None)));
        assert_eq!("EIO".parse(), Ok(fault(0, Some(Errno::EIO))));
        assert_eq!("50:ENOSPC".parse(), Ok(fault(50, Some(Errno::ENOSPC))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("write", "write"),
            ("wriet=3", "wriet"),
            ("write=-3", "-3"),
            ("write=EWHAT", "EWHAT"),
            ("read=5:", "\"\""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn a_named_operation_goes_before_all_and_a_mistake_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let control = ControlFile::new(path.clone());
        assert_eq!(control.fault("write"), Fault::default());
        fs::write(&path, "all=5 write=0:EIO\n").unwrap();
        assert_eq!(control.fault("write"), fault(0, Some(Errno::EIO)));
        assert_eq!(control.fault("read"), fault(5, None));
        fs::write(&path, "write=lots").unwrap();
        assert_eq!(control.fault("read"), fault(5, None));
        fs::remove_file(&path).unwrap();
        assert_eq!(control.fault("read"), Fault::default());
    }
}
