//! The active rules: which rule sees which event, what each collects, and what the kernel side must report.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use diagnose::{Episode, FinishedOperations, Meanwhile, RuleState, error::Codes, long_term::LongTerm, rule::Rule};
use model::{Code, DaemonLook, Event, Level, Operation, Protocol};

use probes::Filter;

pub use diagnose::EpisodeChange;

use super::{chains::Chain, surroundings::Surroundings};
use crate::{
    config::{Config, ConfiguredAction, ConfiguredRule},
    recording::{ReportSettings, name_of},
    scope::{self, OperationFacts, RuleGroup, When},
    source::EventSource,
    view::clock::nanos,
};

pub struct ActiveRules {
    on_duty: Vec<OnDuty>,
    /// Groups of rules of one type and probe, of which at least one has a scope. A group decides for each operation which of its rules judges it.
    scoped: Vec<RuleGroup>,
    surroundings: Surroundings,
    /// Number of the last episode.
    sequence: u64,
}

struct OnDuty {
    configured: ConfiguredRule,
    watch: RuleState,
    /// Whether the rule belongs to a group in `scoped`.
    is_scoped: bool,
    /// What has armed the rule; `None`: the rule has no `when`, and always judges.
    chain: Option<Chain>,
}

impl ActiveRules {
    pub fn new(config: &Config, now: u64) -> Self {
        let mut on_duty: Vec<_> = config.rules.iter().map(|rule| OnDuty::new(rule, config.cooldown, now)).collect();
        let scoped: Vec<_> = scope::groups(&config.rules).into_iter().filter(RuleGroup::is_scoped).collect();
        for index in scoped.iter().flat_map(RuleGroup::members) {
            if let Some(rule) = on_duty.get_mut(index) {
                rule.is_scoped = true;
            }
        }
        Self { on_duty, scoped, surroundings: Surroundings::default(), sequence: 0 }
    }

    /// Activates the rules of another configuration.
    pub fn replace(&mut self, config: &Config, now: u64) {
        *self = Self { sequence: self.sequence, ..Self::new(config, now) };
    }

    /// Whether enough is known to decide which rules judge the event. If not, call [`ActiveRules::ask`] before [`ActiveRules::see`].
    pub fn knows(&mut self, event: &Event) -> bool {
        let Self { on_duty, scoped, surroundings, .. } = self;
        awake(scoped, on_duty, event.operation).all(|group| surroundings.knows(event, group))
    }

    /// Asks the source for the properties of the event that scopes refer to.
    pub fn ask(&mut self, event: &Event, source: &dyn EventSource) {
        let Self { on_duty, scoped, surroundings, .. } = self;
        awake(scoped, on_duty, event.operation).for_each(|group| surroundings.ask(event, group, source));
    }

    /// Shows the event to the rules that judge it.
    pub fn see(&mut self, event: &Event, long_term: &LongTerm) {
        let Self { on_duty, scoped, surroundings, .. } = self;
        on_duty.iter_mut().filter(|rule| !rule.is_scoped).for_each(|rule| rule.watch.see(event, long_term));
        if scoped.is_empty() {
            return;
        }
        let file = event.detail.file().unwrap_or_default();
        for group in of_protocol(scoped, event.operation) {
            let about = surroundings.about(event, &file);
            for index in group.judging(event.operation, &about) {
                if let Some(rule) = on_duty.get_mut(index).filter(|rule| rule.is_armed_for(&about)) {
                    rule.watch.see(event, long_term);
                }
            }
        }
    }

    /// Closes every rule's window. `dropped`: how many events a probe has lost in the window.
    pub fn close(
        &mut self,
        source: &dyn EventSource,
        dropped: impl Fn(&str) -> u64,
        meanwhile: &Meanwhile<'_>,
    ) -> Vec<EpisodeChange> {
        let finished = self.finished_of_scoped(source, meanwhile.finished);
        let (now, sequence) = (source.now(), &mut self.sequence);
        let mut changes = Vec::new();
        for (index, rule) in self.on_duty.iter_mut().enumerate() {
            let dropped = dropped(rule.configured.rule.protocol().name);
            let own = finished.get(&index).map(Vec::as_slice);
            let finished = if rule.is_scoped { own.unwrap_or_default() } else { meanwhile.finished };
            changes.extend(rule.watch.close(now, dropped, &Meanwhile { finished, ..*meanwhile }, sequence));
            if let Some(fault) = rule.watch.fault() {
                tracing::warn!(
                    "the rule {}: {fault}; such results are ignored, and logged once",
                    rule.configured.rule.name()
                );
            }
        }
        changes
    }

