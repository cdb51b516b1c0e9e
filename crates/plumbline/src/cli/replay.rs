//! `plumbline replay`: runs detection and verdicts over a recording, as fast as it can be read.

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use diagnose::long_term::LongTerm;
use jiff::Timestamp;
use model::{Incident, Nanos};

use super::{EXIT_USAGE, kind::FileFormat, usage_error};
use crate::{
    config::{self, Config},
    daemon::{excerpt, excerpt_after},
    detection::{self, ActiveRules, ChangeExt, Detection, Excerpts, IncidentReport, Reporter},
    evidence::{Attachment, BundleOutcome, BundleRequest, Collector, IncidentId, IncidentScope, Settings},
    recording::RecordingReader,
    source::{EventSource, RecordedSource, ReplayStep, WantedOperations},
    view::{
        clock::nanos,
        table::{Table, TableColumn, Wide},
    },
};

#[derive(clap::Args)]
pub struct ReplayArguments {
    /// A file of `plumbline record`, or a directory of the daemon's recorder
    recording: PathBuf,
    /// The configuration whose rules judge the recording [default: /etc/plumbline/plumbline.yaml where it exists, else the compiled-in configuration]
    #[arg(long, value_name = "F")]
    config: Option<PathBuf>,
    /// Judge only what happened at this time or later: seconds since the recording's start, or a time such as 2026-03-01T12:00:00Z
    #[arg(long, value_name = "T")]
    from: Option<String>,
    /// Judge only what happened until this time, given as for --from
    #[arg(long, value_name = "T")]
    to: Option<String>,
    /// The host's normals: a daemon's normals.json, or another recording of the host, from which `replay` learns them first
    #[arg(long, value_name = "F")]
    normals: Option<PathBuf>,
    /// Write a bundle of each incident below this directory
    #[arg(long, value_name = "DIR")]
    bundles: Option<PathBuf>,
    /// One JSON array of the incidents, each as its incident.json has it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: Wide,
}

/// The longest time to write the remaining bundles at the end.
const WRITE_LIMIT: Duration = Duration::from_secs(60);

