//! Samples put together by what the reader wants told apart, and how that is printed.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::{self, Write},
};

use model::{Histogram, Mount, quantile_index};
use serde_json::{Map, Value, json};

use super::{layers::LAYERS, meter::IoSample, owner::Owner};
use crate::view::{
    event::{known_ms, milliseconds},
    table::{Table, TableColumn},
};

/// What can be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Dimension {
    Job,
    Cgroup,
    Container,
    Namespace,
    Pod,
    #[value(name = "container_name")]
    ContainerName,
    Workload,
    Process,
    Fstype,
    Mount,
    Pv,
    Pvc,
    Layer,
    Op,
}

impl Dimension {
    /// The field's name in JSON.
    fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Cgroup => "cgroup",
            Self::Container => "container",
            Self::Namespace => "namespace",
            Self::Pod => "pod",
            Self::ContainerName => "container_name",
            Self::Workload => "workload",
            Self::Process => "process",
            Self::Fstype => "fstype",
            Self::Mount => "mount",
            Self::Pv => "pv",
            Self::Pvc => "pvc",
            Self::Layer => "layer",
            Self::Op => "op",
        }
    }

    /// Its column, as wide as its longest cell.
    fn column(self, longest: usize) -> TableColumn {
        let (heading, least) = match self {
            Self::Job => ("JOB", 8),
            Self::Cgroup => ("CGROUP", 12),
            Self::Container => ("CONTAINER", 12),
            Self::Namespace => ("NAMESPACE", 8),
            Self::Pod => ("POD", 12),
            Self::ContainerName => ("CONTAINER NAME", 12),
            Self::Workload => ("WORKLOAD", 8),
            Self::Process => ("PROCESS", 12),
            Self::Fstype => ("FSTYPE", 6),
            Self::Mount => ("MOUNT", 12),
            Self::Pv => ("PV", 12),
            Self::Pvc => ("PVC", 8),
            Self::Layer => ("LAYER", 8),
            Self::Op => ("OP", 10),
        };
        TableColumn::text(heading, longest.max(heading.len())).cut_to(least.min(longest))
    }

    /// Whether it takes to know who asked.
    pub fn is_of_owner(self) -> bool {
        !matches!(self, Self::Fstype | Self::Mount | Self::Pv | Self::Layer | Self::Op)
    }

    fn cell(self, sample: &IoSample, mount: &Mount, owner: &Owner) -> IoCell {
        let text = match self {
            Self::Job => &owner.cgroup.job,
            Self::Cgroup => &owner.cgroup.path,
            Self::Container => &owner.cgroup.container,
            Self::Namespace => &owner.cgroup.names.namespace,
            Self::Pod => &owner.cgroup.names.pod,
            Self::ContainerName => &owner.cgroup.names.container_name,
            Self::Workload => &owner.cgroup.names.workload,
            Self::Process if owner.pid != 0 => {
                return IoCell(u64::from(owner.pid), format!("{} {}", owner.pid, owner.comm));
            }
            Self::Process => "",
            Self::Fstype => &mount.fstype,
            Self::Mount => mount.label(),
            Self::Pv => &mount.pv,
            Self::Pvc => mount.claim(&owner.cgroup.names.namespace).unwrap_or_default(),
            Self::Op => sample.operation.name(),
            Self::Layer => {
                let name = sample.operation.protocol().name;
                let depth = LAYERS.iter().position(|(layer, _)| *layer == name).unwrap_or(LAYERS.len());
                return IoCell(depth as u64, name.into());
            }
        };
        IoCell(0, if text.is_empty() { "-" } else { text }.to_owned())
    }
}

/// What a row says in a column, and before that where it belongs among the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct IoCell(u64, String);

/// Samples of one interval, by what is told apart.
#[derive(Debug)]
pub struct Rows<'a> {
    by: &'a [Dimension],
    rows: BTreeMap<Vec<IoCell>, Histogram>,
}

impl<'a> Rows<'a> {
    pub fn new(by: &'a [Dimension]) -> Self {
        Self { by, rows: BTreeMap::new() }
    }

