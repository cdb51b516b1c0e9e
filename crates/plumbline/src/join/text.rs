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
    let columns = [
        TableColumn::text("OPERATION", 16),
        TableColumn::number("COUNT", 6),
        TableColumn::number("MS", 7),
        TableColumn::number("CLIENT", 7),
        TableColumn::number("NETWORK", 7),
        TableColumn::number("WAIT", 7),
        TableColumn::number("EXECUTE", 7),
        TableColumn::number("SEND", 7),
    ];
    let table = Table::new(&columns, room);
    table.header(out)?;
    for operation in &report.operations {
        row(out, &table, &operation.operation, &operation.count.to_string(), &operation.times)?;
    }
    if let Some(usual) = &report.usual {
        row(out, &table, "(usually)", "", usual)?;
    }
    if !report.slowest.is_empty() {
        writeln!(out, "\nthe slowest")?;
        let columns = [TableColumn::text("BEGAN (UTC)", 15), TableColumn::text("XID", 8)];
        let table = Table::new(&[columns.as_slice(), columns_of_times().as_slice()].concat(), room);
        table.header(out)?;
        for request in &report.slowest {
            let [time, xid] = named(request);
            let times = texts(&request.times);
            let mut cells: Vec<&str> = vec![&time, &xid, &request.operation];
            cells.extend(times.iter().map(String::as_str));
            table.row(out, &cells)?;
        }
    }
    Ok(())
}

fn columns_of_times() -> [TableColumn; 7] {
    [
        TableColumn::text("OPERATION", 16),
        TableColumn::number("MS", 7),
        TableColumn::number("CLIENT", 7),
        TableColumn::number("NETWORK", 7),
        TableColumn::number("WAIT", 7),
        TableColumn::number("EXECUTE", 7),
        TableColumn::number("SEND", 7),
    ]
}

fn row(out: &mut impl Write, table: &Table, operation: &str, count: &str, times: &JoinTimes) -> io::Result<()> {
    let times = texts(times);
    let mut cells = vec![operation, count];
    cells.extend(times.iter().map(String::as_str));
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

/// The time of day, and the number.
fn named(request: &JoinRow) -> [String; 2] {
    let time = request.time.as_deref().and_then(|time| time.get(11..26)).unwrap_or_default().to_owned();
    [time.trim_end_matches('Z').to_owned(), request.xid.map(|xid| format!("{xid:08x}")).unwrap_or_default()]
}
