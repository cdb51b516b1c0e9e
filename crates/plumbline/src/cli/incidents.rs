//! `plumbline incidents`: what happened, newest first.

use std::{io::Write, process::ExitCode};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use model::IncidentState;

use super::folder;
use crate::{
    evidence::read_incident,
    view::{
        incident::IncidentRow,
        table::{Table, TableColumn, Wide},
    },
};

#[derive(clap::Args)]
pub struct IncidentsArguments {
    #[command(flatten)]
    folder: folder::FolderArguments,
    /// Only incidents whose last slow or failed operation was seen at this time or later: a time such as 2026-11-24T08:00:00Z, or how long ago, such as 90m, 12h or 7d
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

pub fn run(arguments: &IncidentsArguments) -> Result<ExitCode> {
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
            incidents.push(IncidentRow::new(incident, stored.id.as_str(), stored.bytes, path.display().to_string()));
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

impl IncidentsArguments {
    /// A bundle that cannot be read is listed, since it may be one of the wanted ones.
    fn is_wanted(&self, row: &IncidentRow) -> bool {
        let last = row.last_seen.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
        let is_recent = self.since.is_none_or(|since| last.is_none_or(|last| last >= since));
        let is_on = |mount: &String| row.mountpoint.as_ref().map_or(row.error.is_some(), |at| at == mount);
        is_recent && self.mount.as_ref().is_none_or(is_on)
    }
}

/// A point in time, given as a time or as how long ago it was.
pub(super) fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = text.parse::<SignedDuration>().ok().or_else(|| days(text));
    ago.filter(|ago| !ago.is_negative())
        .and_then(|ago| Timestamp::now().checked_sub(ago).ok())
        .ok_or_else(|| "neither a time such as 2026-11-24T08:00:00Z, nor how long ago, such as 90m, 12h or 7d".into())
}

/// Parses days, which `SignedDuration` does not know, since calendar days differ in length.
fn days(text: &str) -> Option<SignedDuration> {
    let days = text.strip_suffix('d')?.parse::<u32>().ok()?;
    Some(SignedDuration::from_hours(24 * i64::from(days)))
}

fn print(out: &mut impl Write, incidents: &[IncidentRow], room: Option<usize>) -> Result<()> {
    let columns = [
        TableColumn::text("FIRST SEEN (UTC)", 19),
        TableColumn::text("LAST SEEN", 9).optional(1),
        TableColumn::number("LASTED", 7),
        TableColumn::text("STATE", 6),
        TableColumn::text("VERDICT", 31).cut_to(27),
        TableColumn::rest("MOUNT", 12),
    ];
    let table = Table::new(&columns, room);
    let told = Table::new(&[TableColumn::text("", 0), TableColumn::rest("", 20).wrapped()], room);
    table.header(out)?;
    for row in incidents {
        let time =
            |text: &Option<String>| text.as_deref().and_then(|text| text.get(..19)).unwrap_or("-").replace('T', " ");
        let (first, last) = (time(&row.first_seen), time(&row.last_seen));
        // The day is shown once only.
        let last = if last.get(..10) == first.get(..10) { last.get(11..).unwrap_or("-") } else { &last };
        let state = row.state.map_or("-", IncidentState::name);
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
}
