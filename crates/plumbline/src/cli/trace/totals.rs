//! What was seen altogether.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use anyhow::Result;
use model::{Histogram, Level, MountKey, Operation, Protocol};
use probes::ProbeSet;

use crate::view::{event::milliseconds, table::Table};

/// What was seen altogether (on the mount, if it is one), slow or not, and what was lost: to standard error, so that
/// programs are not disturbed.
pub(super) fn totals(watch: &ProbeSet, protocol: &Protocol, mount: MountKey) -> Result<()> {
    let mut err = io::stderr().lock();
    let mut all: HashMap<Operation, Histogram> = HashMap::new();
    let wanted = |key: &MountKey| mount == MountKey::NONE || mount == *key;
    // Sends are looked at for what asked for them.
    let beside = |of: &Protocol| of.level == Level::Transport && of != protocol;
    let histograms = watch.histograms()?.into_iter();
    for (operation, _, histogram) in histograms.filter(|(of, key, _)| wanted(key) && !beside(of.protocol())) {
        all.entry(operation).or_default().merge(&histogram);
    }
    let mut rows: Vec<_> = all.into_iter().collect();
    rows.sort_by_key(|(operation, _)| *operation);
    if !rows.is_empty() {
        let table = Table::new(&[
            ("OPERATION", 20),
            ("COUNT", -9),
            ("ERRORS", -7),
            ("MEAN MS", -10),
            ("P50 MS", -10),
            ("P99 MS", -10),
            ("BYTES", -12),
        ]);
        writeln!(err)?;
        table.header(&mut err)?;
        for (operation, histogram) in rows {
            let ms = |ns: Option<u64>| ns.map_or_else(|| "-".into(), |ns| format!("{:.3}", milliseconds(ns)));
            let cells = [
                histogram.count.to_string(),
                histogram.errors.to_string(),
                ms(histogram.sum.checked_div(histogram.count)),
                ms(histogram.quantile(0.5)),
                ms(histogram.quantile(0.99)),
                histogram.bytes.to_string(),
            ];
            let cells: Vec<&str> = std::iter::once(operation.name()).chain(cells.iter().map(String::as_str)).collect();
            table.row(&mut err, &cells)?;
        }
    }
    let (taken, not_understood) = watch.consumed();
    let mut probes: Vec<_> = watch.counters().into_iter().zip(watch.runs()).collect();
    probes.retain(|((of, _), _)| !beside(of));
    probes.sort_by_key(|((of, _), _)| *of != protocol);
    for ((of, counters), (_, runs)) in probes {
        if of == protocol {
            let lost: Vec<_> = counters.losses().iter().map(|(cause, lost)| format!("{cause} {lost}")).collect();
            let (shown, lost, missed) = (taken - not_understood, lost.join(", "), runs.missed);
            // No loss, but what somebody waits for: an operation that hangs is in no histogram.
            let unfinished = counters.unfinished();
            writeln!(err, "\n{shown} events shown, lost: {lost}, runs_missed {missed}; unfinished {unfinished}")?;
            if counters.bytes_unknown > 0 {
                writeln!(err, "bytes unknown of {} operations, which the table has none of", counters.bytes_unknown)?;
            }
        } else {
            let untimed = counters.lost_inflight + runs.missed;
            writeln!(err, "{}: {} operations seen, {untimed} missed", of.name, counters.finished)?;
        }
    }
    Ok(())
}
