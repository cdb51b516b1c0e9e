//! The daemon's flight recorder on disk, which keeps the last minutes.

use model::{Host, Nanos};

use super::Daemon;
use crate::{
    config::Config,
    recording::{RecordingHeader, RecordingWriter, Segments},
    source::{EventSource as _, KernelSource, Tap, this_host},
    view::clock::Clock,
};

/// The header of a recording; the recorder fills in the remaining fields.
pub fn recording_header(config: &Config, command: Vec<String>) -> RecordingHeader {
    let Host { name, kernel, plumbline, addresses } = this_host();
    let now: Nanos = super::nanos(probes::monotonic());
    RecordingHeader {
        plumbline,
        addresses,
        host: name,
        kernel,
        started: Clock::now().iso(now),
        command,
        interval_ms: config.watch_interval.as_secs_f64() * 1e3,
        probes: config.probes.iter().map(|probe| probe.name.to_owned()).collect(),
        ..RecordingHeader::default()
    }
}

impl Daemon {
    /// Starts the recorder again if the configuration enables it. An error is logged, and the daemon runs without it.
    pub(super) fn restart_recorder(&mut self) {
        Self::stop_recorder(&mut self.source);
        let config = &self.setup.config;
        if config.recorder.keep.is_zero() {
            return;
        }
        let open = |header| {
            let segments = Segments::open(&config.output_dir, config.recorder.keep, config.recorder.max_bytes)?;
            RecordingWriter::to_segments(segments, header)
        };
        // Rules and recording begin to count at the same moment, so that replay finds what the rules found.
        self.detection.begin_counting(&self.source);
        let finished = self.source.histograms().unwrap_or_default();
        match Tap::new(self.source.watch(), self.source.now(), &finished, recording_header(config, vec![]), open) {
            Ok(mut tap) => {
                tap.set_reported(self.detection.rules().reported());
                self.source.set_tap(Some(tap));
            }
            Err(error) => tracing::error!("nothing is recorded: {error:#}; correct that, and reload"),
        }
    }

    /// Logs when the recorder begins to fail, and when it writes again.
    pub(super) fn look_after_recorder(&mut self) {
        let Some(error) = self.source.tap().map(|tap| tap.writer().written().error) else { return };
        if error == self.recorder_error {
            return;
        }
        match error.as_str() {
            "" => tracing::info!("the recorder writes again"),
            error => tracing::error!("the recorder cannot write: {error}; it tries again, and the daemon goes on"),
        }
        self.recorder_error = error;
    }

    /// Ends the recording and writes out its last records.
    pub(super) fn stop_recorder(source: &mut KernelSource) {
        drop(source.set_tap(None).map(|tap| tap.into_writer().finish()));
    }
}