pub fn run(arguments: &ReplayArguments) -> Result<ExitCode> {
    let [from, to] = [&arguments.from, &arguments.to].map(|text| text.as_deref().map(Moment::parse));
    let (Ok(from), Ok(to)) = (from.transpose(), to.transpose()) else {
        return Ok(usage_error("--from and --to take seconds, such as 30, or a time such as 2026-03-01T12:00:00Z"));
    };
    let config = match config::read(arguments.config.clone().or_else(config::installed).as_deref(), &[]) {
        Ok(config) => config,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{error}"));
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    probes::own::enter(&config.operations).map_err(anyhow::Error::msg)?;
    let began = Instant::now();
    let explain = |error| FileFormat::explain(&arguments.recording, FileFormat::Recording, error);
    let reader = RecordingReader::open(&arguments.recording).map_err(explain)?;
    let mut source = RecordedSource::new(reader, wanted(&config));
    let mut long_term =
        arguments.normals.as_deref().map_or_else(|| Ok(LongTerm::default()), |path| normals(path, &config))?;
    let mut found = ReplayedIncidents::new(&config, arguments.bundles.as_deref())?;
    let span = judge(&mut source, &config, (from, to), &mut long_term, &mut found)?;
    let incidents = found.finish()?;
    source.reader().notes().iter().for_each(|note| eprintln!("plumbline: {note}"));
    if arguments.json {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, &incidents)?;
        writeln!(out)?;
    } else {
        print(&incidents, arguments.wide.room())?;
    }
    if std::io::stderr().is_terminal() || !arguments.json {
        let (operations, records_lost, intervals_lost) = source.totals();
        let took = began.elapsed().as_secs_f64();
        eprintln!("plumbline: {operations} operations of {span:.1} s on {}, judged in {took:.3} s", source.host().name);
        for (what, lost) in [
            ("operations were overwritten before they were recorded", records_lost),
            ("intervals are missing, since the disk was too slow", intervals_lost),
        ] {
            if lost > 0 {
                eprintln!("plumbline: {lost} {what}");
            }
        }
    }
    Ok(if source.reader().damaged() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The normals from a daemon's file, or learned from another recording.
fn normals(path: &Path, config: &Config) -> Result<LongTerm> {
    if path.extension().is_some_and(|extension| extension == "json") {
        if !path.exists() {
            bail!("there is no {}", path.display());
        }
        return detection::kept::load(path);
    }
    let mut source = RecordedSource::new(RecordingReader::open(path)?, wanted(config));
    let mut long_term = LongTerm::default();
    judge(&mut source, config, (None, None), &mut long_term, &mut ReplayedIncidents::new(config, None)?)?;
    Ok(long_term)
}

/// Judges a recording by the compiled-in rules, up to the first damage; for the fuzz target.
pub fn judge_bytes(bytes: Vec<u8>) {
    let (Ok(config), Ok(reader)) = (Config::compiled_in(), RecordingReader::of_bytes(bytes)) else { return };
    let mut source = RecordedSource::new(reader, wanted(&config));
    let Ok(mut found) = ReplayedIncidents::new(&config, None) else { return };
    // Damaged recordings are expected here.
    let _ = judge(&mut source, &config, (None, None), &mut LongTerm::default(), &mut found);
}

/// The incidents of a recording with this file of rules.
#[cfg(test)]
pub fn incidents_of_recording(recording: &Path, rules: &Path) -> Result<Vec<Incident>> {
    let config = config::read(Some(rules), &[]).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    let mut source = RecordedSource::new(RecordingReader::open(recording)?, wanted(&config));
    let mut found = ReplayedIncidents::new(&config, None)?;
    judge(&mut source, &config, (None, None), &mut LongTerm::default(), &mut found)?;
    found.finish()
}

/// The operations that the rules need.
fn wanted(config: &Config) -> WantedOperations {
    let rules = ActiveRules::new(config, 0);
    let thresholds = rules.kernel_thresholds().into_iter().map(|(operation, limit)| (operation, nanos(limit)));
    WantedOperations { thresholds: thresholds.collect(), failures: rules.failures() }
}

/// A point in time of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    /// Seconds since the recording's start.
    Since(f64),
    /// A time of the wall clock.
    At(Timestamp),
}

impl Moment {
    fn parse(text: &str) -> Result<Self> {
        match text.parse::<f64>() {
            Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(Self::Since(seconds)),
            Ok(_) => bail!("it is no time"),
            Err(_) => Ok(Self::At(text.parse()?)),
        }
    }

    fn nanos(self, source: &RecordedSource, start: Nanos) -> Nanos {
        match self {
            Self::Since(seconds) => start.saturating_add((seconds * 1e9) as u64),
            Self::At(time) => {
                let since_boot = time.as_nanosecond() - i128::from(source.clock().boot());
                u64::try_from(since_boot.max(0)).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Runs detection over a recording. Returns how many seconds it covers.
fn judge(
    source: &mut RecordedSource,
    config: &Config,
    (from, to): (Option<Moment>, Option<Moment>),
    long_term: &mut LongTerm,
    found: &mut ReplayedIncidents<'_>,
) -> Result<f64> {
    let mut detection: Option<Detection> = None;
    let (mut start, mut seconds) = (None, 0.0);
    // A window has the number of the recorder's intervals that is nearest to the rules' own window, since the recorder's timer was not exact.
    let (mut each, mut passed) = (1, 0);
    loop {
        match source.advance()? {
            ReplayStep::End => break,
            ReplayStep::Run => {
                if let Some(mut over) = detection.take() {
                    over.finish(source, found);
                    *long_term = over.into_long_term();
                }
                let ratio = config.watch_interval.as_secs_f64() * 1e3 / source.header().interval_ms.max(1.0);
                (start, each, passed) = (None, (ratio.round() as u64).max(1), 0);
            }
            ReplayStep::Interval => {
                let now = source.now();
                let start = *start.get_or_insert_with(|| source.interval_start().max(1));
                seconds = now.saturating_sub(start) as f64 / 1e9;
                if to.is_some_and(|to| now > to.nanos(source, start)) {
                    break;
                }
                if from.is_some_and(|from| now < from.nanos(source, start)) {
                    continue;
                }
                let detection = detection
                    .get_or_insert_with(|| Detection::new(config, source.interval_start(), std::mem::take(long_term)));
                detection.drain(source);
                passed += 1;
                if source.ends_detection() {
                    detection.finish(source, found);
                } else if passed % each == 0 {
                    detection.interval(source, found);
                }
            }
        }
    }
    if let Some(mut over) = detection {
        over.finish(source, found);
        *long_term = over.into_long_term();
    }
    Ok(seconds)
}

/// The incidents of a replay and their bundles.
struct ReplayedIncidents<'a> {
    config: &'a Config,
    sequence: u64,
    incidents: BTreeMap<IncidentId, Incident>,
    collector: Option<Collector>,
    /// The operations before each open incident, for its bundle.
    before: BTreeMap<IncidentId, Option<probes::Recorder>>,
    failed: Option<String>,
}

impl<'a> ReplayedIncidents<'a> {
    fn new(config: &'a Config, bundles: Option<&Path>) -> Result<Self> {
        let start = |path: &Path| {
            let output_dir = std::path::absolute(path)?;
            Collector::start(Settings {
                output_dir,
                max_bytes: u64::MAX,
                max_age: Duration::MAX,
                ..Settings::default()
            })
            .with_context(|| format!("cannot write bundles to {}", path.display()))
        };
        let collector = bundles.map(start).transpose()?;
        Ok(Self { config, sequence: 0, incidents: BTreeMap::new(), collector, before: BTreeMap::new(), failed: None })
    }

    fn bundle(&mut self, source: &dyn EventSource, id: &IncidentId, report: IncidentReport<'_>) {
        let IncidentReport { change, reported_until, described, events, recorder, children, .. } = report;
        let Some(collector) = &self.collector else { return };
        let before = self.before.entry(id.clone());
        before.or_insert_with(|| excerpt(self.config, &recorder, change.episode().window.from));
        if !change.closed() {
            return;
        }
        let attachments: Vec<Attachment> = detection::attachments(
            source,
            (events, children),
            Excerpts {
                before: self.before.remove(id).flatten(),
                after: excerpt_after(self.config, &recorder, reported_until),
            },
        );
        let request = BundleRequest {
            id: id.clone(),
            incident: described,
            attachments,
            actions: vec![],
            cuts: vec![],
            scope: IncidentScope::default(),
        };
        match collector.submit(request) {
            Ok(()) => self.wait_for_bundles(),
            Err(refused) => {
                self.failed.get_or_insert(refused.to_string());
            }
        }
    }

    /// Waits until each bundle is written before the next is made, so that the collector refuses none.
    fn wait_for_bundles(&mut self) {
        let Some(collector) = &self.collector else { return };
        let until = Instant::now() + WRITE_LIMIT;
        while Instant::now() < until {
            let done = collector.completions();
            for done in &done {
                if let BundleOutcome::Lost { message, .. } = &done.outcome {
                    self.failed.get_or_insert(message.clone());
                }
            }
            if !done.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn finish(self) -> Result<Vec<Incident>> {
        if let Some(error) = self.failed {
            bail!("not all bundles were written: {error}");
        }
        Ok(self.incidents.into_values().collect())
    }
}

impl Reporter for ReplayedIncidents<'_> {
    fn next_id(&mut self, detected: Timestamp, protocol: &str, kind: &str) -> IncidentId {
        self.sequence += 1;
        IncidentId::new(detected, protocol, kind, self.sequence)
    }

    fn report(&mut self, source: &dyn EventSource, _: &ActiveRules, report: IncidentReport<'_>) -> bool {
        let id = report.id.clone();
        self.incidents.insert(id.clone(), report.described.clone());
        self.bundle(source, &id, report);
        true
    }
}

fn print(incidents: &[Incident], room: Option<usize>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if incidents.is_empty() {
        writeln!(out, "nothing would have been reported")?;
        return Ok(());
    }
    let columns = [
        TableColumn::text("FIRST SEEN (UTC)", 19),
        TableColumn::text("ANOMALY", 18).cut_to(12),
        TableColumn::text("LAYER", 8),
        TableColumn::number("CONF", 4),
        TableColumn::rest("MOUNT", 12),
    ];
    let table = Table::new(&columns, room);
    let why = Table::new(&[TableColumn::text("", 19), TableColumn::rest("", 20).wrapped()], room);
    table.header(&mut out)?;
    for incident in incidents {
        let Incident { anomaly, verdict, .. } = incident;
        let first_seen = incident.first_seen.get(..19).unwrap_or("-").replace('T', " ");
        let confidence = format!("{:.2}", verdict.confidence);
        let mount = incident.mount().map_or("-", |mount| mount.label());
        table.row(&mut out, &[&first_seen, &anomaly.name, verdict.layer.name(), &confidence, mount])?;
        let observed = format!("{}.", anomaly.observed);
        for sentence in [&observed].into_iter().chain(&verdict.because) {
            why.row(&mut out, &["", sentence])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recording::{self, FinishedFacts, IntervalFacts, MountFacts, RecordedEvent};

    /// Times and amounts at the edges of what they can be, and in between.
    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Just(1), Just(u64::MAX), 0_u64..10_000_000_000, any::<u64>()]
    }

    prop_compose! {
        fn any_event()(
            operation in prop::sample::select(vec!["smb:SMB2_WRITE", "nfs:READ", "syscalls:write", "connections:RECONNECT", "no:such"]),
            (start, duration, bytes, mount) in (any_number(), any_number(), any_number(), 0_u64..3),
            (queue, wire, deliver) in (any_number(), any_number(), any_number()),
            (in_flight, failed) in (any::<bool>(), any::<bool>()),
            weight: u32,
        ) -> RecordedEvent {
            let (phases, flags) = (model::Phases { queue, wire, deliver }, model::Flags { in_flight, failed, ..Default::default() });
            let operation = operation.to_owned();
            RecordedEvent { operation, start, duration, bytes, mount: model::MountKey(mount), phases, flags, weight, ..Default::default() }
        }
    }

    prop_compose! {
        fn any_facts()(
            (began, at, boot) in (any_number(), any_number(), any::<i64>()),
            events in prop::collection::vec(any_event(), 0..20),
            in_flight in prop::collection::vec(any_event(), 0..5),
            (count, sum, bytes, index) in (any_number(), any_number(), any_number(), 0_usize..200),
            mountpoint: String,
        ) -> IntervalFacts {
            let operation = "smb:SMB2_WRITE".to_owned();
            let latencies = vec![(index, count)];
            let finished = vec![FinishedFacts { operation, count, sum, bytes, latencies, ..Default::default() }];
            let mount = model::Mount { mountpoint, ..Default::default() };
            let mounts = vec![MountFacts { key: model::MountKey(1), mount, ..Default::default() }];
            IntervalFacts { began, at, boot, events, in_flight, finished, mounts, ..Default::default() }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_recording_breaks_detection_whatever_it_claims(all in prop::collection::vec(any_facts(), 1..12)) {
            judge_bytes(recording::of_facts(all));
        }
    }

    #[test]
    fn a_moment_is_seconds_or_a_time() {
        assert_eq!(Moment::parse("30").unwrap(), Moment::Since(30.0));
        assert_eq!(Moment::parse("2026-03-01T12:00:00Z").unwrap(), Moment::At("2026-03-01T12:00:00Z".parse().unwrap()));
        for wrong in ["-1", "nan", "noon", ""] {
            assert!(Moment::parse(wrong).is_err(), "{wrong}");
        }
    }
}
