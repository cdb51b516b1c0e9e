//! The types of a valid configuration, which cannot represent an invalid one.

use std::{
    fmt,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::Duration,
};

use diagnose::rule::Rule;
use http::{HeaderMap, Uri};
use model::Protocol;
use probes::own::Definition;

use super::{CaptureConfig, CaptureKind, PeersConfig, Position};
use crate::{
    evidence,
    scope::{Scope, When},
};

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The window in which operations are counted, and how often it is looked at: 10 ms to a day.
    pub watch_interval: Duration,
    /// The directory of incidents; an absolute path, not checked yet: see [`super::check_output_dir`].
    pub output_dir: PathBuf,
    /// The position of the directory in the file; `None` if it is the default.
    pub output_dir_at: Option<Position>,
    /// The probes to load; at least one.
    pub probes: Vec<&'static Protocol>,
    /// The probes among these that are loaded only while a rule about them is armed.
    pub on_demand: Vec<&'static Protocol>,
    /// Whether the syscalls probe watches local file systems too.
    pub all_filesystems: bool,
    /// The site's own operations, whose probes are among those to load.
    pub operations: Vec<Definition>,
    /// The rules, all of probes that are loaded.
    pub rules: Vec<ConfiguredRule>,
    /// Rules that were understood but that this version cannot detect; a notice says so.
    pub not_yet: Vec<NotYet>,
    /// If a rule is violated again within this time, this is the same incident; up to a day.
    pub cooldown: Duration,
    /// What a snapshot on demand collects.
    pub snapshot: Vec<ConfiguredAction>,
    /// What is collected at intervals, without an incident.
    pub observe: Vec<Observation>,
    /// How long the summaries of days are kept; zero: none are made.
    pub keep_summaries: Duration,
    /// Commands of the operator's own.
    pub custom_actions: Vec<CustomAction>,
    /// Captures that a rule or [`Config::snapshot`] names.
    pub captures: Vec<CaptureConfig>,
    /// Limits of collecting.
    pub evidence: EvidenceLimits,
    /// How long evidence is kept.
    pub cleanup: Retention,
    /// The daemon's recording of the last minutes, on disk.
    pub recorder: FlightRecorder,
    /// Whether to log audit records.
    pub audit: bool,
    /// How metrics are served.
    pub prometheus: Prometheus,
    /// How metrics and incidents are sent; `None`: they are not.
    pub otlp: Option<Otlp>,
    /// How incidents are posted; `None`: they are not.
    pub webhook: Option<WebhookConfig>,
    /// How incidents become Events of Kubernetes; `None`: they do not.
    pub kubernetes_events: Option<KubernetesEventsConfig>,
    /// The program that is run for each incident, and its arguments; empty: none.
    pub on_incident: Vec<String>,
    /// The exchange between daemons of clients and servers; `None`: there is none.
    pub peers: Option<PeersConfig>,
    /// The files that were read, in this order; none for the compiled-in configuration.
    pub files: Vec<String>,
    /// What the operator should know, one line each; not errors.
    pub notices: Vec<String>,
}

/// A rule and what it collects.
#[derive(Debug, Clone)]
pub struct ConfiguredRule {
    /// The rule.
    pub rule: Arc<dyn Rule>,
    /// The operations that it judges.
    pub scope: Scope,
    /// The incidents that arm it; `None`: it always judges.
    pub when: Option<When>,
    /// What it collects in an incident.
    pub actions: Vec<ConfiguredAction>,
}

/// A rule that a later version will detect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotYet {
    /// Its name.
    pub name: String,
    /// `latency`, `error` or `sockconn`.
    pub kind: &'static str,
    /// The probe of its operations.
    pub probe: &'static str,
    /// What it collects.
    pub actions: Vec<ConfiguredAction>,
}

/// An action by name: a built-in one, a [`CustomAction`], or a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredAction {
    /// Its name.
    pub name: String,
    /// Arguments; only AOD's captures have any, which are in their [`CaptureConfig`], too.
    pub args: Vec<String>,
    /// How long the capture continues; `None`: as the capture's own setting says.
    pub after: Option<Duration>,
}

/// What is collected at intervals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// How often: 10 seconds to a day.
    pub every: Duration,
    /// The interval in one word, such as `10m`, which distinguishes its bundles from those of other observations.
    pub name: String,
    /// At least one.
    pub actions: Vec<ConfiguredAction>,
    /// How long its bundles are kept: a minute to ten years.
    pub keep: Duration,
}

/// A command of the operator's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomAction {
    /// Its name in lists of actions.
    pub name: String,
    /// Program (a name or an absolute path) and arguments; at least the program.
    pub command: Vec<String>,
    /// Time limit: 0.1 to 300 seconds.
    pub timeout: Duration,
    /// Output limit: 1 KiB to 64 MiB.
    pub max_bytes: u64,
    /// The memory that each of its processes may take, bytes: 1 MiB to 64 GiB.
    pub max_memory: u64,
}

/// Limits of collecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvidenceLimits {
    /// Time limit of an action: 0.1 to 300 seconds.
    pub timeout: Duration,
    /// Output limit of an action: 1 KiB to 64 MiB.
    pub max_bytes: u64,
    /// How many run at a time: 1 to 16.
    pub concurrency: usize,
    /// The time before an incident of which every operation is shown: 0 (none) to 300 seconds.
    pub recorder: Duration,
}

