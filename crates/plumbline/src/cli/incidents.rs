//! `plumbline incidents`: what happened, newest first.

use std::{fs::File, io::Write, process::ExitCode};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use model::{Cause, Incident, Layer, SNAPSHOT, State};
use serde::Serialize;

use super::folder;
use crate::{
    config,
    evidence::read_entry,
    view::table::{Column, Table, Wide},
};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    folder: folder::Arguments,
    /// Only incidents that were still open then: a time such as 2026-11-24T08:00:00Z, or how long ago, such as 90m, 12h or 7d
    #[arg(long, value_name = "T", value_parser = since)]
    since: Option<Timestamp>,
    /// Only incidents of the mount at this mount point
    #[arg(long, value_name = "M")]
    mount: Option<String>,
    /// One JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: Wide,
}

/// An `incident.json` is a few kilobytes.
pub const MAX_INCIDENT: u64 = 1 << 20;

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = match arguments.folder.find()? {
        Ok(folder) => folder,
        Err(code) => return Ok(code),
    };
    let mut incidents = Vec::new();
    if let Some(store) = &folder.store {
        for stored in store.list().with_context(|| format!("cannot read {}", folder.path.display()))? {
            let bundle = store.open_bundle(&stored.id).map_err(anyhow::Error::from);
            let incident = bundle.and_then(read_incident);
            let path = store.path_of(&stored.id);
            incidents.push(Row::new(incident, stored.id.as_str(), stored.bytes, path.display().to_string()));
        }
    }
    let all = incidents.len();
    incidents.retain(|row| arguments.is_wanted(row));
    let mut out = std::io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &incidents)?;
        writeln!(out)?;
    } else if incidents.is_empty() {
        let such = if all > 0 { "such " } else { "" };
        writeln!(out, "no {such}incidents in {}", folder.path.display())?;
    } else {
        print(&mut out, &incidents, arguments.wide.room())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// A bundle that cannot be read might be one of those asked for.
    fn is_wanted(&self, row: &Row) -> bool {
        let last = row.last_seen.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
        let is_recent = self.since.is_none_or(|since| last.is_none_or(|last| last >= since));
        is_recent && self.mount.as_ref().is_none_or(|mount| row.mountpoint.as_ref().is_none_or(|at| at == mount))
    }
}

/// A time, or how long ago.
fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = text.parse::<SignedDuration>().ok().or_else(|| days(text));
    ago.filter(|ago| !ago.is_negative())
        .and_then(|ago| Timestamp::now().checked_sub(ago).ok())
        .ok_or_else(|| "neither a time such as 2026-11-24T08:00:00Z, nor how long ago, such as 90m, 12h or 7d".into())
}

/// `SignedDuration` has no days, which a calendar may make longer or shorter.
fn days(text: &str) -> Option<SignedDuration> {
    let days = text.strip_suffix('d')?.parse::<u32>().ok()?;
    Some(SignedDuration::from_hours(24 * i64::from(days)))
}

fn print(out: &mut impl Write, incidents: &[Row], room: Option<usize>) -> Result<()> {
    let columns = [
        Column::text("FIRST SEEN (UTC)", 19),
        Column::text("LAST SEEN", 9).optional(1),
        Column::number("LASTED", 7),
        Column::text("STATE", 6),
        Column::text("VERDICT", 31).cut_to(27),
        Column::rest("MOUNT", 12),
    ];
    let table = Table::new(&columns, room);
    let told = Table::new(&[Column::text("", 0), Column::rest("", 20).wrapped()], room);
    table.header(out)?;
    for row in incidents {
        let time =
            |text: &Option<String>| text.as_deref().and_then(|text| text.get(..19)).unwrap_or("-").replace('T', " ");
        let (first, last) = (time(&row.first_seen), time(&row.last_seen));
        // The day is there once.
        let last = if last.get(..10) == first.get(..10) { last.get(11..).unwrap_or("-") } else { &last };
        let state = row.state.map_or("-", State::name);
        table.row(
            out,
            &[&first, last, &row.lasted(), state, &row.verdict(), row.mountpoint.as_deref().unwrap_or("-")],
        )?;
        let what = match (&row.error, &row.name, &row.observed) {
            (Some(error), ..) => error.clone(),
            (None, Some(name), Some(observed)) => format!("{name}: {observed}"),
            _ => "-".into(),
        };
        told.row(out, &["", &format!("{}  {what}", row.id)])?;
    }
    writeln!(out, "\n`plumbline report ID -o page.html` makes a page of one; `latest` is the newest")?;
    Ok(())
}

