//! The cool-down: one long outage is one incident that is updated, not sixty incidents.

use std::{collections::BTreeSet, mem, time::Duration};

use model::{Anomaly, Event, Nanos, Operation};

use crate::{
    Detector, Meanwhile, Window,
    long_term::LongTerm,
    units::{SECOND, nanos},
};

/// Anomalous windows of one rule, each less than the cool-down after the one before.
#[derive(Debug, Clone)]
pub struct Episode {
    /// Number of the incident, unique among all that share the sequence.
    pub id: u64,
    /// The rule and the limit as first broken; the observation covers the whole episode.
    pub anomaly: Anomaly,
    /// All anomalous windows as one: from the first one's beginning to the last one's end.
    pub window: Window,
    /// How many windows were anomalous.
    pub windows: u64,
}

/// What closing a window changed. Each carries the episode as it stands now.
#[derive(Debug, Clone)]
pub enum EpisodeChange {
    /// The rule was broken: write the incident.
    Opened(Episode),
    /// The rule was broken again since the last report, and an update is due: write the incident again.
    Updated(Episode),
    /// The rule was not broken for the cool-down: these are the final totals.
    Closed(Episode),
}

impl EpisodeChange {
    /// The episode, whether it was opened, updated or closed.
    pub fn episode(&self) -> &Episode {
        match self {
            Self::Opened(episode) | Self::Updated(episode) | Self::Closed(episode) => episode,
        }
    }
}

/// One rule on duty: its open window, and its episode if there is one.
pub struct RuleState {
    rule: Box<dyn Detector>,
    cooldown: u64,
    window: Window,
    open: Option<OpenEpisode>,
}

struct OpenEpisode {
    episode: Episode,
    /// The earliest time of the next update.
    due: Nanos,
    /// How long the next update waits: a second at first, then doubling up to the cool-down.
    wait: u64,
    /// Whether there was an anomalous window since the last report.
    news: bool,
}

impl RuleState {
    /// A rule whose first window begins at `now`. A cool-down of zero makes every anomalous window an incident.
    pub fn new(rule: Box<dyn Detector>, cooldown: Duration, now: Nanos) -> Self {
        let cooldown = u64::try_from(cooldown.as_nanos()).unwrap_or(u64::MAX);
        Self { rule, cooldown, window: Window::new(now), open: None }
    }

    /// The operations whose histograms [`RuleState::close`] needs; `None`: none.
    pub fn histograms_needed(&self) -> Option<&BTreeSet<Operation>> {
        self.rule.histograms_needed()
    }

    /// What the rule could not do, once: see [`Detector::fault`].
    pub fn fault(&mut self) -> Option<String> {
        self.rule.fault()
    }

    /// Takes a drained event, if the rule counts it.
    pub fn see(&mut self, event: &Event, long_term: &LongTerm) {
        if self.rule.counts(event, long_term) {
            self.window.push(event);
        }
    }

    /// Closes the window at `now` and begins the next. Returns the changes: at most one `Closed` and one `Opened`.
    ///
    /// `dropped` is how many of the probe's events were lost in this window, `sequence` the number of the last incident,
    /// shared by all rules.
    pub fn close(
        &mut self,
        now: Nanos,
        dropped: u64,
        meanwhile: &Meanwhile<'_>,
        sequence: &mut u64,
    ) -> Vec<EpisodeChange> {
        let mut window = mem::replace(&mut self.window, Window::new(now));
        (window.to, window.dropped) = (now, dropped);
        self.rule.look(&mut window, meanwhile);
        let anomaly = self.rule.detect(&window);
        let quiet_until = if anomaly.is_some() { window.from } else { now };
        let mut changes = Vec::new();
        if self.open.as_ref().is_some_and(|open| open.quiet(quiet_until) >= self.cooldown) {
            changes.extend(self.finish().map(EpisodeChange::Closed));
        }
        if let Some(anomaly) = anomaly {
            changes.extend(self.found(anomaly, window, sequence));
        }
        changes.extend(self.open.as_mut().and_then(|open| open.update(now, self.cooldown)).map(EpisodeChange::Updated));
        changes
    }

    /// The open episode, if there is one.
    pub fn episode(&self) -> Option<&Episode> {
        self.open.as_ref().map(|open| &open.episode)
    }

    /// Forgets what the open episode contains from before its last pause of at least this length, and returns the
    /// episode; `None` if none is open.
    pub fn forget_before_pause(&mut self, pause: Duration) -> Option<&Episode> {
        let episode = &mut self.open.as_mut()?.episode;
        episode.window.forget_before_pause(nanos(pause));
        episode.anomaly.observed = self.rule.observed(&episode.window);
        Some(episode)
    }

    /// Ends the open episode before its time, as when the daemon stops or the rule is replaced.
    pub fn finish(&mut self) -> Option<Episode> {
        self.open.take().map(|open| open.episode)
    }

    fn found(&mut self, anomaly: Anomaly, window: Window, sequence: &mut u64) -> Option<EpisodeChange> {
        let Some(open) = &mut self.open else {
            *sequence += 1;
            let wait = SECOND.min(self.cooldown);
            let due = window.to.saturating_add(wait);
            let episode = Episode { id: *sequence, anomaly, window, windows: 1 };
            self.open = Some(OpenEpisode { episode: episode.clone(), due, wait, news: false });
            return Some(EpisodeChange::Opened(episode));
        };
        let episode = &mut open.episode;
        episode.window.absorb(&window);
        episode.windows += 1;
        episode.anomaly.observed = self.rule.observed(&episode.window);
        open.news = true;
        None
    }
}

impl OpenEpisode {
    /// The episode as it stands, if there is news and an update is due.
    fn update(&mut self, now: Nanos, cooldown: u64) -> Option<Episode> {
        if !self.news || now < self.due {
            return None;
        }
        self.wait = self.wait.saturating_mul(2).min(cooldown);
        self.due = now.saturating_add(self.wait);
        self.news = false;
        Some(self.episode.clone())
    }

    /// Time from the last anomalous window to `until`, nanoseconds.
    fn quiet(&self, until: Nanos) -> u64 {
        until.saturating_sub(self.episode.window.to)
    }
}