    pub fn add(&mut self, sample: &IoSample, mount: &Mount, owner: &Owner) {
        let key = self.by.iter().map(|dimension| dimension.cell(sample, mount, owner)).collect();
        self.rows.entry(key).or_default().merge(&sample.amounts);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Aligned columns; with `histograms`, bars below each row.
    pub fn print(&self, out: &mut impl Write, look: &RowOptions) -> io::Result<()> {
        let mut columns: Vec<TableColumn> = Vec::new();
        for (index, dimension) in self.by.iter().enumerate() {
            let cells = self.rows.keys().filter_map(|key| key.get(index)).map(|cell| cell.1.chars().count());
            let width = cells.max().unwrap_or(0).max(dimension.name().len());
            columns.push(dimension.column(width));
        }
        columns.extend(AMOUNTS);
        let table = Table::new(&columns, look.room);
        table.header(out)?;
        let mut rows: Vec<_> = self.rows.iter().collect();
        if look.sort == IoSort::Load {
            rows.sort_by_key(|(_, amounts)| Reverse(amounts.sum));
        }
        let rate = |amount: u64| amount as f64 / look.seconds.max(f64::MIN_POSITIVE);
        for (key, amounts) in rows {
            let cells = [
                amounts.count.to_string(),
                per_second(rate(amounts.count)),
                size(amounts.bytes),
                size(rate(amounts.bytes) as u64),
                known_ms(amounts.sum.checked_div(amounts.count)),
                known_ms(amounts.quantile(0.5)),
                known_ms(amounts.quantile(0.99)),
                usual_size(amounts),
                amounts.errors.to_string(),
            ];
            let dimensions = key.iter().map(|cell| cell.1.as_str());
            table.row(out, &dimensions.chain(cells.iter().map(String::as_str)).collect::<Vec<_>>())?;
            if look.histograms {
                bars(out, "size", &sizes(amounts), size)?;
                bars(
                    out,
                    "latency",
                    &latencies(amounts),
                    |ns| if ns == 0 { "0 us".into() } else { diagnose::span(ns) },
                )?;
                writeln!(out)?;
            }
        }
        Ok(())
    }

    /// One object a line.
    pub fn print_json(&self, out: &mut impl Write, time: &str, seconds: f64) -> io::Result<()> {
        for (key, amounts) in &self.rows {
            let mut row = Map::new();
            row.insert("time".into(), time.into());
            row.insert("interval_s".into(), ((seconds * 1e3).round() / 1e3).into());
            for (dimension, cell) in self.by.iter().zip(key) {
                row.insert(dimension.name().into(), if cell.1 == "-" { Value::Null } else { cell.1.clone().into() });
            }
            row.extend(as_json(amounts));
            serde_json::to_writer(&mut *out, &row)?;
            writeln!(out)?;
        }
        Ok(())
    }
}

const AMOUNTS: [TableColumn; 9] = [
    TableColumn::number("CALLS", 9).optional(6),
    TableColumn::number("CALLS/S", 9),
    TableColumn::number("BYTES", 9).optional(5),
    TableColumn::number("BYTES/S", 9),
    TableColumn::number("MEAN MS", 8).optional(2),
    TableColumn::number("P50 MS", 8).optional(3),
    TableColumn::number("P99 MS", 8),
    TableColumn::number("SIZE P50", 17).optional(4),
    TableColumn::number("ERRORS", 7).optional(1),
];

/// What comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum IoSort {
    /// What took most time
    Load,
    /// By name, and layers from the application down
    Name,
}

/// How rows are shown.
pub struct RowOptions {
    /// Characters in a line; `None`: as many as it takes.
    pub room: Option<usize>,
    /// For how long they were counted.
    pub seconds: f64,
    pub sort: IoSort,
    pub histograms: bool,
}

