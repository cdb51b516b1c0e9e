//! What the page takes from each file of a bundle, while it is written or read.

use std::{
    collections::HashSet,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
};

use model::{EventLine, Incident, Level, SNAPSHOT};

use super::{
    Names,
    connections::Connections,
    distribution::Distributions,
    evidence::Evidence,
    html,
    lines::{Lines, Seen},
    normal::Normal,
    points::{Point, Points, Shade},
    redact, units,
};

/// Slow operations in the table.
const SLOWEST: usize = 12;
/// Slow operations that are known again in `recorder.jsonl`.
const KNOWN: usize = 4_096;
/// Places (probe, mount) that operations are shown of.
const PLACES: usize = 64;
/// Happenings to connections that are shown: as many as the daemon keeps events.
const HAPPENINGS: usize = 1_024;

/// The slow operations of a bundle. It must come before the files with all operations, which are told apart by it.
pub const EVENTS: &str = "events.jsonl";
/// Files with all operations: of the seconds before, and of the time after.
const OPERATIONS: [&str; 2] = ["recorder.jsonl", "after.jsonl"];
/// The page itself.
pub const PAGE: &str = "report.html";

/// What a page is made of.
#[derive(Default)]
pub struct Material {
    pub(super) incident: Incident,
    pub(super) points: Points,
    pub(super) distributions: Distributions,
    pub(super) normal: Normal,
    pub(super) connections: Connections,
    /// The slowest of `events.jsonl`, the slowest first.
    pub(super) slowest: Vec<EventLine<'static>>,
    /// What happened to connections: when, microseconds since 1970, and what.
    pub(super) happenings: Vec<(i64, String)>,
    pub(super) evidence: Evidence,
    /// Lines that could not be read.
    pub(super) unreadable: u64,
    /// Operations of other mounts or probes.
    pub(super) elsewhere: u64,
    /// The incident's first and last moment, microseconds since 1970.
    pub(super) window: Option<(i64, i64)>,
    known: HashSet<u64>,
    hashes: RandomState,
    places: Vec<Place>,
}

/// Where operations of the incident went.
#[derive(PartialEq)]
struct Place {
    probe: String,
    mountpoint: String,
    source: String,
    server: String,
}

impl Material {
    /// Of an incident; the files of its bundle are still to come.
    pub fn new(incident: Incident) -> Self {
        let window = units::micros(&incident.window.from).zip(units::micros(&incident.window.to));
        let places = incident.top.mounts.iter().take(PLACES).map(|ranked| Place {
            probe: incident.anomaly.probe.clone().into_owned(),
            mountpoint: ranked.mount.mountpoint.clone(),
            source: ranked.mount.source.clone(),
            server: ranked.mount.server.clone(),
        });
        Self {
            places: places.collect(),
            normal: Normal::of(&incident),
            incident,
            points: Points::default(),
            distributions: Distributions::default(),
            connections: Connections::default(),
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

    /// Takes a file of the bundle, whose content is to be written to what this returns.
    pub fn file(&mut self, name: &str, bytes: u64) -> Reading<'_> {
        let part = match name {
            EVENTS => Part::Events(Lines::default()),
            name if OPERATIONS.contains(&name) => Part::Operations(Lines::default()),
            PAGE => return Reading { material: self, part: Part::Passed },
            _ => Part::Other,
        };
        self.evidence.begin(name, bytes);
        Reading { material: self, part }
    }

    /// The page.
    pub fn page(mut self, names: Names) -> String {
        if names == Names::Redacted {
            redact::redact(&mut self);
        }
        html::page(&mut self, names)
    }

    fn event(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<EventLine<'static>>(line) else {
            self.unreadable += 1;
            return;
        };
        let seen = Seen::from(&line);
        let place = Place {
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
        // What happens to a connection at one moment has no duration.
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
        match serde_json::from_slice::<Seen<'_>>(line) {
            Err(_) => self.unreadable += 1,
            Ok(seen) if self.is_known(&seen) => (),
            Ok(seen) if !self.is_here(&seen) => self.elsewhere += 1,
            Ok(seen) => self.add(&seen, Shade::Fast),
        }
    }

    /// Whether `events.jsonl` has the operation, too. The recorder rounds, so that times may differ by a microsecond or two.
    fn is_known(&self, seen: &Seen<'_>) -> bool {
        let Some(at) = units::micros(&seen.time) else { return false };
        (-2..=2).any(|off| self.known.contains(&self.identity(at.saturating_add(off), seen)))
    }

    /// A hash of what tells an operation from others.
    fn identity(&self, at: i64, seen: &Seen<'_>) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write_i64(at);
        hasher.write_u32(seen.tid);
        hasher.write(seen.operation.as_bytes());
        hasher.finish()
    }

    /// Whether an operation went where the incident's did. Of a connection's incident, all that went to its server.
    fn is_here(&self, seen: &Seen<'_>) -> bool {
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

    fn add(&mut self, seen: &Seen<'_>, shade: Shade) {
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
        self.points.add(Point { at, took, shade, failed: seen.failed || seen.in_flight });
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

/// Whether a probe sees what happens to connections, and no operations.
fn is_connection(probe: &str) -> bool {
    probes::protocol(probe).is_some_and(|known| known.level == Level::Connection)
}

enum Part {
    Events(Lines),
    Operations(Lines),
    Other,
    Passed,
}

/// A file of the bundle that is being taken. Writing to it never fails.
pub struct Reading<'a> {
    material: &'a mut Material,
    part: Part,
}

impl Write for Reading<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let material = &mut *self.material;
        match &mut self.part {
            Part::Events(lines) => lines.take(bytes, &mut |line| material.event(line)),
            Part::Operations(lines) => lines.take(bytes, &mut |line| material.operation(line)),
            Part::Other => material.evidence.take(bytes),
            Part::Passed => (),
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
            Part::Events(lines) => lines.finish(&mut |line| material.event(line)),
            Part::Operations(lines) => lines.finish(&mut |line| material.operation(line)),
            Part::Other => material.evidence.end(),
            Part::Passed => (),
        }
    }
}
