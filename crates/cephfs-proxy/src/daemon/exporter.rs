//! `/metrics`: counters and gauges in Prometheus' format. docs/cephfs-proxy.md lists them, too; a test compares the
//! lists. The number of series is bounded by the numbers of operations, refusals and limits.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use exposition::{Family, FamilyKind, Format, MetricUnit, PageSource, Point, PointValue, page};

use super::{
    Limits,
    figures::{ProcessFigures, ProxyCounters, RefusalReason, Sum},
};
use crate::layout::{DATA_SIZE, SLOTS};

/// The source of the metrics page.
pub struct ProxyExporter {
    /// What all processes have counted.
    pub figures: Arc<ProxyCounters>,
    /// The limits.
    pub limits: Limits,
    /// The version of libcephfs.
    pub libcephfs: String,
}

impl PageSource for ProxyExporter {
    fn name(&self) -> &'static str {
        "libcephfsd"
    }

    fn page(&self, format: Format) -> Option<Vec<u8>> {
        Some(page(&families(self, &self.figures.sums()), format))
    }
}

type ProxyLabels<'s> = Vec<(&'static str, &'s str)>;

fn family<'s>(
    name: &'static str,
    help: &'static str,
    unit: MetricUnit,
    kind: FamilyKind,
    points: Vec<(ProxyLabels<'s>, PointValue<'s>)>,
) -> Family<'s, &'static str> {
    let points = points.into_iter().map(|(labels, value)| Point { labels, value }).collect();
    Family { name, otel: "", help, unit, kind, points }
}

fn number(value: u64) -> PointValue<'static> {
    PointValue::Number(value as f64)
}

fn single(value: u64) -> Vec<(ProxyLabels<'static>, PointValue<'static>)> {
    vec![(vec![], number(value))]
}

fn families<'s>(exporter: &'s ProxyExporter, sums: &'s [(&'static str, Sum)]) -> Vec<Family<'s, &'static str>> {
    let ProxyExporter { figures, limits, libcephfs } = exporter;
    let operations = || sums.iter().map(|(name, sum)| (("operation", *name), sum));
    let requests = operations().flat_map(|(operation, sum)| {
        [("ok", sum.good), ("error", sum.failed)].map(|(how, count)| (vec![operation, ("outcome", how)], number(count)))
    });
    let bytes = operations().map(|(operation, sum)| (vec![operation], number(sum.bytes)));
    let durations = operations().flat_map(|(operation, sum)| {
        [("waiting", &sum.waiting), ("libcephfs", &sum.libcephfs)]
            .map(|(phase, histogram)| (vec![operation, ("phase", phase)], PointValue::Histogram(histogram)))
    });
    let refused = |of_connections: bool| {
        let mine = RefusalReason::ALL.into_iter().filter(move |(why, _)| why.is_of_connection() == of_connections);
        mine.map(|(why, name)| (vec![("reason", name)], number(figures.refused(why)))).collect()
    };
    let now = |figure: fn(&ProcessFigures) -> &AtomicU64| figures.over_all(|process| figure(process).load(Relaxed));
    let (all, idle) = (now(|process| &process.workers), now(|process| &process.idle));
    let workers = [("busy", all.saturating_sub(idle) as usize), ("idle", idle as usize)];
    let limits = [
        ("connections", limits.clients),
        ("mounts", limits.mounts),
        ("handles_per_connection", limits.handles),
        ("bytes_per_connection", limits.memory),
        ("workers", limits.workers),
        ("workers_per_connection", limits.workers_per_client()),
        ("data_cache_bytes", limits.data),
        ("requests_per_connection", SLOTS),
        ("bytes_per_request", DATA_SIZE),
    ];
    let labelled = |label: &'static str, all: &[(&'static str, usize)]| {
        all.iter().map(|(name, value)| (vec![(label, *name)], number(*value as u64))).collect()
    };
    let version = vec![("version", env!("CARGO_PKG_VERSION")), ("libcephfs", &**libcephfs)];
    use {FamilyKind::*, MetricUnit::*};
    vec![
        family("libcephfsd_requests", "Requests answered.", None, Counter, requests.collect()),
        family("libcephfsd_request_bytes", "Data that requests moved.", Bytes, Counter, bytes.collect()),
        family(
            "libcephfsd_request_duration_seconds",
            "Time from a request's submission until a worker took it (waiting), and from then until it had been served (libcephfs).",
            Seconds,
            Histogram,
            durations.collect(),
        ),
        family(
            "libcephfsd_requests_refused",
            "Requests that were rejected: malformed, for an object that the client does not hold, or beyond the client's limits.",
            None,
            Counter,
            refused(false),
        ),
        family(
            "libcephfsd_connections",
            "Connected clients.",
            None,
            Gauge,
            single(figures.over_all(ProcessFigures::clients)),
        ),
        family(
            "libcephfsd_connections_accepted",
            "Connections that were let in: two for each client that mounts.",
            None,
            Counter,
            single(figures.accepted()),
        ),
        family(
            "libcephfsd_connections_refused",
            "Clients that were turned away, by reason.",
            None,
            Counter,
            refused(true),
        ),
        family(
            "libcephfsd_handles",
            "Inodes, files, directories, identities and mounts that clients hold.",
            None,
            Gauge,
            single(now(|process| &process.handles)),
        ),
        family(
            "libcephfsd_data_cache_bytes",
            "File data that clients can read without a request.",
            Bytes,
            Gauge,
            single(now(|process| &process.data)),
        ),
        family("libcephfsd_mounts", "Mounts of CephFS.", None, Gauge, single(now(|process| &process.mounts))),
        family("libcephfsd_workers", "Threads that answer requests.", None, Gauge, labelled("state", &workers)),
        family("libcephfsd_limit", "Limits of what clients can use.", None, Gauge, labelled("resource", &limits)),
        family(
            "libcephfsd_build",
            "The versions of libcephfsd and of its libcephfs.",
            None,
            Info,
            vec![(version, number(1))],
        ),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documentation_has_every_series_and_no_other() {
        let source = include_str!("exporter.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let names = |text: &str, quote: char| {
            let mut names: Vec<_> = text
                .match_indices(&format!("{quote}libcephfsd_"))
                .filter_map(|(at, _)| text[at + 1..].split(quote).next())
                .map(|name| name.trim_end_matches("_total").trim_end_matches("_info").to_owned())
                .collect();
            names.sort();
            names
        };
        let document = include_str!("../../../../docs/cephfs-proxy.md");
        let rows: Vec<_> = document.lines().filter(|line| line.starts_with("| `libcephfsd_")).collect();
        assert_eq!(names(source, '"'), names(&rows.join("\n"), '`'));
    }
}
