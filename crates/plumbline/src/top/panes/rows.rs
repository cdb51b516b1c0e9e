//! Makes rows from a sample. Figures always have units.

use std::collections::HashSet;

use diagnose::span;
use model::{EventLine, Histogram};

use super::{Mood, PaneCell, PaneRow};
use crate::{
    io::rows::{per_second, size},
    top::{
        history::LOOKS,
        model::{PHASES, TopConnection, TopSample, on_mounts},
        state::TopState,
    },
    view::incident,
};

/// An operation in flight for this long counts as hanging, milliseconds.
const HANGS_MS: f64 = 1_000.0;

fn text(text: impl Into<String>) -> PaneCell {
    let text = text.into();
    PaneCell::Text(if text.is_empty() { "-".to_owned() } else { text })
}

fn rate(rate: f64) -> PaneCell {
    PaneCell::Number(format!("{}/s", per_second(rate)), rate)
}

fn time(ns: Option<u64>) -> PaneCell {
    // Unknown values come last.
    PaneCell::Number(ns.map_or("-".to_owned(), span), ns.map_or(-1.0, |ns| ns as f64))
}

/// Rates and latencies of operations.
fn amounts(sample: &TopSample, amounts: &Histogram) -> [PaneCell; 5] {
    let bytes = sample.per_second(amounts.bytes);
    [
        rate(sample.per_second(amounts.count)),
        PaneCell::Number(format!("{}/s", size(bytes as u64)), bytes),
        rate(sample.per_second(amounts.errors)),
        time(amounts.sum.checked_div(amounts.count)),
        time(amounts.quantile(0.99)),
    ]
}

pub fn mounts(sample: &TopSample) -> Vec<PaneRow> {
    let mut on_mounts = on_mounts(&sample.operations);
    let troubled: HashSet<&str> =
        sample.incidents.iter().flatten().filter_map(|incident| incident.mountpoint.as_deref()).collect();
    let row = |name: &str, fstype: &str, source: &str, sum: crate::top::model::OnMount| {
        let mut cells = vec![text(name), text(fstype), text(sum.layer)];
        cells.extend(amounts(sample, &sum.amounts));
        cells.push(text(source));
        PaneRow { cells, mood: if troubled.contains(name) { Mood::Alarm } else { Mood::Usual } }
    };
    let known = sample.mounts.iter().map(|mount| {
        let sum = on_mounts.remove(mount.label()).unwrap_or_default();
        row(mount.label(), &mount.fstype, &mount.source, sum)
    });
    let mut rows: Vec<PaneRow> = known.collect();
    rows.extend(on_mounts.into_iter().map(|(name, sum)| row(name, "", "", sum)));
    rows
}

/// Operations without recent completions have rows, too, so that rows do not come and go.
pub fn operations(state: &TopState, sample: &TopSample) -> Vec<PaneRow> {
    let none = Histogram::default();
    let row = |key: &(String, String, String)| {
        let (mount, layer, operation) = key;
        let is_it = |one: &&crate::top::model::TopOperations| {
            one.mount == *mount && one.layer == *layer && one.operation == *operation
        };
        let now = sample.operations.iter().find(is_it).map_or(&none, |one| &one.amounts);
        let mut cells = vec![text(mount), text(layer), text(operation)];
        cells.extend(amounts(sample, now));
        cells.push(PaneCell::Trend(state.operations.last(key, LOOKS)));
        PaneRow { cells, mood: Mood::Usual }
    };
    state.operations.keys().map(row).collect()
}

pub fn phases(state: &TopState) -> Vec<PaneRow> {
    let row = |key: &(String, usize)| {
        let course = state.phases.last(key, LOOKS);
        let phase = PHASES.get(key.1).copied().unwrap_or("total");
        let now = course.last().copied().flatten();
        let most = course.iter().flatten().copied().max();
        let cells = vec![text(&key.0), text(phase), time(now), time(most), PaneCell::Trend(course)];
        PaneRow { cells, mood: Mood::Usual }
    };
    state.phases.keys().map(row).collect()
}

pub fn slowest(all: &[EventLine<'static>]) -> Vec<PaneRow> {
    let ns = |ms: f64| (ms * 1e6) as u64;
    let row = |event: &EventLine<'static>| {
        let mount = if event.mountpoint.is_empty() { &event.source } else { &event.mountpoint };
        let cells = vec![
            time(Some(ns(event.duration_ms))),
            text(if event.in_flight { "in flight" } else { "finished" }),
            text(event.operation.as_ref()),
            time(event.queue_ms.map(ns)),
            time(event.wire_ms.map(ns)),
            time(event.deliver_ms.map(ns)),
            PaneCell::Text(format!("{} {}", event.pid, event.comm)),
            text(mount.as_ref()),
            text(event.file.as_str()),
        ];
        let hangs = event.in_flight && event.duration_ms >= HANGS_MS;
        PaneRow { cells, mood: if hangs { Mood::Alarm } else { Mood::Usual } }
    };
    all.iter().map(row).collect()
}

pub fn incidents(all: &[incident::IncidentRow]) -> Vec<PaneRow> {
    let row = |one: &incident::IncidentRow| {
        let first = one.first_seen.as_deref().and_then(|time| time.get(..19)).unwrap_or("-").replace('T', " ");
        let what = match (&one.error, &one.name, &one.observed) {
            (Some(error), ..) => error.clone(),
            (None, Some(name), Some(observed)) => format!("{name}: {observed}"),
            _ => String::new(),
        };
        let mount = one.mountpoint.as_deref().unwrap_or_default();
        let cells = vec![text(first), text(one.lasted()), text(one.verdict()), text(mount), text(what)];
        PaneRow { cells, mood: Mood::Alarm }
    };
    all.iter().map(row).collect()
}

pub fn connections(sample: &TopSample, all: &[TopConnection]) -> Vec<PaneRow> {
    let rtt = |us: u32| time((us > 0).then(|| u64::from(us) * 1_000));
    let row = |one: &TopConnection| {
        let cells = vec![
            text(one.peer.as_str()),
            text(one.local.as_str()),
            text(one.state.as_str()),
            rtt(one.srtt_us),
            rtt(one.min_rtt_us),
            rate(sample.per_second(one.retransmits)),
            PaneCell::Number(one.retransmits_total.to_string(), one.retransmits_total as f64),
            PaneCell::Number(size(one.unacked), one.unacked as f64),
            text(one.mount.as_str()),
        ];
        let is_well = one.retransmits == 0 && one.state == "ESTABLISHED";
        PaneRow { cells, mood: if is_well { Mood::Usual } else { Mood::Notable } }
    };
    all.iter().map(row).collect()
}
