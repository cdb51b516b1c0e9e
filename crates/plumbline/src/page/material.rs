//! Gathers the page's material from each file of a bundle while the file is written or read.

use std::{
    collections::HashSet,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
};

use model::{EventLine, Incident, Level, SNAPSHOT};

use super::{
    NamesShown,
    connections::SlowConnections,
    distribution::Distributions,
    evidence::Evidence,
    html,
    lines::{Lines, OperationFields},
    normal::NormalDurations,
    points::{PlotPoint, PlotPoints, Shade},
    redact, units,
};

/// The most slow operations in the table.
const SLOWEST: usize = 12;
/// The most slow operations that are recognized again in `recorder.jsonl`.
const KNOWN: usize = 4_096;
/// The most places (probe and mount) whose operations are shown.
const PLACES: usize = 64;
/// The most events of connections that are shown: as many as the daemon keeps.
const HAPPENINGS: usize = 1_024;

/// The file of slow operations. It must precede the files of all operations, in which the slow ones are recognized by
/// it.
pub const EVENTS: &str = "events.jsonl";
/// The files of all operations: of the seconds before the incident was noticed, and of the time after.
const OPERATIONS: [&str; 2] = ["recorder.jsonl", "after.jsonl"];
/// The page itself.
pub const PAGE: &str = "report.html";

/// The material of a page.
#[derive(Default)]
pub struct PageMaterial {
    pub(super) incident: Incident,
    pub(super) points: PlotPoints,
    pub(super) distributions: Distributions,
    pub(super) normal: NormalDurations,
    pub(super) connections: SlowConnections,
    /// The slowest operations of `events.jsonl`, slowest first.
    pub(super) slowest: Vec<EventLine<'static>>,
    /// The events of connections: their times, microseconds since 1970, and their names.
    pub(super) happenings: Vec<(i64, String)>,
    pub(super) evidence: Evidence,
    /// The number of lines that could not be read.
    pub(super) unreadable: u64,
    /// The number of operations of other mounts or probes.
    pub(super) elsewhere: u64,
    /// The incident's first and last moment, microseconds since 1970.
    pub(super) window: Option<(i64, i64)>,
    known: HashSet<u64>,
    hashes: RandomState,
    places: Vec<ProbeAndMount>,
}

/// A probe and a mount of the incident's operations.
#[derive(PartialEq)]
struct ProbeAndMount {
    probe: String,
    mountpoint: String,
    source: String,
    server: String,
}

impl PageMaterial {
    /// The material of an incident, before any file of its bundle.
    pub fn new(incident: Incident) -> Self {
        let window = units::micros(&incident.window.from).zip(units::micros(&incident.window.to));
        let places = incident.top.mounts.iter().take(PLACES).map(|ranked| ProbeAndMount {
            probe: incident.anomaly.probe.clone().into_owned(),
            mountpoint: ranked.mount.mountpoint.clone(),
            source: ranked.mount.source.clone(),
            server: ranked.mount.server.clone(),
        });
        Self {
            places: places.collect(),
            normal: NormalDurations::of(&incident),
            incident,
            points: PlotPoints::default(),
            distributions: Distributions::default(),
            connections: SlowConnections::default(),
            slowest: Vec::new(),
            happenings: Vec::new(),
            evidence: Evidence::default(),
            unreadable: 0,
            elsewhere: 0,
            window,
            known: HashSet::new(),
            hashes: RandomState::new(),
        }
    }

