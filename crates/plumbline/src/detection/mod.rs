//! Detection: from what a source of events says to incidents. The daemon runs it on this host's kernel, `replay` on a recording.
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

/// What is in flight is looked at so often at most. Shorter than a second by what a timer may be early.
const LOOK_AT_STALLS_EVERY: Duration = Duration::from_millis(900);

/// Batches taken from the source before anything else gets its turn.
const BATCHES_A_TURN: usize = 64;

/// Rules at work, and the incidents that are not over.
pub struct Detection {
    rules: ActiveRules,
    /// The episodes that are not over, by number.
    open: HashMap<u64, OpenIncident>,
    children: Children,
    recent: Recent,
    long_term: LongTerm,
    /// When the period began that is learned next.
    learned: Nanos,
    ledger: Ledger,
    lost_before: HashMap<&'static str, u64>,
    looked_at_stalls: Nanos,
    /// Whether rules were armed or disarmed since somebody asked.
    rearmed: bool,
}

impl Detection {
    /// The configuration's rules, whose first windows begin at `now`; `long_term`: what was learned of what is normal.
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

    /// The rules on duty.
    pub fn rules(&self) -> &ActiveRules {
        &self.rules
    }

    /// Shows the rules what has come. False once nothing waits.
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
        // While it is drained, the source answers nothing.
        for event in unnamed {
            learning::name(long_term, source, event.mount);
            rules.ask(&event, source);
            rules.see(&event, long_term);
        }
        waits
    }

    /// Likewise, until nothing waits, or as much was shown as may be before anything else gets its turn.
    pub fn drain_turn(&mut self, source: &mut dyn EventSource) {
        for _ in 0..BATCHES_A_TURN {
            if !self.drain(source) {
                return;
            }
        }
    }

    /// An interval is over, and drained: closes every rule's window, and has what that changed reported.
    pub fn interval(&mut self, source: &dyn EventSource, reporter: &mut dyn Reporter) {
        self.look_at_stalls(source);
        let changes = self.close_windows(source);
        self.report_all(source, reporter, changes);
        self.find_children(source);
        self.learn(source);
        self.rearmed |= self.rules.arm(source);
        self.rules.interval(source);
    }

    /// Whether rules were armed or disarmed since this was last asked, so that the kernel side must report more or less.
    pub fn take_rearmed(&mut self) -> bool {
        std::mem::take(&mut self.rearmed)
    }

    /// Nothing more comes: what is open is over.
    pub fn finish(&mut self, source: &dyn EventSource, reporter: &mut dyn Reporter) {
        let mut changes = self.close_windows(source);
        self.learn_period(source, source.now().saturating_sub(self.learned));
        changes.extend(self.rules.finish());
        self.report_all(source, reporter, changes);
    }

    /// Another configuration's rules take over; to be finished before.
    pub fn replace(&mut self, config: &Config, source: &dyn EventSource) {
        self.rules.replace(config, source.now());
        self.begin_counting(source);
    }

    /// What has finished before is no business of the rules.
    pub fn begin_counting(&mut self, source: &dyn EventSource) {
        let _ = self.finished_since(source);
    }

    /// The source counts from zero again.
    pub fn begin_again(&mut self) {
        self.lost_before.clear();
        self.ledger = Ledger::default();
    }

    /// Closes every rule's window. A probe's own losses are its rules'.
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

    /// What has finished since this was last asked, of the operations that some rule must know all about.
    fn finished_since(&mut self, source: &dyn EventSource) -> Vec<FinishedOperations> {
        let wanted: BTreeSet<Operation> = self.rules.histograms_needed();
        if wanted.is_empty() {
            return Vec::new();
        }
        match source.histograms() {
            Ok(histograms) => self.ledger.since(histograms.iter().cloned(), &wanted),
            Err(error) => {
                // It counts for the next window.
                tracing::warn!("cannot read what has finished: {error:#}");
                Vec::new()
            }
        }
    }

    /// Shows the rules what has been in flight for too long, once a second at most: each look reads the kernel's maps.
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