/// How long evidence is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How often retention is applied: 10 ms to a day.
    pub interval: Duration,
    /// Older bundles are deleted: up to ten years.
    pub max_age: Duration,
    /// All incidents together, in bytes: 0.1 MiB to 1 TiB.
    pub max_bytes: u64,
}

/// The daemon's recording of the last minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightRecorder {
    /// The time that it covers: up to a week; zero: nothing is recorded.
    pub keep: Duration,
    /// Its most bytes on disk: 1 MiB to 1 TiB, at most half of [`Retention::max_bytes`].
    pub max_bytes: u64,
}

impl FlightRecorder {
    /// The space that is subtracted from that for bundles.
    pub fn reserved(&self) -> u64 {
        if self.keep.is_zero() { 0 } else { self.max_bytes }
    }
}

/// How metrics are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prometheus {
    /// The address; `None`: metrics are not served.
    pub listen: Option<SocketAddr>,
    /// The most pairs of operation and mount with series of their own: 1 to 4096.
    pub max_series: usize,
}

/// How metrics and incidents are sent to an OpenTelemetry collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otlp {
    /// `http://host:port` or `https://`; with a path only for [`OtlpProtocol::Http`].
    pub endpoint: Uri,
    /// The protocol.
    pub protocol: OtlpProtocol,
    /// The time between two sends of metrics: 1 s to an hour.
    pub interval: Duration,
    /// The time limit of a request: 0.1 to 60 s.
    pub timeout: Duration,
    /// Sent with every request.
    pub headers: HeaderMap,
    /// The most bytes that wait while the collector does not answer: 64 KiB to 64 MiB.
    pub buffer: usize,
}

/// The two protocols of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP/1.1.
    Http,
}

/// How incidents are posted to an address of the operator's.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookConfig {
    /// `http://` or `https://`.
    pub url: Uri,
    /// Sent with every request.
    pub headers: HeaderMap,
    /// The time limit of a request: 0.1 to 60 s.
    pub timeout: Duration,
}

impl WebhookConfig {
    /// The address without its secret parts: many services keep a secret in the path or after it.
    pub fn shown(&self) -> String {
        let url = &self.url;
        let rest = if url.path() == "/" && url.query().is_none() { "" } else { "/..." };
        format!("{}://{}{rest}", url.scheme_str().unwrap_or("http"), url.authority().map_or("", |at| at.as_str()))
    }
}

/// How incidents become Events of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KubernetesEventsConfig {
    /// The time limit of a request: 0.1 to 60 s.
    pub timeout: Duration,
}

impl fmt::Debug for WebhookConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, headers, timeout } = self;
        let mut shown = formatter.debug_struct("Webhook");
        shown.field("url", &self.shown()).field("headers", headers).field("timeout", timeout).finish()
    }
}

/// The names that a configuration may use.
#[derive(Debug, Clone, Copy)]
pub struct KnownNames<'a> {
    /// The protocols of the probes.
    pub protocols: &'a [&'static Protocol],
    /// Built-in actions.
    pub actions: &'a [&'a str],
}

impl KnownNames<'static> {
    /// The names of this program.
    pub fn to_this_program() -> Self {
        static PROTOCOLS: LazyLock<Vec<&'static Protocol>> = LazyLock::new(|| probes::protocols().collect());
        static ACTIONS: LazyLock<Vec<&'static str>> =
            LazyLock::new(|| evidence::ACTIONS.iter().map(|action| action.name).collect());
        Self { protocols: &PROTOCOLS, actions: &ACTIONS }
    }
}

impl Config {
    /// The space that is subtracted from that for bundles: the files of captures by programs.
    pub fn reserved_by_captures(captures: &[CaptureConfig]) -> u64 {
        let disk = |capture: &CaptureConfig| match &capture.kind {
            CaptureKind::Command(command) => command.max_bytes,
            CaptureKind::Packets(_) | CaptureKind::Tracepoints(_) => 0,
        };
        captures.iter().map(disk).sum()
    }

    /// The captures among these names, and how long each continues.
    pub fn captures_of<'c>(
        &'c self,
        names: &'c [ConfiguredAction],
    ) -> impl Iterator<Item = (&'c CaptureConfig, Duration)> {
        names.iter().filter_map(|spec| {
            let capture = self.captures.iter().find(|capture| capture.name == spec.name)?;
            Some((capture, spec.after.unwrap_or(capture.after)))
        })
    }

    /// The actions of these names for the collector, without captures.
    pub fn resolve(&self, names: &[ConfiguredAction]) -> Vec<evidence::ActionSpec> {
        let built_in = |name: &str| evidence::ACTIONS.iter().any(|action| action.name == name);
        let resolve = |spec: &ConfiguredAction| {
            if let Some(custom) = self.custom_actions.iter().find(|custom| custom.name == spec.name) {
                let limits = Some((custom.timeout, custom.max_bytes));
                let (name, args) = (spec.name.clone(), custom.command.clone());
                return Some(evidence::ActionSpec { name, args, limits, memory: custom.max_memory });
            }
            let spec = evidence::ActionSpec { name: spec.name.clone(), args: vec![], limits: None, memory: 0 };
            built_in(&spec.name).then_some(spec)
        };
        names.iter().filter_map(resolve).collect()
    }
}
