//! The figures that the daemon keeps for publishers, and the snapshots that it makes of them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::Arc,
    time::{Instant, SystemTime},
};

use anyhow::{Context, Result};
use model::{Histogram, Incident, Mount, MountKey, Operation, RankedProcess, text::printable};
use probes::{ProbeSet, ProbeSupport, mounts::MountPoint};

use super::{Daemon, release_free_memory};
use crate::{
    config::{self, Config, Otlp, Prometheus},
    cost::ProcessCost,
    detection::{ChangeExt, EpisodeChange},
    publish::{
        Counts, Delivery, HttpServer, IncidentCounts, IncidentRecord, MonotonicCounter, MountLookup, OtlpExporter,
        Outcomes, ProbeFigures, Snapshot, SnapshotExchange, Tally, kubernetes::EventPublisher, label, message,
        on_incident::OnIncident, webhook,
    },
};

/// The most mounts in a snapshot; more would dominate the metrics page.
const MAX_MOUNTS: usize = 1000;

/// Counters over the daemon's life, and the publishers.
pub struct Publish {
    exchange: Arc<SnapshotExchange>,
    server: Option<HttpServer>,
    wanted: Prometheus,
    exporter: Option<OtlpExporter>,
    exported: Option<Otlp>,
    counts: Arc<Counts>,
    webhook: Option<Delivery>,
    posted: Option<config::WebhookConfig>,
    posts: Arc<Outcomes>,
    kubernetes: Option<EventPublisher>,
    wanted_events: Option<config::KubernetesEventsConfig>,
    events: Arc<Outcomes>,
    on_incident: Option<OnIncident>,
    command: Vec<String>,
    runs: Arc<Outcomes>,
    since: SystemTime,
    tally: Tally,
    losses: MonotonicCounter<(&'static str, &'static str)>,
    run_time: MonotonicCounter<&'static str>,
    incidents: BTreeMap<(&'static str, Cow<'static, str>), u64>,
    by_verdict: IncidentCounts,
}

impl Publish {
    /// Starts the configured publishers. An address that is in use is logged, and is no error.
    ///
    /// # Errors
    ///
    /// When no file descriptor is left.
    pub fn start(config: &Config) -> Result<Self> {
        let exchange = Arc::new(SnapshotExchange::new().context("cannot make an eventfd")?);
        let operations = probes::protocols().flat_map(|protocol| protocol.all_operations());
        let counts = Arc::new(Counts::default());
        let posts = Arc::new(Outcomes::default());
        let events = Arc::new(Outcomes::default());
        let runs = Arc::new(Outcomes::default());
        let mut publish = Self {
            server: serve(config.prometheus, &exchange),
            exporter: export(config.otlp.as_ref(), &exchange, &counts),
            exported: config.otlp.clone(),
            webhook: post(config.webhook.as_ref(), &posts),
            posted: config.webhook.clone(),
            posts,
            kubernetes: create_events(config.kubernetes_events, &events),
            wanted_events: config.kubernetes_events,
            events,
            on_incident: run_on_incident(&config.on_incident, &runs),
            command: config.on_incident.clone(),
            runs,
            counts,
            exchange,
            wanted: config.prometheus,
            since: SystemTime::now(),
            tally: Tally::new(operations, config.prometheus.max_series),
            losses: MonotonicCounter::default(),
            run_time: MonotonicCounter::default(),
            incidents: BTreeMap::new(),
            by_verdict: IncidentCounts::default(),
        };
        publish.know_rules(config);
        Ok(publish)
    }

    /// Takes over another configuration, and retries publishers that could not start.
    pub fn reconfigure(&mut self, config: &Config) {
        let wanted = config.prometheus;
        if wanted.listen != self.wanted.listen || self.server.is_none() {
            // The old server stops first, as the new address may overlap with the old one. Closing the exchange ends
            // the waits of its scrapes, since this thread cannot answer them now.
            if self.server.is_some() {
                self.exchange.close();
                self.server = None;
                self.exchange.open();
            }
            self.server = serve(wanted, &self.exchange);
        }
        self.wanted = wanted;
        if config.otlp != self.exported || self.exporter.is_none() {
            // The old exporter's thread sends what it still has, and ends.
            self.exporter = export(config.otlp.as_ref(), &self.exchange, &self.counts);
            self.exported = config.otlp.clone();
        }
        if config.webhook != self.posted || self.webhook.is_none() {
            self.webhook = post(config.webhook.as_ref(), &self.posts);
            self.posted = config.webhook.clone();
        }
        if config.kubernetes_events != self.wanted_events || self.kubernetes.is_none() {
            self.kubernetes = create_events(config.kubernetes_events, &self.events);
            self.wanted_events = config.kubernetes_events;
        }
        if config.on_incident != self.command || self.on_incident.is_none() {
            self.on_incident = run_on_incident(&config.on_incident, &self.runs);
            self.command.clone_from(&config.on_incident);
        }
        self.tally.set_max_series(wanted.max_series);
        self.know_rules(config);
    }

