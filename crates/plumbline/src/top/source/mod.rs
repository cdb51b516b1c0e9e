//! Runs a source on a thread of its own, so that keys and the screen never wait for it.

mod incidents;
mod metrics;
mod page;
mod probed;

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

pub use incidents::IncidentListing;
pub use metrics::Metrics;
pub use probed::Probed;

use super::model::{KnownOrReason, TopSample};

/// The time between two turns of a source while no look is requested.
const TURN: Duration = Duration::from_millis(500);

/// How long a source may take to end: detaching probes takes up to a second.
const TO_END: Duration = Duration::from_secs(10);

/// A source of samples.
pub trait SampleSource {
    /// The source's name in JSON.
    const KIND: &str;
    /// Whether the source must be dropped before the process ends, since something would stay behind.
    const HAS_TO_END: bool = false;

    /// The source's name in words.
    fn name(&self) -> String;

    /// The data since the last call, or since the source was made.
    ///
    /// # Errors
    ///
    /// When the data cannot be had now; a later call may succeed.
    fn look(&mut self) -> Result<TopSample>;

    /// Does work that cannot wait until the next look. Called twice a second while no look is requested.
    fn turn(&mut self) {}
}

/// A running source.
pub struct Looking {
    /// The source's name in words.
    pub name: String,
    /// The source's name in JSON.
    pub kind: &'static str,
    ask: SyncSender<()>,
    /// For a source that must be dropped: disconnected when it was dropped.
    ended: Option<Receiver<()>>,
}

impl Looking {
    /// Starts a thread with the source that `make` makes, and waits until it is made. `tell` gets the result of each look.
    ///
    /// # Errors
    ///
    /// When the source cannot be made.
    pub fn start<S: SampleSource>(
        make: impl FnOnce() -> Result<S> + Send + 'static,
        mut incidents: IncidentListing,
        tell: impl Fn(KnownOrReason<TopSample>) + Send + 'static,
    ) -> Result<Self> {
        let ((ask, asked), (made, is_made)) = (sync_channel(1), sync_channel(1));
        let (ends, ended) = sync_channel(1);
        let work = move || {
            let _ends = ends;
            let source = match make() {
                Ok(source) => source,
                Err(error) => return drop(made.send(Err(error))),
            };
            if made.send(Ok(source.name())).is_ok() {
                look(source, &asked, || incidents.open(), &tell);
            }
        };
        thread::Builder::new().name("figures".into()).spawn(work).context("cannot start a thread")?;
        let name = is_made.recv().context("the thread that collects the figures has ended")??;
        Ok(Self { name, kind: S::KIND, ask, ended: S::HAS_TO_END.then_some(ended) })
    }

    /// Requests a look. Has no effect if a look is requested already.
    pub fn ask(&self) {
        let _ = self.ask.try_send(());
    }

    /// Ends the source. Waits for a source that must be dropped, at most [`TO_END`].
    pub fn end(self) {
        drop(self.ask);
        if let Some(ended) = self.ended {
            let _ = ended.recv_timeout(TO_END);
        }
    }
}

/// Serves requests until the handle is dropped.
fn look(
    mut source: impl SampleSource,
    asked: &Receiver<()>,
    mut incidents: impl FnMut() -> KnownOrReason<Vec<crate::view::incident::IncidentRow>>,
    tell: &impl Fn(KnownOrReason<TopSample>),
) {
    loop {
        match asked.recv_timeout(TURN) {
            Ok(()) => {
                let look = source.look().map(|sample| TopSample { incidents: incidents(), ..sample });
                tell(look.map_err(|error| format!("{error:#}")));
            }
            Err(RecvTimeoutError::Timeout) => source.turn(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