/// The incident of a bundle.
pub fn read_incident(bundle: File) -> Result<Incident> {
    let bytes = read_entry(bundle, "incident.json", MAX_INCIDENT)?.context("it has no incident.json")?;
    let mut incident: Incident = serde_json::from_slice(&bytes).context("its incident.json cannot be read")?;
    incident.complete();
    Ok(incident)
}

/// One incident as a listing has it. A bundle that cannot be read is listed too, with the reason.
#[derive(Default, Serialize)]
struct Row {
    id: String,
    detected: Option<String>,
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    probe: Option<String>,
    observed: Option<String>,
    layer: Option<Layer>,
    cause: Option<Cause>,
    confidence: Option<f64>,
    operations: Option<u64>,
    mountpoint: Option<String>,
    server: Option<String>,
    closed: Option<bool>,
    state: Option<State>,
    first_seen: Option<String>,
    last_seen: Option<String>,
    bytes: u64,
    path: String,
    error: Option<String>,
}

/// What another version calls a kind that this one does not have says nothing here.
fn known_kind(word: &str) -> &str {
    if config::is_kind(word) || word == SNAPSHOT { word } else { "unknown" }
}

impl Row {
    fn new(incident: Result<Incident>, id: &str, bytes: u64, path: String) -> Self {
        let row = Self { id: id.to_owned(), bytes, path, ..Self::default() };
        let incident = match incident {
            Ok(incident) => incident,
            Err(error) => return Self { error: Some(format!("{error:#}")), ..row },
        };
        let mount = incident.mount().cloned();
        let Incident { anomaly, verdict, .. } = incident;
        Self {
            detected: Some(incident.detected),
            name: Some(anomaly.name),
            kind: Some(known_kind(&anomaly.kind).to_owned()),
            probe: Some(anomaly.probe.into_owned()),
            observed: Some(anomaly.observed),
            layer: Some(verdict.layer),
            cause: verdict.cause,
            confidence: Some(verdict.confidence),
            operations: Some(incident.operations),
            mountpoint: mount.as_ref().map(|mount| mount.mountpoint.clone()),
            server: mount.map(|mount| mount.server),
            closed: Some(incident.closed),
            state: Some(incident.state),
            first_seen: Some(incident.first_seen),
            last_seen: Some(incident.last_seen),
            ..row
        }
    }

    /// From the first operation to the last window that broke the rule.
    fn lasted(&self) -> String {
        let time = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
        match (time(&self.first_seen), time(&self.last_seen)) {
            (Some(first), Some(last)) => span(last.duration_since(first)),
            _ => "-".into(),
        }
    }

    /// Layer, confidence and cause, such as `server 0.97 slow_operation`.
    fn verdict(&self) -> String {
        match (self.layer, self.confidence, self.cause) {
            (None, ..) => "-".into(),
            (Some(Layer::Unknown), ..) => Layer::Unknown.name().into(),
            (Some(layer), confidence, cause) => {
                let cause = cause.map_or("", Cause::name);
                format!("{} {:.2} {cause}", layer.name(), confidence.unwrap_or_default())
            }
        }
    }
}

/// Two units at most: `4.2 s`, `3m 10s`, `2h 05m`, `3d 04h`.
fn span(lasted: SignedDuration) -> String {
    let seconds = lasted.as_secs().max(0);
    let pair = |whole: i64, unit: &str, rest: i64, part: &str| format!("{whole}{unit} {rest:02}{part}");
    match seconds {
        0..60 => format!("{:.1} s", lasted.as_secs_f64().max(0.0)),
        60..3_600 => pair(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_time_is_a_time_or_how_long_ago() {
        assert_eq!(since("2026-11-24T08:00:00Z").unwrap().as_second(), 1_795_507_200);
        for (text, seconds) in [("90m", 5_400), ("12h", 43_200), ("7d", 604_800), ("1h30m", 5_400)] {
            let (earliest, at, latest) = (Timestamp::now(), since(text).unwrap(), Timestamp::now());
            let ago = SignedDuration::from_secs(seconds);
            assert!(earliest - ago <= at && at <= latest - ago, "{text} {at}");
        }
        for text in ["", "yesterday", "-3h", "7", "d"] {
            assert!(since(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_has_two_units_at_most() {
        let spans = [0.04, 4.25, 190.0, 7_500.0, 273_600.0].map(|seconds| span(SignedDuration::from_secs_f64(seconds)));
        assert_eq!(spans, ["0.0 s", "4.2 s", "3m 10s", "2h 05m", "3d 04h"]);
    }
}
