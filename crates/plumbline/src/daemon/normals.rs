//! What is normal here outlives the daemon: read at its start, written now and then and at its end.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use diagnose::long_term::LongTerm;

use super::Daemon;
use crate::{config::Config, detection::kept};

/// How often it is written.
pub const EVERY: Duration = Duration::from_secs(600);

/// What an earlier daemon learned. What cannot be read is no reason not to watch.
pub fn load(config: &Config) -> LongTerm {
    kept::load(&path(config)).unwrap_or_else(|error| {
        tracing::warn!("what is normal is learned anew: {error:#}");
        LongTerm::default()
    })
}

fn path(config: &Config) -> PathBuf {
    config.output_dir.join(kept::FILE)
}

impl Daemon {
    /// Writes what was learned, if anything was. It is small, and nobody waits until it is on disk.
    pub(super) fn keep_normals(&mut self) {
        self.kept = Instant::now();
        let long_term = self.detection.long_term();
        if long_term.places().is_empty() {
            return;
        }
        let path = path(&self.setup.config);
        if let Err(error) = kept::save(&path, long_term) {
            tracing::warn!(
                "what is normal here is not known after a restart: cannot write {}: {error}",
                path.display()
            );
        }
    }
}
