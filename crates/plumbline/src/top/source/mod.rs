//! Who finds out how things stand, on a thread of its own: whatever it waits for, keys and the screen do not.

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

/// How long a source goes without a turn while nobody asks.
const TURN: Duration = Duration::from_millis(500);

/// How long a source may take to end: detaching probes takes up to a second.
const TO_END: Duration = Duration::from_secs(10);

/// What can say how things stand.
pub trait SampleSource {
    /// What it is, in JSON.
    const KIND: &str;
    /// Whether something stays behind if the process ends without dropping it.
    const HAS_TO_END: bool = false;

    /// What it is, in words.
    fn name(&self) -> String;

    /// What has happened since this was last called, or since the source was made.
    ///
    /// # Errors
    ///
    /// When that cannot be found out now. It may be later.
    fn look(&mut self) -> Result<TopSample>;

    /// Does what cannot wait until the next look. Is called twice a second.
    fn turn(&mut self) {}
}

/// A source at work.
pub struct Looking {
    /// What it is, in words.
    pub name: String,
    /// What it is, in JSON.
    pub kind: &'static str,
    ask: SyncSender<()>,
    /// Of a source that has to end: disconnected once it has.
    ended: Option<Receiver<()>>,
}

impl Looking {
    /// Starts a thread with what `make` makes, and waits until that is done. `tell` gets each look.
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

    /// Asks for a look. If one is asked for already, nothing more comes of it.
    pub fn ask(&self) {
        let _ = self.ask.try_send(());
    }

    /// Ends the source. What has to end is waited for, though not for ever.
    pub fn end(self) {
        drop(self.ask);
        if let Some(ended) = self.ended {
            let _ = ended.recv_timeout(TO_END);
        }
    }
}

/// Until nobody can ask any more.
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
