//! Detection turns the events of a source into incidents. The daemon runs it on this host's kernel, `replay` on a recording.
//!
//! ```text
//!  EventSource ── drain ──> rules ── interval over ──> changes ──> incidents ──> Reporter
//! ```

mod chains;
mod children;
mod delayed;
mod describe;
mod incidents;
pub mod kept;
mod learning;
mod open;
mod recent;
mod rules;
mod surroundings;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use diagnose::{FinishedOperations, Ledger, Meanwhile, long_term::LongTerm};
use model::{Nanos, Operation};

use crate::{config::Config, source::EventSource, view::clock::nanos};
pub use children::{Children, SETTLED, below};
pub use describe::{Excerpts, attachments, describe_snapshot, scope, scoped};
pub use incidents::{IncidentReport, Reporter};
pub use rules::{ActiveRules, ChangeExt, EpisodeChange};

use open::OpenIncident;
use recent::Recent;

/// The shortest time between two looks at operations in flight. It is less than a second, since a timer may fire early.
const LOOK_AT_STALLS_EVERY: Duration = Duration::from_millis(900);

/// The most batches that are drained before other work gets its turn.
const BATCHES_A_TURN: usize = 64;

/// The active rules, and the incidents that are not over.
pub struct Detection {
    rules: ActiveRules,
    /// The episodes that are not over, by number.
    open: HashMap<u64, OpenIncident>,
    children: Children,
    recent: Recent,
    long_term: LongTerm,
    /// When the current learning period began.
    learned: Nanos,
    ledger: Ledger,
    lost_before: HashMap<&'static str, u64>,
    looked_at_stalls: Nanos,
    /// Whether rules were armed or disarmed since the last [`Detection::take_rearmed`].
    rearmed: bool,
}

impl Detection {
    /// Starts the configuration's rules, whose first windows begin at `now`. `long_term`: the normals learned so far.
    pub fn new(config: &Config, now: Nanos, long_term: LongTerm) -> Self {
        Self {
            rules: ActiveRules::new(config, now),
            open: HashMap::new(),
            children: Children::default(),
            recent: Recent::default(),
            long_term,
            learned: now,
            ledger: Ledger::default(),
            lost_before: HashMap::new(),
            looked_at_stalls: now,
            rearmed: false,
        }
    }

    /// The active rules.
    pub fn rules(&self) -> &ActiveRules {
        &self.rules
    }

    /// Shows the waiting events to the rules. Returns false once no event waits.
    pub fn drain(&mut self, source: &mut dyn EventSource) -> bool {
        let Self { rules, recent, long_term, .. } = self;
        let mut unnamed = Vec::new();
        let waits = source.drain(&mut |event| {
            recent.keep(event);
            if long_term.is_named(event.mount) && rules.knows(event) {
                rules.see(event, long_term);
            } else {
                unnamed.push(event.clone());
            }
        });
        // The source cannot answer questions while it is drained.
        for event in unnamed {
            learning::name(long_term, source, event.mount);
            rules.ask(&event, source);
            rules.see(&event, long_term);
        }
        waits
    }

    /// Calls [`Detection::drain`] until no event waits, or [`BATCHES_A_TURN`] batches are drained.
    pub fn drain_turn(&mut self, source: &mut dyn EventSource) {
        for _ in 0..BATCHES_A_TURN {
            if !self.drain(source) {
                return;
            }
        }
    }

    /// Ends an interval, which must be drained: closes every rule's window and reports the changes.
    pub fn interval(&mut self, source: &dyn EventSource, reporter: &mut dyn Reporter) {
        self.look_at_stalls(source);
        let changes = self.close_windows(source);
        self.report_all(source, reporter, changes);
        self.find_children(source);
        self.learn(source);
        self.rearmed |= self.rules.arm(source);
        self.rules.interval(source);
    }

    /// Whether rules were armed or disarmed since the last call. If so, the kernel side must be told what to report now.
    pub fn take_rearmed(&mut self) -> bool {
        std::mem::take(&mut self.rearmed)
    }

    /// Ends detection: closes all open episodes, and reports them.
    pub fn finish(&mut self, source: &dyn EventSource, reporter: &mut dyn Reporter) {
        let mut changes = self.close_windows(source);
        self.learn_period(source, source.now().saturating_sub(self.learned));
        changes.extend(self.rules.finish());
        self.report_all(source, reporter, changes);
    }

    /// Activates the rules of another configuration. Call [`Detection::finish`] before.
    pub fn replace(&mut self, config: &Config, source: &dyn EventSource) {
        self.rules.replace(config, source.now());
        self.begin_counting(source);
    }

    /// Excludes the operations that finished before now from the rules' counts.
    pub fn begin_counting(&mut self, source: &dyn EventSource) {
        let _ = self.finished_since(source);
    }

    /// Takes note that the source's counters restart at zero.
    pub fn begin_again(&mut self) {
        self.lost_before.clear();
        self.ledger = Ledger::default();
    }

    /// Closes every rule's window. Each rule gets the number of events that its own probe has lost.
    fn close_windows(&mut self, source: &dyn EventSource) -> Vec<EpisodeChange> {
        let mut lost = HashMap::new();
        for (protocol, now) in source.lost_events() {
            let before = self.lost_before.insert(protocol.name, now).unwrap_or(0);
            lost.insert(protocol.name, now.saturating_sub(before));
        }
        let finished = self.finished_since(source);
        let meanwhile = Meanwhile {
            finished: &finished,
            recorded: &|since| source.recorded_since(since),
            label: &|key| source.mount(key).label().to_owned(),
            round_trip: &|key| self.long_term.round_trip(key),
            usual: &|finished| self.long_term.usual(finished),
        };
        self.rules.close(source, |probe| lost.get(probe).copied().unwrap_or(0), &meanwhile)
    }

    /// The operations that finished since the last call, of the kinds that some rule must count completely.
    fn finished_since(&mut self, source: &dyn EventSource) -> Vec<FinishedOperations> {
        let wanted: BTreeSet<Operation> = self.rules.histograms_needed();
        if wanted.is_empty() {
            return Vec::new();
        }
        match source.histograms() {
            Ok(histograms) => self.ledger.since(histograms.iter().cloned(), &wanted),
            Err(error) => {
                // These operations count for the next window.
                tracing::warn!("cannot read what has finished: {error:#}");
                Vec::new()
            }
        }
    }

    /// Shows operations that have been in flight for too long to the rules. At most once a second, since each look reads the kernel's maps.
    fn look_at_stalls(&mut self, source: &dyn EventSource) {
        let Some((limit, protocols)) = self.rules.stalled_after() else { return };
        let every = nanos(LOOK_AT_STALLS_EVERY);
        if source.now().saturating_sub(self.looked_at_stalls) < every {
            return;
        }
        self.looked_at_stalls = source.now();
        for event in source.in_flight(&|protocol| protocols.contains(protocol.name), limit, diagnose::KEPT) {
            learning::name(&mut self.long_term, source, event.mount);
            self.rules.ask(&event, source);
            self.rules.see(&event, &self.long_term);
        }
    }
}