/// `12`, `1.5`, `0.02`: two digits that mean something, or all of a whole number.
pub fn per_second(rate: f64) -> String {
    match rate {
        ..=0.0 => "0".to_owned(),
        0.0..1.0 => format!("{rate:.2}"),
        1.0..10.0 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

/// What a histogram says, by stable names.
pub fn as_json(amounts: &Histogram) -> Map<String, Value> {
    let ms = |ns: Option<u64>| ns.map_or(Value::Null, |ns| milliseconds(ns).into());
    let counts = |counts: Vec<(u64, u64)>| {
        Value::Object(counts.into_iter().map(|(from, count)| (from.to_string(), count.into())).collect())
    };
    let fields = json!({
        "calls": amounts.count,
        "bytes": amounts.bytes,
        "errors": amounts.errors,
        "total_ms": milliseconds(amounts.sum),
        "mean_ms": ms(amounts.sum.checked_div(amounts.count)),
        "p50_ms": ms(amounts.quantile(0.5)),
        "p99_ms": ms(amounts.quantile(0.99)),
        "sizes": counts(sizes(amounts)),
        "latencies_ns": counts(latencies(amounts)),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Operations by size: the least bytes of each power of two that occurs, and how many.
pub fn sizes(amounts: &Histogram) -> Vec<(u64, u64)> {
    let counts = amounts.sizes.iter().enumerate().filter(|(_, count)| **count > 0);
    counts.map(|(size, count)| (1 << size, *count)).collect()
}

/// Operations by latency: the least nanoseconds of each power of two that occurs, and how many; all below 1 024 ns are at 0.
pub fn latencies(amounts: &Histogram) -> Vec<(u64, u64)> {
    let mut powers = BTreeMap::new();
    for (bucket, count) in amounts.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        let from = Histogram::lower_bound(bucket).checked_ilog2().map_or(0, |exponent| 1 << exponent);
        *powers.entry(from).or_default() += count;
    }
    powers.into_iter().collect()
}

/// The power of two that half of the operations that moved bytes are at or below.
fn usual_size(amounts: &Histogram) -> String {
    quantile_index(&amounts.sizes, 0.5).map_or_else(|| "-".into(), |index| range(1 << index, size))
}

fn range(from: u64, name: impl Fn(u64) -> String) -> String {
    format!("{} - {}", name(from), name(from.saturating_mul(2)))
}

/// Bytes with a unit and at most three digits that matter: `4 KiB`, `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: &[(u32, &str)] = &[(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = UNITS.iter().find(|(shift, _)| bytes >> shift > 0) else { return format!("{bytes} B") };
    let value = bytes as f64 / (1_u64 << shift) as f64;
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let text = format!("{value:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// Columns that the longest bar takes.
const LONGEST: u64 = 40;

/// A bar for each power of two from the least to the greatest that occurs.
fn bars(out: &mut impl Write, what: &str, counts: &[(u64, u64)], name: impl Fn(u64) -> String) -> io::Result<()> {
    let (Some((first, _)), Some((last, _))) = (counts.first(), counts.last()) else { return Ok(()) };
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    writeln!(out, "  {what:>22}  {:>9}", "calls")?;
    let mut from = *first;
    loop {
        let count = counts.iter().find(|(other, _)| *other == from).map_or(0, |(_, count)| *count);
        let bar = "#".repeat(usize::try_from((count * LONGEST).div_ceil(most)).unwrap_or(0));
        let next = if from == 0 { 1024 } else { from.saturating_mul(2) };
        writeln!(out, "  {:>22}  {count:>9}  {bar}", format!("{} - {}", name(from), name(next)))?;
        if from >= *last {
            return Ok(());
        }
        from = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{MountKey, text::Text};

    fn sample(protocol: &str, operation: &str, sizes: &[u64]) -> IoSample {
        let mut amounts = Histogram::default();
        sizes.iter().for_each(|bytes| amounts.add(2_000_000, *bytes, false));
        let operation = probes::protocol(protocol).unwrap().operation(operation).unwrap();
        IoSample { operation, mount: MountKey(1), cgroup: 0, pid: 0, comm: Text::default(), amounts }
    }

    #[test]
    fn what_is_not_told_apart_is_one_row_and_layers_stand_in_their_order() {
        let mount = Mount { mountpoint: "/mnt/share".into(), fstype: "cifs".into(), ..Mount::default() };
        let mut rows = Rows::new(&[Dimension::Mount, Dimension::Layer]);
        for sample in [
            sample("smb", "write", &[1 << 20]),
            sample("syscalls", "read", &[100]),
            sample("syscalls", "write", &[4096; 9]),
        ] {
            rows.add(&sample, &mount, &Owner::default());
        }
        let mut text = Vec::new();
        let mut look = RowOptions { room: None, seconds: 2.0, sort: IoSort::Name, histograms: false };
        rows.print(&mut text, &look).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[1],
            [
                "/mnt/share",
                "syscalls",
                "10",
                "5.0",
                "36.1",
                "KiB",
                "18",
                "KiB",
                "2.00",
                "2.00",
                "2.00",
                "4",
                "KiB",
                "-",
                "8",
                "KiB",
                "0"
            ],
            "{text}"
        );
        assert_eq!(lines[2][..3], ["/mnt/share", "smb", "1"], "{text}");
        rows.add(&sample("smb", "write", &[1 << 20; 20]), &mount, &Owner::default());
        look.sort = IoSort::Load;
        let mut text = Vec::new();
        rows.print(&mut text, &look).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.lines().nth(1).unwrap().contains(" smb "), "what took most time comes first: {text}");
    }

    #[test]
    fn bars_are_aligned_and_leave_no_power_of_two_out() {
        let mut text = Vec::new();
        bars(&mut text, "size", &[(1024, 1), (4096, 80)], size).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(
            lines[2].ends_with(" 0  ") && lines[3].ends_with(&"#".repeat(40)) && lines[1].ends_with(" 1  #"),
            "{text}"
        );
    }

    #[test]
    fn bytes_have_a_unit_and_no_needless_digits() {
        let cases = [(0, "0 B"), (1023, "1023 B"), (4096, "4 KiB"), (1536 << 10, "1.5 MiB"), (u64::MAX, "16 EiB")];
        cases.iter().for_each(|(bytes, text)| assert_eq!(size(*bytes), *text));
    }
}
