//! The rules on duty: who sees which event, what each collects, and what the kernel side must let through.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use diagnose::{Episode, Meanwhile, RuleState, error::Codes, long_term::LongTerm, rule::Rule};
use model::{Code, Event, Operation, Protocol};

use probes::Filter;

pub use diagnose::Change;

use crate::{
    config::{ActionSpec, Config, ConfiguredRule},
    recording::{Reported, name_of},
    view::clock::nanos,
};

pub struct Rules {
    on_duty: Vec<OnDuty>,
    /// Number of the last episode.
    sequence: u64,
}

struct OnDuty {
    configured: ConfiguredRule,
    watch: RuleState,
}

impl Rules {
    pub fn new(config: &Config, now: u64) -> Self {
        let on_duty = config.rules.iter().map(|rule| OnDuty::new(rule, config.cooldown, now)).collect();
        Self { on_duty, sequence: 0 }
    }

    /// Puts another configuration's rules on duty.
    pub fn replace(&mut self, config: &Config, now: u64) {
        self.on_duty = Self::new(config, now).on_duty;
    }

    pub fn see(&mut self, event: &Event, long_term: &LongTerm) {
        self.on_duty.iter_mut().for_each(|rule| rule.watch.see(event, long_term));
    }

    /// Closes every rule's window; `dropped` says how many events its probe has lost meanwhile.
    pub fn close(&mut self, now: u64, dropped: impl Fn(&str) -> u64, meanwhile: &Meanwhile<'_>) -> Vec<Change> {
        let sequence = &mut self.sequence;
        let close = |rule: &mut OnDuty| {
            let dropped = dropped(rule.configured.rule.protocol().name);
            rule.watch.close(now, dropped, meanwhile, sequence)
        };
        self.on_duty.iter_mut().flat_map(close).collect()
    }

    /// Ends every open episode.
    pub fn finish(&mut self) -> Vec<Change> {
        self.on_duty.iter_mut().filter_map(|rule| rule.watch.finish()).map(Change::Closed).collect()
    }

    /// The episodes that are not over.
    pub fn episodes(&self) -> impl Iterator<Item = &Episode> {
        self.on_duty.iter().filter_map(|rule| rule.watch.episode())
    }

    /// What the rule of this name collects.
    pub fn actions_of(&self, name: &str) -> &[ActionSpec] {
        let rule = self.on_duty.iter().find(|rule| rule.configured.rule.name() == name);
        rule.map_or(&[], |rule| &rule.configured.actions)
    }

    /// What the kernel side must report.
    pub fn filter(&self) -> Filter {
        Filter {
            thresholds: self.kernel_thresholds(),
            failures: self.failures(),
            wanted_ordinary: self.wanted_ordinary(),
            ..Filter::default()
        }
    }

    /// The same, as a recording says it.
    pub fn reported(&self) -> Reported {
        let thresholds = self.kernel_thresholds().into_iter();
        Reported {
            thresholds: thresholds.map(|(operation, limit)| (name_of(operation), nanos(limit))).collect(),
            failures: self.failures().into_iter().map(name_of).collect(),
        }
    }

    /// The lowest limit of any rule for each operation: what is below it need not leave the kernel.
    pub(crate) fn kernel_thresholds(&self) -> Vec<(Operation, Duration)> {
        let mut lowest: BTreeMap<Operation, Duration> = BTreeMap::new();
        for (operation, limit) in self.rules().flat_map(|rule| rule.sees()) {
            lowest.entry(operation).and_modify(|known| *known = limit.min(*known)).or_insert(limit);
        }
        lowest.into_iter().collect()
    }

    /// Operations whose failures some rule counts.
    pub fn failures(&self) -> Vec<Operation> {
        let all: BTreeSet<_> = self.sees_failures().flat_map(|(_, operations, _)| operations.iter().copied()).collect();
        all.into_iter().collect()
    }

    /// Ordinary codes that some rule counts all the same.
    fn wanted_ordinary(&self) -> Vec<(&'static Protocol, Code)> {
        let wanted = |(protocol, _, codes): (&'static Protocol, _, &Codes)| {
            let ordinary = protocol.ordinary.iter().filter(|code| codes.include(protocol, **code));
            ordinary.map(|code| (protocol, *code)).collect::<Vec<_>>()
        };
        self.sees_failures().flat_map(wanted).collect()
    }

    /// Operations of which some rule must know what finished however fast.
    pub fn histograms_needed(&self) -> BTreeSet<Operation> {
        self.on_duty.iter().filter_map(|rule| rule.watch.histograms_needed()).flatten().copied().collect()
    }

    /// The shortest time after which some rule calls an operation stalled, and whose operations such rules are about.
    pub fn stalled_after(&self) -> Option<(Duration, BTreeSet<&'static str>)> {
        let sees = || self.rules().filter_map(|rule| Some((rule.sees_in_flight()?, rule.protocol().name)));
        let limit = sees().map(|(limit, _)| limit).min()?;
        Some((limit, sees().map(|(_, protocol)| protocol).collect()))
    }

    fn rules(&self) -> impl Iterator<Item = &dyn Rule> {
        self.on_duty.iter().map(|rule| &*rule.configured.rule)
    }

    fn sees_failures(&self) -> impl Iterator<Item = (&'static Protocol, &BTreeSet<Operation>, &Codes)> {
        self.rules().filter_map(|rule| {
            let (operations, codes) = rule.sees_failures()?;
            Some((rule.protocol(), operations, codes))
        })
    }
}

impl OnDuty {
    fn new(rule: &ConfiguredRule, cooldown: Duration, now: u64) -> Self {
        Self { configured: rule.clone(), watch: RuleState::new(rule.rule.detector(), cooldown, now) }
    }
}

/// What a change means for its bundle.
pub trait ChangeExt {
    fn opened(&self) -> bool;
    fn closed(&self) -> bool;
}

impl ChangeExt for Change {
    fn opened(&self) -> bool {
        matches!(self, Change::Opened(_))
    }

    fn closed(&self) -> bool {
        matches!(self, Change::Closed(_))
    }
}