    /// The exchange through which publishers request snapshots.
    pub fn exchange(&self) -> &SnapshotExchange {
        &self.exchange
    }

    /// Counts an incident that has begun, and queues it for OpenTelemetry, the webhook and the operator's program when it
    /// has begun or is over, and for Kubernetes when it has begun. `bundle`: the path of its bundle.
    pub fn incident(&mut self, incident: &Incident, bundle: &Path, change: &EpisodeChange) {
        let anomaly = &incident.anomaly;
        self.by_verdict.see(change.episode().id, incident, change.closed());
        if let Some(protocol) = probes::protocol(&anomaly.probe).filter(|_| change.opened()) {
            *self.incidents.entry((protocol.name, anomaly.kind.clone())).or_default() += 1;
        }
        if !(change.opened() || change.closed()) {
            return;
        }
        if let Some(exporter) = &self.exporter {
            exporter.queue(otlp_record(incident, bundle));
        }
        if let Some(webhook) = &self.webhook {
            webhook.queue(message(incident, bundle));
        }
        if let Some(kubernetes) = self.kubernetes.as_ref().filter(|_| change.opened()) {
            kubernetes.queue(incident, bundle);
        }
        if let Some(program) = &self.on_incident {
            program.queue(incident, bundle);
        }
    }

    /// Takes the last counts from `watch`, which is about to be replaced by probes that count from zero.
    pub fn begin_again(&mut self, watch: &ProbeSet) {
        self.snapshot(watch, 0, [None; 2]);
        self.tally.begin_again(probes::protocols().flat_map(|protocol| protocol.all_operations()));
        self.losses.begin_again();
        self.run_time.begin_again();
    }

    /// Frees a snapshot that is too old to serve requests.
    pub fn tidy(&self) {
        if self.exchange.tidy() {
            release_free_memory();
        }
    }

    /// Stops the metrics server, and ends the waits for snapshots.
    pub fn stop_serving(&mut self) {
        self.exchange.close();
        self.server = None;
    }

    /// Sends what the OpenTelemetry exporter still has, until `deadline` at the latest.
    pub fn stop_sending(&mut self, deadline: Instant) {
        if let Some(exporter) = self.exporter.take() {
            exporter.stop(deadline);
        }
        if let Some(webhook) = self.webhook.take() {
            webhook.stop(deadline);
        }
        if let Some(kubernetes) = self.kubernetes.take() {
            kubernetes.stop(deadline);
        }
        if let Some(program) = self.on_incident.take() {
            program.stop(deadline);
        }
    }

    /// Adds a zero counter for each rule: a counter that appears with its first incident would show no increase.
    fn know_rules(&mut self, config: &Config) {
        for rule in &config.rules {
            self.incidents.entry((rule.rule.protocol().name, rule.rule.kind().into())).or_default();
            self.by_verdict.know_rule(rule.rule.name());
        }
    }

    fn settle(&mut self, watch: &ProbeSet) {
        if let Some(histograms) = histograms(watch) {
            with_names(watch, |names| self.tally.settle(histograms, names));
        }
    }

    fn snapshot(&mut self, watch: &ProbeSet, bundles_lost: u64, peers: [Option<(u64, u64)>; 2]) -> Snapshot {
        self.settle(watch);
        let mut mounts = self.mounts(watch);
        let mounts_omitted = mounts.len().saturating_sub(MAX_MOUNTS) as u64;
        mounts.truncate(MAX_MOUNTS);
        let (_, not_understood) = watch.consumed();
        let (folded, retired) = self.tally.folded_and_retired();
        let [peers_asked, peers_told] = peers;
        Snapshot {
            at: SystemTime::now(),
            since: self.since,
            series: self.tally.series().collect(),
            mounts,
            mounts_omitted,
            probes: self.probes(watch),
            not_understood: self.losses.to(("all", "not_understood"), not_understood),
            incidents: self.incidents.iter().map(|((probe, kind), count)| (*probe, kind.clone(), *count)).collect(),
            open: self.by_verdict.open(),
            closed: self.by_verdict.closed(),
            bundles_lost,
            otlp: self.exporter.iter().flat_map(|_| self.counts.read()).collect(),
            webhook: self.posted.as_ref().map(|_| self.posts.read()),
            kubernetes_events: self.wanted_events.map(|_| self.events.read()),
            on_incident: (!self.command.is_empty()).then(|| self.runs.read()),
            peers_asked,
            peers_told,
            folded,
            retired,
            cost: ProcessCost::of_this_process(),
        }
    }