    /// Begins a file of the bundle. Write its content to the returned [`Reading`].
    pub fn file(&mut self, name: &str, bytes: u64) -> Reading<'_> {
        let part = match name {
            EVENTS => FileRole::Events(Lines::default()),
            name if OPERATIONS.contains(&name) => FileRole::Operations(Lines::default()),
            PAGE => return Reading { material: self, part: FileRole::Passed },
            _ => FileRole::Other,
        };
        self.evidence.begin(name, bytes);
        Reading { material: self, part }
    }

    /// Makes the page, as HTML.
    pub fn page(mut self, names: NamesShown) -> String {
        if names == NamesShown::Redacted {
            redact::redact(&mut self);
        }
        html::page(&mut self, names)
    }

    fn event(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<EventLine<'static>>(line) else {
            self.unreadable += 1;
            return;
        };
        let seen = OperationFields::from(&line);
        let place = ProbeAndMount {
            probe: seen.probe.as_ref().into(),
            mountpoint: seen.mountpoint.as_ref().into(),
            source: seen.source.as_ref().into(),
            server: seen.server.as_ref().into(),
        };
        if self.places.len() < PLACES && !self.places.contains(&place) {
            self.places.push(place);
        }
        if self.known.len() < KNOWN {
            self.known.extend(units::micros(&seen.time).map(|at| self.identity(at, &seen)));
        }
        self.add(&seen, Shade::of(&line));
        self.connections.add(&line);
        // An event of a connection without a duration is no slow operation.
        if is_connection(&line.probe) && line.duration_ms <= 0.0 {
            return;
        }
        let at = self.slowest.partition_point(|other| other.duration_ms >= line.duration_ms);
        if at < SLOWEST {
            self.slowest.insert(at, line);
            self.slowest.truncate(SLOWEST);
        }
    }

    fn operation(&mut self, line: &[u8]) {
        match serde_json::from_slice::<OperationFields<'_>>(line) {
            Err(_) => self.unreadable += 1,
            Ok(seen) if self.is_known(&seen) => (),
            Ok(seen) if !self.is_here(&seen) => self.elsewhere += 1,
            Ok(seen) => self.add(&seen, Shade::Fast),
        }
    }

    /// Whether `events.jsonl` has the operation, too. The recorder rounds times, so they may differ by up to 2
    /// microseconds.
    fn is_known(&self, seen: &OperationFields<'_>) -> bool {
        let Some(at) = units::micros(&seen.time) else { return false };
        (-2..=2).any(|off| self.known.contains(&self.identity(at.saturating_add(off), seen)))
    }

    /// A hash of start, thread and operation, by which an operation is recognized.
    fn identity(&self, at: i64, seen: &OperationFields<'_>) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write_i64(at);
        hasher.write_u32(seen.tid);
        hasher.write(seen.operation.as_bytes());
        hasher.finish()
    }

    /// Whether an operation has the probe and the mount of an operation of the incident. For an incident about
    /// connections, all remote operations with the same server count.
    fn is_here(&self, seen: &OperationFields<'_>) -> bool {
        let is_remote = |probe: &str| probes::protocol(probe).is_some_and(|known| known.level.is_remote());
        self.places.is_empty()
            || self.incident.anomaly.kind == SNAPSHOT
            || self.places.iter().any(|place| match is_connection(&place.probe) {
                true => place.server == seen.server && (is_connection(&seen.probe) || is_remote(&seen.probe)),
                false => {
                    place.probe == seen.probe && place.mountpoint == seen.mountpoint && place.source == seen.source
                }
            })
    }

    fn add(&mut self, seen: &OperationFields<'_>, shade: Shade) {
        let Some(at) = units::micros(&seen.time) else {
            self.unreadable += 1;
            return;
        };
        if is_connection(&seen.probe) {
            if self.happenings.len() < HAPPENINGS {
                self.happenings.push((at, seen.operation.as_ref().to_owned()));
            }
            return;
        }
        let took = seen.nanos();
        self.points.add(PlotPoint { at, took, shade, failed: seen.failed || seen.in_flight });
        let (from, to) = self.window.unwrap_or((i64::MAX, i64::MAX));
        let end = at.saturating_add(i64::try_from(took / 1_000).unwrap_or(i64::MAX));
        if shade != Shade::Fast || (end >= from && at <= to) {
            self.distributions.during.add(took, 0, false);
        } else if end < from {
            self.distributions.before.add(took, 0, false);
            self.normal.add(&seen.operation, took);
        }
    }
}

/// Whether a probe reports events of connections, not operations.
fn is_connection(probe: &str) -> bool {
    probes::protocol(probe).is_some_and(|known| known.level == Level::Connection)
}

enum FileRole {
    Events(Lines),
    Operations(Lines),
    Other,
    Passed,
}

/// A file of the bundle that is being read. Writing to it never fails.
pub struct Reading<'a> {
    material: &'a mut PageMaterial,
    part: FileRole,
}

impl Write for Reading<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let material = &mut *self.material;
        match &mut self.part {
            FileRole::Events(lines) => lines.take(bytes, &mut |line| material.event(line)),
            FileRole::Operations(lines) => lines.take(bytes, &mut |line| material.operation(line)),
            FileRole::Other => material.evidence.take(bytes),
            FileRole::Passed => (),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let material = &mut *self.material;
        match &mut self.part {
            FileRole::Events(lines) => lines.finish(&mut |line| material.event(line)),
            FileRole::Operations(lines) => lines.finish(&mut |line| material.operation(line)),
            FileRole::Other => material.evidence.end(),
            FileRole::Passed => (),
        }
    }
}
