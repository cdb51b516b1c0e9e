//! What a run spends on I/O, layer by layer: the share of its time, operations, bytes and the rate of the slowest process.

use std::{cmp::Reverse, collections::BTreeMap};

use diagnose::span;
use maud::{Markup, html};
use model::Direction;

use super::{
    axis::AxisUnit,
    charts::{Bar, bars},
};
use crate::io::{
    layers::LayerDepth,
    rows::size,
    summary::{IoSummary, ProcessShare},
};

/// What one layer cost.
pub struct LayerCost {
    pub depth: LayerDepth,
    /// The sum of all processes.
    pub all: ProcessShare,
    /// The number of processes in the mean.
    pub processes: u64,
    /// The time of the process that spent most, nanoseconds.
    pub slowest_ns: u64,
    /// Mean share of the run time of reading, writing and everything else, per cent.
    pub percent: [f64; 3],
}

impl LayerCost {
    /// The cost of a layer that at least one process used. The mean is over the ranks of the MPI job, including those without I/O; without ranks,
    /// over the processes that used the layer.
    pub fn of(summary: &IoSummary, depth: LayerDepth) -> Option<Self> {
        let shares = || summary.processes.values().filter_map(|process| Some((process.rank, process.at.get(&depth)?)));
        let all = shares().fold(ProcessShare::default(), |sum, (_, share)| sum.plus(share));
        if all.calls == 0 {
            return None;
        }
        let ranks = shares().filter(|(rank, _)| rank.is_some()).count() as u64;
        let counted = |rank: Option<u32>| ranks == 0 || rank.is_some();
        let processes = if ranks > 0 { ranks.max(summary.ranks()) } else { shares().count() as u64 };
        let sum = shares()
            .filter(|(rank, _)| counted(*rank))
            .fold(ProcessShare::default(), |sum, (_, share)| sum.plus(share));
        let slowest_ns = shares().map(|(_, share)| share.ns()).max().unwrap_or(0);
        let run = summary.seconds() * 1e9 * processes.max(1) as f64;
        let percent = [sum.reading_ns, sum.writing_ns, sum.other_ns]
            .map(|ns| if run > 0.0 { ns as f64 * 100.0 / run } else { 0.0 });
        Some(Self { depth, all, processes, slowest_ns, percent })
    }

    /// The bytes divided by the time of the process that spent most; bytes per second. `None` without bytes or time.
    pub fn rate(&self) -> Option<u64> {
        let bytes = self.all.read + self.all.written;
        (bytes > 0 && self.slowest_ns > 0).then(|| (bytes as f64 * 1e9 / self.slowest_ns as f64) as u64)
    }
}

pub fn cost(summary: &IoSummary) -> Markup {
    let costs: Vec<LayerCost> = LayerDepth::ALL.iter().filter_map(|depth| LayerCost::of(summary, *depth)).collect();
    let bar = |cost: &LayerCost| Bar {
        name: cost.depth.calls().into(),
        parts: cost.percent.map(|percent| (percent, format!("{percent:.1} %"))),
        note: format!("{:.1} % of the run time, mean of {}", cost.percent.iter().sum::<f64>(), cost.processes),
    };
    html! {
        h2 id="cost" { "Share of the run time in I/O" }
        (super::groups::key_of_times("each layer"))
        p.muted {
            "The mean over " @if summary.ranks() > 0 { "the ranks of the MPI job" } @else { "the processes that were in the layer" }
            ". Layers are nested: the time of a system call is part of the time of the MPI-IO call around it."
        }
        (bars(&costs.iter().map(bar).collect::<Vec<_>>(), AxisUnit::Percent, Some(100.0)))
        div.wide { table {
            tr {
                th { "layer" } th.n { "processes" } th.n { "operations" } th.n { "read" } th.n { "written" } th.n { "reading" } th.n { "writing" }
                th.n { "everything else" } th.n { "slowest process" } th.n { "bytes / slowest" }
            }
            @for cost in &costs {
                tr {
                    td { (cost.depth.calls()) }
                    td.n { (cost.processes) } td.n { (cost.all.calls) } td.n { (size(cost.all.read)) } td.n { (size(cost.all.written)) }
                    td.n { (span(cost.all.reading_ns)) } td.n { (span(cost.all.writing_ns)) } td.n { (span(cost.all.other_ns)) }
                    td.n { (span(cost.slowest_ns)) }
                    td.n { (cost.rate().map_or_else(|| "-".into(), |rate| format!("{}/s", size(rate)))) }
                }
            }
        } }
        p.muted { "Times of reading, writing and everything else are sums over all processes. The last column is the rate at which the run would have moved its bytes, had all processes taken as long as the slowest." }
    }
}

/// The number of operations of each kind at each layer.
pub fn counts(summary: &IoSummary) -> Markup {
    let of = |depth: LayerDepth| {
        let mut sums: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for ((_, _, layer, op), amounts) in summary.operations.iter().filter(|((_, at, ..), _)| *at == depth) {
            let (count, errors) = sums.entry((layer.as_str(), op.as_str())).or_default();
            (*count, *errors) = (*count + amounts.count, *errors + amounts.errors);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, (count, _))| Reverse(*count));
        sums
    };
    let bar = |((layer, op), (count, errors)): &((&str, &str), (u64, u64))| {
        let operation = probes::protocol(layer).and_then(|protocol| protocol.operation(op));
        let mut parts = [(0.0, String::new()), (0.0, String::new()), (0.0, String::new())];
        let index = match operation.and_then(|operation| operation.direction()) {
            Some(Direction::Read) => 0,
            Some(Direction::Written) => 1,
            None => 2,
        };
        if let Some(part) = parts.get_mut(index) {
            *part = (*count as f64, count.to_string());
        }
        let failed = if *errors > 0 { format!("; {errors} failed") } else { String::new() };
        Bar { name: (*op).into(), parts, note: format!("{count}{failed}") }
    };
    html! {
        h2 id="counts" { "Operations" }
        p.key { i.read {} "reads" i.written {} "writes" i.other {} "everything else" }
        @for depth in LayerDepth::ALL {
            @let sums = of(*depth);
            @if !sums.is_empty() {
                h3 { (depth.calls()) }
                (bars(&sums.iter().map(bar).collect::<Vec<_>>(), AxisUnit::Count, None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{record::End, summary::ProcessSummary};

    #[test]
    fn the_share_of_the_run_time_is_a_mean_over_all_ranks_idle_ones_too() {
        let mut summary =
            IoSummary { end: Some(End { seconds: 10.0, ranks: 4, ..End::default() }), ..IoSummary::default() };
        for pid in 0..4 {
            let share = ProcessShare {
                reading_ns: 2_000_000_000,
                other_ns: 1_000_000_000,
                read: 1 << 20,
                calls: 9,
                ..ProcessShare::default()
            };
            // One of the processes is mpirun itself, which has no rank.
            let rank = (pid > 0).then_some(pid);
            let at = [(LayerDepth::SystemCalls, share)].into();
            summary.processes.insert(pid + 1, ProcessSummary { rank, at, ..ProcessSummary::default() });
        }
        let cost = LayerCost::of(&summary, LayerDepth::SystemCalls).unwrap();
        assert_eq!((cost.processes, cost.slowest_ns, cost.all.calls), (4, 3_000_000_000, 36));
        assert_eq!(cost.percent.map(|percent| (percent * 100.0).round()), [1500.0, 0.0, 750.0]);
        assert_eq!(cost.rate(), Some((4 << 20) / 3));
        assert!(LayerCost::of(&summary, LayerDepth::Server).is_none());
    }
}