    /// The remote file systems of this mount namespace, each with the first of its mounts, which names it; and the counted file systems of other
    /// namespaces.
    fn mounts(&self, watch: &ProbeSet) -> Vec<(Arc<str>, model::Mount)> {
        let table = watch.mounts();
        let is_first = |point: &MountPoint| table.get(point.device).is_some_and(|first| first.id == point.id);
        let here = table.iter().filter(|point| point.remote && is_first(point)).map(|point| point.mount.clone());
        let counted = self.tally.keys().filter_map(|key| watch.mount_point(key)).map(|point| point.mount);
        let cut = |mount: model::Mount| {
            let mount = model::Mount { source: label(&mount.source), server: label(&mount.server), ..mount };
            ([label(mount.label()), mount.source.clone(), mount.server.clone(), mount.fstype.clone()], mount)
        };
        // The map sorts the mounts and removes duplicates: a mount point may have been mounted over.
        let all: BTreeMap<_, _> = here.chain(counted).map(cut).collect();
        all.into_iter().map(|([name, ..], mount)| (name.into(), mount)).collect()
    }

    fn probes(&mut self, watch: &ProbeSet) -> Vec<ProbeFigures> {
        let attached: BTreeSet<_> = watch
            .state()
            .into_iter()
            .filter(|capability| capability.state != ProbeSupport::Unavailable)
            .map(|capability| capability.probe)
            .collect();
        let all = watch.counters().into_iter().zip(watch.runs());
        all.map(|((protocol, counters), (_, runs))| {
            let probe = protocol.name;
            let causes = counters.losses().into_iter().chain([
                ("runs_missed", runs.missed),
                ("sampled_out", counters.sampled_out),
                ("swept", counters.swept),
            ]);
            let lost = causes.map(|(cause, lost)| (cause, self.losses.to((probe, cause), lost))).collect();
            let run_time = self.run_time.to(probe, runs.nanoseconds);
            ProbeFigures {
                probe,
                attached: attached.contains(probe),
                in_flight: counters.unfinished(),
                lost,
                run_nanoseconds: (run_time > 0).then_some(run_time),
            }
        })
        .collect()
    }
}

impl Daemon {
    /// Reads the table of mounts again after a change. Counts so far belong to the old table's mounts; counts of keys
    /// that the old table lacks belong to the new table's mounts.
    pub(super) fn mounts_changed(&mut self) {
        let watch = self.source.watch();
        let tally = &mut self.publish.tally;
        let settle = |histograms| with_names(watch, |names| tally.settle_mounted(histograms, names));
        let unnamed = histograms(watch).map(settle).unwrap_or_default();
        self.maintain();
        with_names(self.source.watch(), |names| self.publish.tally.add(unnamed, names));
    }

    pub(super) fn answer_publishers(&mut self) {
        if self.publish.exchange.is_asked() {
            let snapshot = self.publish.snapshot(self.source.watch(), self.bundles_lost, self.peers.counts());
            self.publish.exchange.answer(snapshot);
        }
    }
}

/// The kernel's histograms; `None` if they cannot be read, which is logged.
fn histograms(watch: &ProbeSet) -> Option<Vec<(Operation, MountKey, Histogram)>> {
    watch
        .histograms()
        .inspect_err(|error| tracing::warn!(%error, "cannot read the histograms, so metrics do not change"))
        .ok()
}

