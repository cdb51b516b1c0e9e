//! Reads the server's data of the requests that it served, from a bundle or a recording.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::Path,
};

use anyhow::Result;
use diagnose::ends::{ServedRequest, ServerEnd};
use model::{Detail, Event, EventLine, Level, text::printable};

use super::{
    client::{losses_of, name},
    lines::{BYTES, Open, each_line, explained, nanos, opened, wall},
    report::EndAbout,
};
use crate::{
    cli::is_recording,
    recording::{RecordingItem, RecordingReader},
    view::clock::Clock,
};

/// The most requests that are read, which take about a hundred megabytes.
const MOST: usize = 1_000_000;
/// Two lines with the same numbers are one request if their starts differ by at most this, nanoseconds: its event and its flight record.
const SAME: u64 = 2_000_000;

/// Reads a bundle or a recording.
///
/// # Errors
///
/// When the file is neither, or is damaged.
pub fn read(path: &Path) -> Result<(EndAbout, ServerEnd)> {
    if path.is_dir() || is_recording(path) { of_recording(path) } else { of_bundle(path) }
}

/// The requests without duplicates.
#[derive(Default)]
struct Requests {
    all: Vec<ServedRequest>,
    /// When the last request with these numbers of the client and the call began.
    known: HashMap<(u32, u32), i64>,
    left_out: bool,
}

impl Requests {
    fn add(&mut self, request: ServedRequest) {
        let key = (request.client, request.xid);
        match self.known.entry(key) {
            Entry::Occupied(mut known) if known.get().abs_diff(request.start) > SAME => {
                known.insert(request.start);
            }
            Entry::Occupied(_) => return,
            Entry::Vacant(place) => {
                place.insert(request.start);
            }
        }
        if self.all.len() < MOST {
            self.all.push(request);
        } else {
            self.left_out = true;
        }
    }
}

fn of_bundle(path: &Path) -> Result<(EndAbout, ServerEnd)> {
    let read = of_bundles(&[&|| opened(path)], BYTES);
    let (incident, end) = read.map_err(|error| explained(path, error))?;
    Ok((EndAbout { file: path.display().to_string(), incident }, end))
}

/// Reads several bundles of one server, each with at most `most` bytes when unpacked. Returns the id of the last incident, and the server's data.
///
/// # Errors
///
/// When one of them is not a bundle, or is damaged, cut off or larger.
pub fn of_bundles(bundles: &[Open<'_>], most: u64) -> Result<(String, ServerEnd)> {
    let protocol = probes::at(Level::Served).next().map_or("", |protocol| protocol.name);
    let (mut requests, mut last) = (Requests::default(), String::new());
    let mut end = ServerEnd::default();
    for open in bundles {
        let read = each_line(*open, most, |line, _| {
            if line.probe == protocol {
                served(&line).into_iter().for_each(|request| requests.add(request));
            }
        })?;
        let incident = read.incident;
        end.host = name(&incident.host);
        end.version = printable(incident.host.plumbline.as_bytes());
        end.incomplete |= read.unreadable > 0 || losses_of(&incident, protocol).runs_missed > 0;
        last = printable(incident.id.as_bytes());
    }
    end.incomplete |= requests.left_out;
    end.requests = requests.all;
    Ok((last, end))
}

fn served(line: &EventLine<'_>) -> Option<ServedRequest> {
    Some(ServedRequest {
        client: u32::try_from(line.connection).ok()?,
        xid: u32::try_from(line.xid?).ok()?,
        operation: line.operation.clone().into_owned(),
        start: wall(&line.time)?,
        waited: nanos(line.queue_ms),
        executed: nanos(line.wire_ms),
        sent: nanos(line.deliver_ms),
    })
}

fn of_recording(path: &Path) -> Result<(EndAbout, ServerEnd)> {
    let mut reader = RecordingReader::open(path)?;
    let mut end = ServerEnd::default();
    let mut requests = Requests::default();
    while let Some(item) = reader.next()? {
        match item {
            RecordingItem::Run(header) => {
                end.host = printable(header.host.as_bytes());
                end.version = printable(header.plumbline.as_bytes());
            }
            RecordingItem::Interval(interval) => {
                let clock = Clock::from_boot(interval.facts.boot);
                end.incomplete |= interval.facts.records_lost > 0 || interval.facts.intervals_lost > 0;
                let events = interval.slices.iter().flat_map(probes::operations_of);
                for event in events.filter(|event| event.operation.level() == Level::Served) {
                    requests.add(recorded(&event, clock));
                }
            }
        }
    }
    reader.notes().iter().for_each(|note| eprintln!("plumbline: {note}"));
    end.incomplete |= reader.damaged() || requests.left_out;
    end.requests = requests.all;
    Ok((EndAbout { file: path.display().to_string(), incident: String::new() }, end))
}

fn recorded(event: &Event, clock: Clock) -> ServedRequest {
    let xid = if let Detail::Served(served) = event.detail { served.xid } else { 0 };
    ServedRequest {
        client: u32::try_from(event.connection).unwrap_or(0),
        xid,
        operation: event.operation.name().to_owned(),
        start: i64::try_from(clock.wall(event.start).as_nanosecond()).unwrap_or(0),
        waited: event.phases.queue,
        executed: event.phases.wire,
        sent: event.phases.deliver,
    }
}
