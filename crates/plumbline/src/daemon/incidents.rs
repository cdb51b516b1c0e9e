//! Handles incidents: makes and updates bundles, logs them, and passes incidents to publishers.

use std::io::Write;

use diagnose::Episode;
use jiff::Timestamp;
use model::{Incident, Losses, ProbeLosses, Protocol};
use probes::{ProbeCounters, ProbeSet, ProgramRuns, Recorder};

use super::{
    Daemon,
    captures::{Afters, until_now},
    control, logging,
    memory::release_program,
    nanos,
    peers::Peers,
    publish::Publish,
    release_free_memory,
    summaries::Summaries,
    waiting::Waiting,
};
use crate::{
    capture::Captures,
    config::Config,
    detection::{self, ActiveRules, ChangeExt, Excerpts, IncidentReport, Reporter},
    evidence::{
        Attachment, BundleAddition, BundleOutcome, BundleRequest, Collector, Done, INCIDENTS, IncidentId, LossReason,
    },
    source::EventSource,
};

/// Makes bundles from detection's reports.
pub(super) struct Bundles<'a> {
    pub config: &'a Config,
    pub collector: &'a Collector,
    pub publish: &'a mut Publish,
    pub peers: &'a mut Peers,
    pub waiting: &'a Waiting,
    pub summaries: &'a mut Summaries,
    pub captures: &'a Captures,
    pub afters: &'a mut Afters,
    pub incidents: &'a mut u64,
    pub bundles_lost: &'a mut u64,
}

impl Reporter for Bundles<'_> {
    fn next_id(&mut self, detected: Timestamp, protocol: &str, kind: &str) -> IncidentId {
        self.collector.next_id(detected, protocol, kind)
    }

    /// Has the collector make the incident's bundle, or update it. Returns whether the collector accepted that.
    fn report(&mut self, source: &dyn EventSource, rules: &ActiveRules, report: IncidentReport<'_>) -> bool {
        let IncidentReport {
            change,
            id,
            known,
            judged_before,
            reported_until,
            described,
            events,
            recorder,
            children,
            part,
        } = report;
        let episode = change.episode();
        let (waited, folded) = self.waiting.summary(episode.id);
        let described = Incident { waited, ..described };
        if change.opened() {
            *self.incidents += 1;
            logging::incident(&described, self.config.audit);
        } else if judged_before.is_some_and(|before| before != described.verdict.accused()) {
            logging::verdict(&described);
        }
        let bundle = self.config.output_dir.join(INCIDENTS).join(id.bundle());
        self.publish.incident(&described, &bundle, change);
        if change.closed() {
            logging::audit(self.config.audit, "incident", || format!("{} is over", id.as_str()));
        }
        self.peers.incident(id, &described, change, self.config.evidence.recorder, source.now());
        let excerpts = Excerpts {
            before: (!known).then(|| excerpt(self.config, &recorder, episode.window.from)).flatten(),
            after: excerpt_after(self.config, &recorder, reported_until.filter(|_| known && change.closed())),
        };
        let mut attachments = detection::attachments(source, (events, children), excerpts);
        if !folded.is_empty() {
            let write = Box::new(move |out: &mut dyn Write| out.write_all(folded.as_bytes()));
            attachments.push(Attachment { name: "stacks.folded", write });
        }
        if !known {
            attachments.extend(self.summaries.attachment(source));
        }
        let result = if known {
            let part = part.map(|part| self.part(id, source, rules, part));
            let part = part.filter(|part| !part.actions.is_empty() || !part.cuts.is_empty());
            self.collector.update(id.clone(), described, attachments, part)
        } else {
            let actions = rules.actions_of(&episode.anomaly.name);
            let from = episode.window.from;
            self.collector.submit(BundleRequest {
                id: id.clone(),
                attachments,
                incident: described,
                actions: self.config.resolve(actions),
                cuts: self.afters.begin(id, "", until_now(self.config, self.captures, actions, from)),
                scope: detection::scope(source, episode),
            })
        };
        release_free_memory();
        if let Err(refused) = &result {
            *self.bundles_lost += 1;
            if !known {
                self.afters.forget(id);
            }
            logging::lost(id.as_str(), "busy", &refused.to_string(), self.config.audit);
        }
        result.is_ok()
    }
}