/// Calls `what` with the current names of mounts.
fn with_names<T>(watch: &ProbeSet, what: impl FnOnce(&MountLookup<'_>) -> T) -> T {
    let mounted = |key| mounted(watch, key);
    let known = |key| watch.mount(key).label().to_owned();
    what(&MountLookup { mounted: &mounted, known: &known })
}

/// The mount point that a key means, if there is one.
fn mounted(watch: &ProbeSet, key: MountKey) -> Option<String> {
    watch.mount_point(key).map(|point| point.mount.label().to_owned())
}

fn serve(wanted: Prometheus, exchange: &Arc<SnapshotExchange>) -> Option<HttpServer> {
    let address = wanted.listen?;
    match crate::publish::serve(address, Arc::clone(exchange)) {
        Ok(server) => {
            tracing::info!("metrics are at http://{}/metrics", server.address());
            Some(server)
        }
        Err(error) => {
            tracing::warn!(
                "no metrics are served: cannot listen at {address}: {error}; free it, or set `listen` of `prometheus` to \
                 another address or to off, and reload"
            );
            None
        }
    }
}

fn export(wanted: Option<&Otlp>, exchange: &Arc<SnapshotExchange>, counts: &Arc<Counts>) -> Option<OtlpExporter> {
    let wanted = wanted?;
    let endpoint = &wanted.endpoint;
    let started = OtlpExporter::start(wanted, Arc::clone(exchange), Arc::clone(counts));
    logged(
        started,
        format_args!("metrics and incidents are sent to {endpoint}"),
        format_args!("nothing is sent to {endpoint}"),
    )
}

fn post(wanted: Option<&config::WebhookConfig>, outcomes: &Arc<Outcomes>) -> Option<Delivery> {
    let wanted = wanted?;
    let address = wanted.shown();
    let started = webhook::start(wanted, Arc::clone(outcomes));
    logged(
        started,
        format_args!("incidents are posted to {address}"),
        format_args!("no incident is posted to {address}"),
    )
}

fn create_events(wanted: Option<config::KubernetesEventsConfig>, outcomes: &Arc<Outcomes>) -> Option<EventPublisher> {
    let started = EventPublisher::start(&wanted?, Arc::clone(outcomes));
    logged(
        started,
        format_args!("each incident is an Event of Kubernetes"),
        format_args!("no Event of Kubernetes is created"),
    )
}

fn run_on_incident(command: &[String], outcomes: &Arc<Outcomes>) -> Option<OnIncident> {
    let program = command.first()?;
    let started = OnIncident::start(command, Arc::clone(outcomes));
    logged(
        started,
        format_args!("{program} is run for each incident"),
        format_args!("{program} is not run for incidents"),
    )
}

/// The publisher, if it has started. Logs whether it has. One that has not is started again at the next reload.
fn logged<T>(started: Result<T>, works: fmt::Arguments<'_>, fails: fmt::Arguments<'_>) -> Option<T> {
    match &started {
        Ok(_) => tracing::info!("{works}"),
        Err(error) => tracing::warn!("{fails}: {error:#}; correct that, and reload"),
    }
    started.ok()
}

/// An incident as an OpenTelemetry record: its main facts, and the path of its bundle.
fn otlp_record(incident: &Incident, bundle: &Path) -> IncidentRecord {
    let Incident { anomaly, verdict, top, .. } = incident;
    let (over, layer) = (incident.closed, verdict.layer.name());
    let of_mount = |field: fn(&Mount) -> &String| incident.mount().map(field).cloned().unwrap_or_default();
    let process = top.processes.first();
    let of_process = |field: fn(&RankedProcess) -> &String| process.map(field).cloned().unwrap_or_default();
    let first = top.operations.first().map(|ranked| ranked.share).filter(|share| share.count > 0);
    let mean_ms = first.map(|share| share.total_ms / share.count as f64);
    let attributes = [
        ("plumbline.incident.id", incident.id.clone()),
        ("plumbline.incident.type", anomaly.kind.to_string()),
        ("plumbline.incident.rule", anomaly.name.clone()),
        ("plumbline.incident.state", if over { "over" } else { "begun" }.to_owned()),
        ("plumbline.incident.layer", layer.to_owned()),
        ("plumbline.incident.cause", verdict.cause.map(|cause| cause.name().to_owned()).unwrap_or_default()),
        ("plumbline.incident.confidence", format!("{:?}", verdict.confidence)),
        ("plumbline.incident.first_seen", incident.first_seen.clone()),
        ("plumbline.incident.last_seen", incident.last_seen.clone()),
        ("plumbline.incident.mean_ms", mean_ms.map(|ms| format!("{ms:.3}")).unwrap_or_default()),
        ("plumbline.incident.bundle", printable(bundle.as_os_str().as_encoded_bytes())),
        ("plumbline.protocol", anomaly.probe.to_string()),
        ("plumbline.operation", top.operations.first().map(|ranked| ranked.operation.clone()).unwrap_or_default()),
        ("system.filesystem.mountpoint", of_mount(|mount| &mount.mountpoint)),
        ("system.filesystem.type", of_mount(|mount| &mount.fstype)),
        ("system.device", of_mount(|mount| &mount.source)),
        ("server.address", of_mount(|mount| &mount.server)),
        ("process.pid", process.map(|process| process.pid.to_string()).unwrap_or_default()),
        ("process.executable.name", of_process(|process| &process.comm)),
        ("container.id", of_process(|process| &process.container)),
        ("plumbline.job", of_process(|process| &process.job)),
        ("k8s.namespace.name", of_process(|process| &process.names.namespace)),
        ("k8s.pod.name", of_process(|process| &process.names.pod)),
        ("k8s.container.name", of_process(|process| &process.names.container_name)),
        ("plumbline.workload", of_process(|process| &process.names.workload)),
        ("k8s.persistentvolume.name", of_mount(|mount| &mount.pv)),
    ];
    IncidentRecord {
        at: SystemTime::now(),
        over,
        text: format!("{}: {}; layer {layer}", anomaly.name, anomaly.observed),
        attributes: attributes.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
    }
}
