//! The report as text.

use std::io::{self, Write};

use diagnose::counted;

use super::{
    FleetReport,
    report::{AffectedHost, FleetEpisode},
};
use crate::view::table::{Table, TableColumn};

/// The most episodes that are listed by default.
const EPISODES: usize = 20;
/// The most hosts that are named in a line.
const NAMES: usize = 12;

/// Writes the report in lines of `room` characters. `all`: every episode.
pub fn print(out: &mut impl Write, report: &FleetReport, room: Option<usize>, all: bool) -> io::Result<()> {
    let FleetReport { hosts, servers, incidents, episodes, .. } = report;
    let span = match (&report.from, &report.to) {
        (Some(from), Some(to)) => format!(", {} to {} UTC", short(from), until(from, to)),
        _ => String::new(),
    };
    let [hosts, servers, incidents] =
        [(*hosts, "host"), (*servers, "server"), (*incidents, "incident")].map(|(count, of)| counted(count as u64, of));
    writeln!(out, "{hosts}, {servers}, {incidents}{span}")?;
    if episodes.is_empty() {
        return writeln!(out, "no host had an incident of a server");
    }
    let columns = [
        TableColumn::text("FROM (UTC)", 19),
        TableColumn::text("UNTIL", 8),
        TableColumn::number("HOSTS", 12).cut_to(9),
        TableColumn::text("VERDICT", 21),
        TableColumn::rest("SERVER", 10),
    ];
    let table = Table::new(&columns, room);
    let told = Table::new(&[TableColumn::text("", 0), TableColumn::rest("", 20).wrapped()], room);
    writeln!(out)?;
    table.header(out)?;
    let listed = if all { episodes.len() } else { EPISODES };
    for episode in episodes.iter().take(listed) {
        let hosts = format!("{} of {}", episode.affected.len(), episode.clients);
        let until = if episode.state == "open" { "open".into() } else { until(&episode.from, &episode.to) };
        let verdict = &episode.verdict;
        let cause = match verdict.cause {
            Some(cause) => format!("{cause} {:.2}", verdict.confidence),
            None => "unknown".into(),
        };
        table.row(out, &[&short(&episode.from), &until, &hosts, &cause, &episode.servers.join(",")])?;
        for sentence in sentences(episode) {
            told.row(out, &["", &sentence])?;
        }
    }
    if let Some(more) = episodes.len().checked_sub(listed).filter(|more| *more > 0) {
        let fewer = episodes.get(listed).map_or(0, |episode| episode.affected.len());
        let hosts = if fewer == 1 { "one host each".into() } else { format!("{fewer} hosts or fewer") };
        writeln!(out, "\nand {more} more, of {hosts}: --all lists them")?;
    }
    Ok(())
}

/// The time to the second.
fn short(time: &str) -> String {
    time.get(..19).unwrap_or(time).replace('T', " ")
}

/// A span with the day only once.
fn until(from: &str, to: &str) -> String {
    if from.get(..10) == to.get(..10) { to.get(11..19).unwrap_or(to).to_owned() } else { short(to) }
}

fn sentences(episode: &FleetEpisode) -> Vec<String> {
    let verdict = &episode.verdict;
    let mut all = Vec::new();
    if verdict.cause.is_some() {
        all.push(format!("It is {} ({:.0} % sure).", verdict.said, verdict.confidence * 100.0));
    }
    all.push(verdict.because.join(" "));
    let alternatives: Vec<_> = episode
        .verdict
        .alternatives
        .iter()
        .map(|other| format!("{} ({:.0} %)", other.said, other.confidence * 100.0))
        .collect();
    if episode.verdict.cause.is_some() && !alternatives.is_empty() {
        all.push(format!("Otherwise: {}.", alternatives.join(", or ")));
    }
    let affected: Vec<&str> = episode.affected.iter().map(|host| host.host.as_str()).collect();
    match episode.affected.as_slice() {
        [one] => all.push(format!("{}: {}", one.host, one.incidents.join(", "))),
        _ => all.push(format!("Affected: {}", names(&affected))),
    }
    for (what, hosts) in [("Not affected", &episode.unaffected), ("No records of", &episode.silent)] {
        if !hosts.is_empty() && episode.affected.len() > 1 {
            all.push(format!("{what}: {}", names(&hosts.iter().map(String::as_str).collect::<Vec<_>>())));
        }
    }
    all
}

fn names(all: &[&str]) -> String {
    let more = all.len().checked_sub(NAMES).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    format!("{}{more}", all.iter().take(NAMES).copied().collect::<Vec<_>>().join(", "))
}

/// The host's own verdict, such as `server 0.97 slow_server`.
pub fn own_verdict(host: &AffectedHost) -> String {
    match host.cause {
        Some(cause) => format!("{} {:.2} {}", host.layer.name(), host.confidence, cause.name()),
        None => host.layer.name().to_owned(),
    }
}
