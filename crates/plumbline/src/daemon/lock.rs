//! A lock in the runtime directory ensures that one daemon runs on a host.

use std::{
    env, fs,
    io::{Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

/// The directory of the lock and the control socket: systemd's RUNTIME_DIRECTORY, else /run/plumbline.
pub fn runtime_dir() -> PathBuf {
    env::var_os("RUNTIME_DIRECTORY")
        .filter(|dir| !dir.is_empty())
        .map_or_else(|| "/run/plumbline".into(), PathBuf::from)
}

/// The bpffs directory in which maps are pinned. It has the runtime directory's name, so that two daemons with
/// different runtime directories (a demo beside the real one) do not share pins.
pub fn pin_dir(runtime: &Path) -> PathBuf {
    let name = runtime.file_name().map_or("plumbline".into(), |name| name.to_string_lossy());
    // bpffs refuses names with a dot.
    Path::new("/sys/fs/bpf").join(name.replace('.', "_"))
}

/// The output directory of the daemon that runs now; `None` if none does.
pub fn output_dir_of_running(runtime: &Path) -> Option<PathBuf> {
    let path = runtime.join(FILE);
    let file = fs::File::open(&path).ok()?;
    // A shared lock succeeds only if no daemon holds the exclusive one.
    let held = matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, nix::errno::Errno::EWOULDBLOCK)));
    let text = held.then(|| fs::read_to_string(&path).ok())??;
    text.lines().nth(1).map(PathBuf::from)
}

/// The lock file's name in the runtime directory. Its lines are the daemon's process id and its output directory.
const FILE: &str = "lock";

/// The lock, held while the daemon runs. The kernel releases it when the process ends, even if it is killed.
pub struct Lock {
    file: Flock<fs::File>,
}

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// When another daemon holds the lock (the message has its process id), or the file cannot be created.
    pub fn take(runtime: &Path, output_dir: &Path) -> Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(runtime)
            .with_context(|| format!("cannot create {}", runtime.display()))?;
        let path = runtime.join(FILE);
        let shown = || format!("cannot open {}", path.display());
        let file = fs::OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
            .open(&path)
            .with_context(shown)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => {
                let mut lock = Self { file };
                lock.rewrite(output_dir)?;
                Ok(lock)
            }
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                let holder = fs::read_to_string(&path).unwrap_or_default();
                bail!(
                    "another plumbline is running (process {}); stop it first, or ask it for a bundle with \
                     `plumbline snapshot`",
                    holder.lines().next().unwrap_or("unknown")
                )
            }
            Err((_, error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Writes this process's id and the output directory into the lock file.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn rewrite(&mut self, output_dir: &Path) -> Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        writeln!(self.file, "{}\n{}", std::process::id(), output_dir.display())?;
        Ok(())
    }
}
