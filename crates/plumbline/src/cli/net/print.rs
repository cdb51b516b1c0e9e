//! Prints rows as a table and as JSON.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
};

use anyhow::Result;
use diagnose::span;
use model::Histogram;
use probes::tcp::Stage;
use serde_json::{Map, Value, json};

use super::{NetArguments, owners::SocketOwners, rows::NetRow};
use crate::{
    io::rows::size,
    view::table::{Table, TableColumn},
};

/// Explanations of the columns.
pub fn explain(full: bool) -> &'static str {
    if full {
        "of each call only its last byte is stamped; times are median/99th percentile\n"
    } else {
        "of each call only its last byte is stamped; times are median/99th percentile\n\
         CALL and READ take --full, which costs every send and read of the host 0.1 to 0.2 us\n"
    }
}

/// Only with --full.
const CALL: &str = "CALL";
const READ: &str = "READ";

const COLUMNS: [TableColumn; 21] = [
    TableColumn::text("LOCAL", 21).cut_to(12).optional(5),
    TableColumn::text("PEER", 21).cut_to(14),
    TableColumn::number("SENDS", 7).optional(6),
    TableColumn::number("BYTES", 9),
    TableColumn::number(CALL, 15).optional(7),
    TableColumn::number("QUEUE", 15).optional(3),
    TableColumn::number("SCHEDULER", 15).optional(7),
    TableColumn::number("NETWORK", 15).optional(2),
    TableColumn::number("SEND", 15).optional(4),
    TableColumn::number(READ, 15).optional(7),
    TableColumn::number("RTT/MIN", 15),
    TableColumn::number("RESENT", 6),
    TableColumn::number("CWND", 5).optional(7),
    TableColumn::number("WINDOW", 6).optional(8),
    TableColumn::number("PACING", 6).optional(11),
    TableColumn::number("BUFFER", 6).optional(10),
    TableColumn::number("UNSENT", 9).optional(9),
    TableColumn::number("UNACKED", 9).optional(9),
    TableColumn::number("UNREAD", 9).optional(9),
    TableColumn::text("PROCESS", 20).cut_to(10).optional(1),
    TableColumn::rest("MOUNT", 8),
];

pub fn print(
    out: &mut impl Write,
    rows: &[NetRow],
    seconds: f64,
    arguments: &NetArguments,
    owners: &mut SocketOwners,
) -> io::Result<()> {
    let full = arguments.full;
    if rows.is_empty() {
        return writeln!(out, "no connection is selected; see `plumbline net --help`\n");
    }
    let shown = |column: &TableColumn| full || ![CALL, READ].contains(&column.heading());
    let columns: Vec<TableColumn> = COLUMNS.into_iter().filter(shown).collect();
    let table = Table::new(&columns, arguments.wide.room());
    table.header(out)?;
    for row in rows {
        let peer = row.peer.map(end).unwrap_or_default();
        let local = match (row.local, row.connections) {
            (Some(local), _) => end(local),
            (None, 1) => "1 connection".to_owned(),
            (None, many) => format!("{many} connections"),
        };
        let count = |count: u64| if row.stamped > 0 { count.to_string() } else { "-".to_owned() };
        let bytes = if row.stamped > 0 { row.bytes } else { row.bytes_acked };
        let mut cells = vec![local, peer, count(row.sends), size(bytes)];
        let stages = row.stages.iter().zip(Stage::ALL);
        let stages = stages.filter(|(_, stage)| full || ![Stage::Call, Stage::Read].contains(stage));
        cells.extend(stages.map(|(histogram, _)| times(histogram)));
        cells.push(format!("{}/{}", span(u64::from(row.srtt_us) * 1000), span(u64::from(row.min_rtt_us) * 1000)));
        cells.push(row.retransmits.to_string());
        cells.push(row.congestion_window.map_or_else(|| "-".to_owned(), |segments| segments.to_string()));
        let share =
            |ms: f64| if ms > 0.0 { format!("{:.0} %", (ms / seconds / 10.0).min(999.0)) } else { "-".to_owned() };
        cells.push(share(row.window_limited_ms as f64));
        cells.push(share(row.pacing_ns as f64 / 1e6));
        cells.push(share(row.buffer_limited_ms as f64));
        cells.extend([row.unsent, row.unacked, row.unread].map(size));
        cells.push(owners.of(row));
        cells.push(if row.closed > 0 && row.local.is_some() {
            format!("{} closed", row.mount)
        } else {
            row.mount.clone()
        });
        table.row(out, &cells.iter().map(|cell| cell.trim()).collect::<Vec<_>>())?;
    }
    writeln!(out)
}

/// `12 us/1.3 ms`: median and 99th percentile.
fn times(times: &Histogram) -> String {
    match (times.quantile(0.5), times.quantile(0.99)) {
        (Some(median), Some(most)) => format!("{}/{}", span(median), span(most)),
        _ => "-".to_owned(),
    }
}

/// `10.0.0.1:445`, `[fd00::1]:445`.
pub fn end((address, port): (IpAddr, u16)) -> String {
    SocketAddr::new(address, port).to_string()
}

pub fn print_json(out: &mut impl Write, rows: &[NetRow], time: &str, seconds: f64) -> Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *out, &as_json(row, time, seconds))?;
        writeln!(out)?;
    }
    Ok(())
}

fn as_json(row: &NetRow, time: &str, seconds: f64) -> Value {
    let local = row.local.map(end);
    let one = local.is_some();
    let stages: Map<String, Value> = Stage::ALL
        .iter()
        .zip(&row.stages)
        .filter(|(_, times)| times.count > 0)
        .map(|(stage, times)| (stage.name().to_owned(), stage_json(times)))
        .collect();
    json!({
        "time": time,
        "interval_sec": seconds,
        "local": local,
        "peer": row.peer.map(end),
        "namespace": row.namespace,
        "cookie": one.then_some(row.cookie),
        "mount": (!row.mount.is_empty()).then_some(&row.mount),
        "connections": row.connections,
        "closed": row.closed,
        "stamped": row.stamped,
        "sends": row.sends,
        "sends_stamped": row.sends_stamped,
        "bytes": row.bytes,
        "bytes_acked": row.bytes_acked,
        "bytes_received": row.bytes_received,
        "stages": stages,
        "retransmits": row.retransmits,
        "queue_window_ms": row.window_ns as f64 / 1e6,
        "queue_pacing_ms": row.pacing_ns as f64 / 1e6,
        "busy_ms": row.busy_ms,
        "window_limited_ms": row.window_limited_ms,
        "buffer_limited_ms": row.buffer_limited_ms,
        "srtt_us": row.srtt_us,
        "min_rtt_us": row.min_rtt_us,
        "unsent": row.unsent,
        "unacked": row.unacked,
        "unread": row.unread,
        "window": row.window,
        "congestion_window": row.congestion_window,
        "pacing_rate": row.pacing_rate,
        "arrived_ago_ms": row.arrived_ago_ms,
        "sent_ago_ms": row.sent_ago_ms,
    })
}

/// Count, mean and quantiles of one stage; microseconds.
pub fn stage_json(times: &Histogram) -> Value {
    let us = |share| times.quantile(share).map(|ns| ns as f64 / 1e3);
    json!({
        "count": times.count,
        "mean_us": times.sum as f64 / 1e3 / times.count.max(1) as f64,
        "p50_us": us(0.5),
        "p99_us": us(0.99),
    })
}