    /// The finished operations in the scope of each rule that must count them.
    fn finished_of_scoped(
        &mut self,
        source: &dyn EventSource,
        all: &[FinishedOperations],
    ) -> HashMap<usize, Vec<FinishedOperations>> {
        let Self { on_duty, scoped, surroundings, .. } = self;
        let asks = |index: usize| on_duty.get(index).is_some_and(|rule| rule.watch.histograms_needed().is_some());
        let mut finished: HashMap<usize, Vec<FinishedOperations>> = HashMap::new();
        for group in scoped.iter().filter(|group| group.members().any(asks)) {
            for one in all.iter().filter(|one| *one.operation.protocol() == *group.protocol) {
                surroundings.ask_mount(one.mount, source);
                let about = surroundings.about_mount(one.mount);
                let is_armed = |index: usize| on_duty.get(index).is_some_and(|rule| rule.is_armed_for(&about));
                for index in group.judging(one.operation, &about).filter(|of| asks(*of) && is_armed(*of)) {
                    finished.entry(index).or_default().push(one.clone());
                }
            }
        }
        finished
    }

    /// Refreshes what is known of mounts and processes at the end of an interval, as it may have changed.
    pub fn interval(&mut self, source: &dyn EventSource) {
        if !self.scoped.is_empty() {
            self.surroundings.interval(source);
        }
    }

    /// Arms the rules that open episodes arm at the end of an interval, and disarms those whose time is over. Returns whether the kernel side must
    /// report more or less because of this.
    pub fn arm(&mut self, source: &dyn EventSource) -> bool {
        if self.on_duty.iter().all(|rule| rule.chain.is_none()) {
            return false;
        }
        let episodes: Vec<Episode> = self.episodes().cloned().collect();
        let mut changed = false;
        for rule in &mut self.on_duty {
            let Some(chain) = &mut rule.chain else { continue };
            changed |= chain.update(rule.configured.rule.name(), &episodes, source);
        }
        changed
    }

    /// The conditions that arm the rule of this name; `None`: the rule has no `when`.
    pub fn when(&self, name: &str) -> Option<&When> {
        let rule = self.on_duty.iter().find(|rule| rule.configured.rule.name() == name)?;
        rule.configured.when.as_ref()
    }

