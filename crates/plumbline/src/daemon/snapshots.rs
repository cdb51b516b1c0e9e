//! Snapshots: bundles on request, of now or of the next seconds.

use std::{
    collections::BTreeSet,
    io::Write,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use model::Nanos;

use super::{
    Daemon,
    captures::until_now,
    control::{self, SnapshotRequest},
    incidents::{excerpt, excerpt_after},
    logging,
};
use crate::{
    config::ConfiguredAction,
    detection::{self, Excerpts},
    evidence::{Attachment, BundleRequest, IncidentId, IncidentScope},
    source::EventSource,
    summary::{self, Period},
};

/// Snapshots under way at the same time: each holds a copy of the flight recorder.
const MAX_SNAPSHOTS: usize = 2;

/// A snapshot that covers a time which is not over.
pub struct Timed {
    due: Instant,
    from: Nanos,
    period: Period,
    asker: UnixStream,
}

impl Daemon {
    /// Has the collector make a bundle now, and answers `asker` when the bundle is written. `by` names who requested
    /// it.
    pub(super) fn snapshot(&mut self, by: &str, asker: Option<UnixStream>) {
        if self.snapshots.len() >= MAX_SNAPSHOTS {
            tracing::warn!("no snapshot for {by}: {MAX_SNAPSHOTS} are under way");
            return refuse(asker, "other snapshots are under way; try again in a moment");
        }
        self.source.begin_interval();
        let before = excerpt(&self.setup.config, &self.source.recorder(), self.source.now());
        let now = self.source.now();
        self.submit_snapshot(by, asker, now, Excerpts { before, after: None }, None);
    }

    fn submit_snapshot(
        &mut self,
        by: &str,
        asker: Option<UnixStream>,
        begin: Nanos,
        excerpts: Excerpts,
        summary: Option<Attachment>,
    ) {
        let Some(collector) = &self.collector else { return };
        let id = collector.next_id(Timestamp::now(), "all", "snapshot");
        let mut request = self.request(id.clone(), by, &self.setup.config.snapshot, excerpts);
        request.attachments.extend(summary);
        let cuts = until_now(&self.setup.config, &self.captures, &self.setup.config.snapshot, begin);
        request.cuts = self.afters.begin(&id, "", cuts);
        logging::audit(self.setup.config.audit, "snapshot", || format!("{} asked for by {by}", id.as_str()));
        match collector.submit(request) {
            Ok(()) => self.snapshots.push((id, asker)),
            Err(refused) => {
                self.afters.forget(&id);
                self.lost(&id, "busy", &refused.to_string());
                refuse(asker, "the collector is busy; try again in a moment");
            }
        }
    }

    /// A request for a bundle of all mounts. The source's interval must have begun.
    pub(super) fn request(
        &self,
        id: IncidentId,
        by: &str,
        actions: &[ConfiguredAction],
        excerpts: Excerpts,
    ) -> BundleRequest {
        let remote: Vec<_> = self.source.watch().mounts().iter().filter(|point| point.remote).collect();
        let mounts = remote.iter().map(|point| detection::scoped(point.mount.clone(), Some(point.device))).collect();
        let servers: BTreeSet<_> = remote.iter().map(|point| point.mount.server.clone()).collect();
        let servers = servers.into_iter().filter(|server| !server.is_empty()).collect();
        BundleRequest {
            incident: detection::describe_snapshot(&self.source, id.as_str(), by),
            id,
            attachments: detection::attachments(&self.source, Default::default(), excerpts),
            actions: self.setup.config.resolve(actions),
            cuts: Vec::new(),
            scope: IncidentScope { mounts, servers, pids: vec![] },
        }
    }

    pub(super) fn take_requests(&mut self) {
        for SnapshotRequest { stream, span } in self.control.snapshot_requests() {
            match span {
                None => self.snapshot("plumbline snapshot", Some(stream)),
                Some(span) => self.begin_timed(span, stream),
            }
        }
    }

    /// Begins a snapshot that covers the next `span`.
    fn begin_timed(&mut self, span: Duration, asker: UnixStream) {
        if self.timed.len() >= MAX_SNAPSHOTS {
            return refuse(Some(asker), "other snapshots are under way; try again when they are over");
        }
        self.source.begin_interval();
        let (due, from) = (Instant::now() + span, self.source.now());
        let period = Period::begin(&self.source, Timestamp::now());
        self.timed.push(Timed { due, from, period, asker });
        tracing::info!("a snapshot of the next {span:?} begins");
    }

    /// The time until the next timed snapshot is due.
    pub(super) fn timed_due_in(&self, now: Instant) -> Option<Duration> {
        self.timed.iter().map(|timed| timed.due.saturating_duration_since(now)).min()
    }

    /// Makes the bundles of the timed snapshots that are due.
    pub(super) fn finish_timed(&mut self) {
        let now = Instant::now();
        while let Some(index) = self.timed.iter().position(|timed| timed.due <= now) {
            let Timed { from, mut period, asker, .. } = self.timed.swap_remove(index);
            self.source.begin_interval();
            if let Err(error) = period.add(&self.source) {
                tracing::warn!("the snapshot has no summary: {error:#}");
            }
            let summary = period.summary(Timestamp::now(), false);
            let write = move |out: &mut dyn Write| Ok(serde_json::to_writer(out, &[summary])?);
            let summary = Attachment { name: summary::FILE, write: Box::new(write) };
            let before = excerpt_after(&self.setup.config, &self.source.recorder(), from.checked_sub(1));
            let excerpts = Excerpts { before, after: None };
            self.submit_snapshot("plumbline snapshot --for", Some(asker), from, excerpts, Some(summary));
        }
    }
}

fn refuse(asker: Option<UnixStream>, why: &str) {
    if let Some(stream) = asker {
        control::answer(stream, &format!("error {why}"));
    }
}
