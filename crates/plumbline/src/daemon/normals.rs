//! The learned normals outlive the daemon: it reads them when it starts, and writes them at an interval and when it
//! stops.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use diagnose::long_term::LongTerm;

use super::Daemon;
use crate::{config::Config, detection::kept};

/// How often the normals are written.
pub const EVERY: Duration = Duration::from_secs(600);

/// The normals that an earlier daemon learned; empty if their file cannot be read, which is logged.
pub fn load(config: &Config) -> LongTerm {
    kept::load(&path(config)).unwrap_or_else(|error| {
        tracing::warn!("cannot read the learned normals, so learning starts again: {error:#}");
        LongTerm::default()
    })
}

fn path(config: &Config) -> PathBuf {
    config.output_dir.join(kept::FILE)
}

impl Daemon {
    /// Writes the normals if there are any. The file is small, so it is written on this thread, without fsync.
    pub(super) fn keep_normals(&mut self) {
        self.kept = Instant::now();
        let long_term = self.detection.long_term();
        if long_term.places().is_empty() {
            return;
        }
        let path = path(&self.setup.config);
        if let Err(error) = kept::save(&path, long_term) {
            tracing::warn!("the learned normals will be lost at a restart: cannot write {}: {error}", path.display());
        }
    }
}
