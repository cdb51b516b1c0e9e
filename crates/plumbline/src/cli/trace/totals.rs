//! The totals of all operations seen.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use anyhow::Result;
use diagnose::counted;
use model::{Histogram, Level, MountKey, Operation, Protocol};
use probes::{ProbeCounters, ProbeSet};

use crate::view::{
    event::known_ms,
    table::{Table, TableColumn, room_of},
};

/// The last line: how many operations were shown, and how many were lost.
fn in_words(shown: u64, counters: &ProbeCounters, runs_missed: u64) -> String {
    let losses = [
        (counters.lost_ring, "while the ring buffer was full"),
        (counters.lost_inflight, "while the table of operations in flight was full"),
        (counters.lost_histogram, "because the table of histograms was full"),
        (runs_missed, "because the kernel did not run the probe's program"),
    ];
    let lost: Vec<_> = losses.iter().filter(|(lost, _)| *lost > 0).map(|(lost, why)| format!("{lost} {why}")).collect();
    let lost = if lost.is_empty() { ", none lost".to_owned() } else { format!("; lost: {}", lost.join(", ")) };
    // Unfinished operations are not lost, but the user waits for them: an operation that hangs is in no histogram.
    let unfinished = match counters.unfinished() {
        0 => String::new(),
        1 => "; 1 has not ended".to_owned(),
        many => format!("; {many} have not ended"),
    };
    format!("{} shown{lost}{unfinished}", counted(shown, "operation"))
}

/// Prints totals of all operations (on the mount, if one is given), slow or not, and of losses. To standard error, so that programs that read the
/// output are not disturbed. `left_out`: why operations are not shown.
pub(super) fn totals(watch: &ProbeSet, protocol: &Protocol, mount: MountKey, left_out: &str) -> Result<()> {
    let mut err = io::stderr().lock();
    let mut all: HashMap<Operation, Histogram> = HashMap::new();
    let wanted = |key: &MountKey| mount == MountKey::NONE || mount == *key;
    // Sends are watched only because of the requests, so they are not counted.
    let beside = |of: &Protocol| of.level == Level::Transport && of != protocol;
    let histograms = watch.histograms()?.into_iter();
    for (operation, _, histogram) in histograms.filter(|(of, key, _)| wanted(key) && !beside(of.protocol())) {
        all.entry(operation).or_default().merge(&histogram);
    }
    let ended: u64 = all.values().map(|histogram| histogram.count).sum();
    let mut rows: Vec<_> = all.into_iter().collect();
    rows.sort_by_key(|(operation, _)| *operation);
    if !rows.is_empty() {
        let columns = [
            TableColumn::text("OPERATION", 20).cut_to(14),
            TableColumn::number("COUNT", 9),
            TableColumn::number("ERRORS", 7),
            TableColumn::number("MEAN MS", 8),
            TableColumn::number("P50 MS", 8),
            TableColumn::number("P99 MS", 8),
            TableColumn::number("BYTES", 12).optional(1),
        ];
        let table = Table::new(&columns, room_of(&io::stderr()));
        writeln!(err)?;
        table.header(&mut err)?;
        for (operation, histogram) in rows {
            let cells = [
                histogram.count.to_string(),
                histogram.errors.to_string(),
                known_ms(histogram.sum.checked_div(histogram.count)),
                known_ms(histogram.quantile(0.5)),
                known_ms(histogram.quantile(0.99)),
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
            let shown = taken - not_understood;
            let others = ended.saturating_sub(shown + counters.lost_ring);
            let others = if others > 0 { format!("; {others} {left_out} are not shown") } else { String::new() };
            writeln!(err, "\n{}{others}", in_words(shown, &counters, runs.missed))?;
            if counters.bytes_unknown > 0 {
                let operations = counted(counters.bytes_unknown, "operation");
                writeln!(err, "how many bytes {operations} moved is not known; the table has none of them")?;
            }
        } else {
            let untimed = counters.lost_inflight + runs.missed;
            writeln!(err, "{}: {} seen, {untimed} missed", of.name, counted(counters.finished, "operation"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_said_if_there_are_some() {
        let none = ProbeCounters { started: 5, finished: 5, ..ProbeCounters::default() };
        assert_eq!(in_words(5, &none, 0), "5 operations shown, none lost");
        let some = ProbeCounters { started: 9, finished: 7, lost_ring: 3, ..ProbeCounters::default() };
        assert_eq!(
            in_words(1, &some, 2),
            "1 operation shown; lost: 3 while the ring buffer was full, 2 because the kernel did not run the probe's program; 2 have not ended"
        );
    }
}
