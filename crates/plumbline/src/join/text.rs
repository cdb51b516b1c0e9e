//! The story as text.

use std::io::{self, Write};

use diagnose::{counted, span};

use super::report::{JoinReport, JoinRow, JoinTimes, JoinedEnd};
use crate::view::{
    event::ms,
    table::{Table, TableColumn},
};

/// Writes the report, in lines of so many characters.
pub fn print(out: &mut impl Write, report: &JoinReport, room: Option<usize>) -> io::Result<()> {
    let end = |end: &JoinedEnd| match end.incident.as_str() {
        "" => format!("{} (Plumbline {}), {}", end.host, end.plumbline, end.file),
        incident => format!("{} (Plumbline {}), incident {incident}", end.host, end.plumbline),
    };
    writeln!(out, "client   {}", end(&report.client))?;
    writeln!(out, "server   {}", end(&report.server))?;
    let offset = report.clock_offset_ms;
    let ahead = if offset < 0.0 { "behind" } else { "ahead" };
    writeln!(
        out,
        "found    {} of {} of the client's incident; the server's clock is {} {ahead}",
        report.found,
        counted(report.asked, "request"),
        span((offset.abs() * 1e6) as u64)
    )?;
    let verdict = &report.verdict;
    let proven = if verdict.proven { ", proven" } else { "" };
    let said = if verdict.said.is_empty() { String::new() } else { format!(": {}", verdict.said) };
    match verdict.layer {
        model::Layer::Unknown => writeln!(out, "verdict  unknown")?,
        layer => writeln!(out, "verdict  {}{proven} ({:.0} % sure){said}", layer.name(), verdict.confidence * 100.0)?,
    }
    let told = Table::new(&[TableColumn::text("", 7), TableColumn::rest("", 20).wrapped()], room);
    for sentence in &verdict.because {
        told.row(out, &["", sentence])?;
    }
    writeln!(out)?;
    let table = table(&[TableColumn::text("OPERATION", 16), TableColumn::number("COUNT", 6)], room);
    table.header(out)?;
    for operation in &report.operations {
        row(out, &table, &[&operation.operation, &operation.count.to_string()], &operation.times)?;
    }
    if let Some(usual) = &report.usual {
        row(out, &table, &["(usually)", ""], usual)?;
    }
    if !report.slowest.is_empty() {
        writeln!(out, "\nthe slowest")?;
        let named_by =
            [TableColumn::text("BEGAN (UTC)", 15), TableColumn::text("XID", 8), TableColumn::text("OPERATION", 16)];
        let table = self::table(&named_by, room);
        table.header(out)?;
        for request in &report.slowest {
            let [time, xid] = named(request);
            row(out, &table, &[&time, &xid, &request.operation], &request.times)?;
        }
    }
    Ok(())
}

/// A table with these columns, followed by the parts of the time.
fn table(named_by: &[TableColumn], room: Option<usize>) -> Table {
    let times = ["MS", "CLIENT", "NETWORK", "WAIT", "EXECUTE", "SEND"].map(|name| TableColumn::number(name, 7));
    Table::new(&[named_by, &times].concat(), room)
}

fn row(out: &mut impl Write, table: &Table, names: &[&str], times: &JoinTimes) -> io::Result<()> {
    let times = texts(times);
    let cells: Vec<_> = names.iter().copied().chain(times.iter().map(String::as_str)).collect();
    table.row(out, &cells)
}

fn texts(times: &JoinTimes) -> [String; 6] {
    let text = |value: f64| ms((value * 1e6).round() as u64);
    [
        text(times.duration_ms),
        text(times.client_ms),
        text(times.network_ms),
        text(times.server_wait_ms),
        text(times.server_execute_ms),
        text(times.server_send_ms),
    ]
}

/// The time of day, and the number of the call.
fn named(request: &JoinRow) -> [String; 2] {
    let time = request.time.as_deref().and_then(|time| time.get(11..26)).unwrap_or_default().to_owned();
    [time.trim_end_matches('Z').to_owned(), request.xid.map(|xid| format!("{xid:08x}")).unwrap_or_default()]
}