    /// The protocols whose operations armed rules judge.
    pub fn demanded(&self) -> Vec<&'static Protocol> {
        let armed = self.on_duty.iter().filter(|rule| rule.chain.as_ref().is_some_and(Chain::is_armed));
        armed.map(|rule| rule.configured.rule.protocol()).collect()
    }

    /// Ends every open episode.
    pub fn finish(&mut self) -> Vec<EpisodeChange> {
        self.on_duty.iter_mut().filter_map(|rule| rule.watch.finish()).map(EpisodeChange::Closed).collect()
    }

    /// The open episode of this number, without the part before its last pause of at least `pause`.
    pub fn forget_before_pause(&mut self, id: u64, pause: Duration) -> Option<Episode> {
        let is_it = |rule: &&mut OnDuty| rule.watch.episode().is_some_and(|episode| episode.id == id);
        self.on_duty.iter_mut().find(is_it)?.watch.forget_before_pause(pause).cloned()
    }

    /// The episodes that are not over.
    pub fn episodes(&self) -> impl Iterator<Item = &Episode> {
        self.on_duty.iter().filter_map(|rule| rule.watch.episode())
    }

    /// The actions of the rule of this name.
    pub fn actions_of(&self, name: &str) -> &[ConfiguredAction] {
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

    /// The same in the form of a recording. Rules that are not armed are left out, since a recording has their operations only at times.
    pub fn reported(&self) -> ReportSettings {
        let thresholds = self.kernel_thresholds().into_iter();
        ReportSettings {
            thresholds: thresholds.map(|(operation, limit)| (name_of(operation), nanos(limit))).collect(),
            failures: self.failures().into_iter().map(name_of).collect(),
        }
    }

    /// The lowest threshold of all rules for each operation. Events below it need not leave the kernel.
    pub(crate) fn kernel_thresholds(&self) -> Vec<(Operation, Duration)> {
        let mut lowest: BTreeMap<Operation, Duration> = BTreeMap::new();
        for (operation, limit) in
            self.rules().flat_map(|rule| rule.sees()).chain(self.shows_daemons()).chain(self.shows_paths())
        {
            lowest.entry(operation).and_modify(|known| *known = limit.min(*known)).or_insert(limit);
        }
        lowest.into_iter().collect()
    }

    /// Slow requests to file system daemons, if a rule judges these requests or the calls that wait for them. When such a request ends, the source
    /// examines the daemon, and verdicts need the result.
    fn shows_daemons(&self) -> impl Iterator<Item = (Operation, Duration)> {
        let waits = |level: Level| level < Level::Proxy || level == Level::Daemon;
        let wanted = self.rules().any(|rule| waits(rule.protocol().level));
        let daemons = probes::protocols().filter(move |protocol| wanted && protocol.level == Level::Daemon);
        let requests = daemons.flat_map(Protocol::all_operations).filter(|operation| !operation.waits_by_design());
        requests.map(|operation| (operation, Duration::from_nanos(DaemonLook::SLOW)))
    }

    /// Events of connections whose texts verdicts quote, such as a change of route or an unreachable peer. They are rare.
    fn shows_paths(&self) -> impl Iterator<Item = (Operation, Duration)> {
        let wanted = self.rules().any(|rule| rule.protocol().level.is_remote());
        let all = probes::at(Level::Connection).filter(move |_| wanted).flat_map(Protocol::all_operations);
        all.filter(|operation| diagnose::has_telling_text(*operation)).map(|operation| (operation, Duration::ZERO))
    }

    /// Operations whose failures at least one rule counts.
    pub fn failures(&self) -> Vec<Operation> {
        let all: BTreeSet<_> = self.sees_failures().flat_map(|(_, operations, _)| operations.iter().copied()).collect();
        all.into_iter().collect()
    }

    /// Ordinary error codes that some rule counts nevertheless.
    fn wanted_ordinary(&self) -> Vec<(&'static Protocol, Code)> {
        let wanted = |(protocol, _, codes): (&'static Protocol, _, &Codes)| {
            let ordinary = protocol.ordinary.iter().filter(|code| codes.include(protocol, **code));
            ordinary.map(|code| (protocol, *code)).collect::<Vec<_>>()
        };
        self.sees_failures().flat_map(wanted).collect()
    }

    /// Operations that some rule must count completely, including fast ones.
    pub fn histograms_needed(&self) -> BTreeSet<Operation> {
        let awake = self.on_duty.iter().filter(|rule| rule.is_awake());
        awake.filter_map(|rule| rule.watch.histograms_needed()).flatten().copied().collect()
    }

    /// The shortest time after which some rule reports an operation as stalled, and the protocols that such rules judge.
    pub fn stalled_after(&self) -> Option<(Duration, BTreeSet<&'static str>)> {
        let sees = || self.rules().filter_map(|rule| Some((rule.sees_in_flight()?, rule.protocol().name)));
        let limit = sees().map(|(limit, _)| limit).min()?;
        Some((limit, sees().map(|(_, protocol)| protocol).collect()))
    }

    /// The rules that judge now.
    fn rules(&self) -> impl Iterator<Item = &dyn Rule> {
        self.on_duty.iter().filter(|rule| rule.is_awake()).map(|rule| &*rule.configured.rule)
    }

    fn sees_failures(&self) -> impl Iterator<Item = (&'static Protocol, &BTreeSet<Operation>, &Codes)> {
        self.rules().filter_map(|rule| {
            let (operations, codes) = rule.sees_failures()?;
            Some((rule.protocol(), operations, codes))
        })
    }
}

/// The groups for the operation's protocol with a rule that judges now.
fn awake<'g>(
    groups: &'g [RuleGroup],
    on_duty: &'g [OnDuty],
    operation: Operation,
) -> impl Iterator<Item = &'g RuleGroup> {
    let is_awake = |index: usize| on_duty.get(index).is_some_and(OnDuty::is_awake);
    of_protocol(groups, operation).filter(move |group| group.members().any(is_awake))
}

/// The groups for the operation's protocol.
fn of_protocol(groups: &[RuleGroup], operation: Operation) -> impl Iterator<Item = &RuleGroup> {
    groups.iter().filter(move |group| *group.protocol == *operation.protocol())
}

impl OnDuty {
    fn new(rule: &ConfiguredRule, cooldown: Duration, now: u64) -> Self {
        let watch = RuleState::new(rule.rule.detector(), cooldown, now);
        let chain = rule.when.as_ref().map(|when| Chain::new(when.clone()));
        Self { configured: rule.clone(), watch, is_scoped: false, chain }
    }

    /// Whether the rule judges any operation now.
    fn is_awake(&self) -> bool {
        self.chain.as_ref().is_none_or(Chain::is_armed)
    }

    /// Whether the rule judges such operations now, provided that its scope includes them.
    fn is_armed_for(&self, about: &OperationFacts<'_>) -> bool {
        self.chain.as_ref().is_none_or(|chain| chain.is_armed_for(about.mount, about.cgroup))
    }
}

/// What a change means for its bundle.
pub trait ChangeExt {
    fn opened(&self) -> bool;
    fn closed(&self) -> bool;
}

impl ChangeExt for EpisodeChange {
    fn opened(&self) -> bool {
        matches!(self, EpisodeChange::Opened(_))
    }

    fn closed(&self) -> bool {
        matches!(self, EpisodeChange::Closed(_))
    }
}