impl Bundles<'_> {
    /// The evidence that the rule of an episode collects for another incident, of which the episode is part.
    fn part(
        &mut self,
        id: &IncidentId,
        source: &dyn EventSource,
        rules: &ActiveRules,
        episode: &Episode,
    ) -> BundleAddition {
        let rule = episode.anomaly.name.clone();
        let wanted = rules.actions_of(&rule);
        let cuts = until_now(self.config, self.captures, wanted, episode.window.from);
        let cuts = self.afters.begin(id, &rule, cuts);
        BundleAddition { actions: self.config.resolve(wanted), cuts, scope: detection::scope(source, episode), rule }
    }
}

/// The flight recorder's records of the seconds before `from`; `None` if the configuration wants none. They take at
/// most an eighth of the disk limit, at 32 bytes a compressed record.
pub fn excerpt(config: &Config, recorder: &Recorder, from: u64) -> Option<Recorder> {
    let span = nanos(config.evidence.recorder);
    (span > 0).then(|| recorder.excerpt(from.saturating_sub(span), limit(config)))
}

/// The flight recorder's records that ended after `until`, within the same limit; `None` if `until` is not known.
pub fn excerpt_after(config: &Config, recorder: &Recorder, until: Option<u64>) -> Option<Recorder> {
    let until = until.filter(|_| !config.evidence.recorder.is_zero())?;
    Some(recorder.excerpt(until.saturating_add(1), limit(config)))
}

fn limit(config: &Config) -> usize {
    (config.cleanup.max_bytes / 8 / 32).clamp(100, 20_000) as usize
}

/// What each probe has lost since it was loaded, by cause, and how much sampling left out.
pub fn losses_of(watch: &ProbeSet, sample_shift: u32) -> Losses {
    let (consumed, not_understood) = watch.consumed();
    let of = |((protocol, counters), (_, runs)): ((&Protocol, ProbeCounters), (_, ProgramRuns))| {
        let losses = ProbeLosses {
            ring_full: counters.lost_ring,
            inflight_full: counters.lost_inflight,
            histograms_full: counters.lost_histogram,
            runs_missed: runs.missed,
            swept: counters.swept,
            never_sent: counters.never_sent,
            sampled_out: counters.sampled_out,
            produced: counters.produced,
            started: counters.started,
            unfinished: counters.unfinished(),
        };
        (protocol.name.to_owned(), losses)
    };
    let probes = watch.counters().into_iter().zip(watch.runs()).map(of).collect();
    Losses { probes, consumed, not_understood, sampling_one_in: 1 << sample_shift }
}

impl Daemon {
    pub(super) fn lost(&mut self, id: &IncidentId, cause: &str, message: &str) {
        self.bundles_lost += 1;
        logging::lost(id.as_str(), cause, message, self.setup.config.audit);
    }

    pub(super) fn take_completions(&mut self) {
        let done = self.collector.as_ref().map(Collector::completions).unwrap_or_default();
        for done in done {
            self.completed(&done);
        }
        self.take_observations();
        release_program();
    }

    pub(super) fn completed(&mut self, done: &Done) {
        let audited = self.setup.config.audit;
        logging::deletions(&done.sweep, audited);
        let (id, line) = match &done.outcome {
            BundleOutcome::Written { id, path, labels, proven, .. } => {
                logging::written(&done.outcome, audited);
                self.detection.written(id, labels, proven.as_deref());
                (id, format!("bundle {}", path.display()))
            }
            BundleOutcome::Lost { id, cause, message } => {
                self.lost(id, cause.name(), message);
                self.detection.lost(id, *cause == LossReason::Gone);
                (id, format!("error the bundle was lost: {message}"))
            }
            BundleOutcome::NotTidied { message } => return tracing::error!("cannot look for old bundles: {message}"),
            BundleOutcome::Tidied => return,
        };
        let index = self.snapshots.iter().position(|(waits_for, _)| waits_for == id);
        if let Some((_, Some(stream))) = index.map(|index| self.snapshots.swap_remove(index)) {
            control::answer(stream, &line);
        }
    }
}
