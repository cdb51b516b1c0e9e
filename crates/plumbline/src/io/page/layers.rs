//! Bytes and access sizes, layer by layer.

use maud::{Markup, html};
use model::{Direction, SIZES};

use super::{
    axis::AxisUnit,
    charts::{Bar, bars, columns},
    key, percent,
};
use crate::io::{
    layers::{LayerBytes, LayerDepth},
    record::IoHeader,
    rows::size,
    summary::IoSummary,
};

pub fn layers(header: &IoHeader, summary: &IoSummary) -> Markup {
    let watched: Vec<LayerDepth> =
        LayerDepth::ALL.iter().filter(|depth| depth.is_one_of(&header.layers)).copied().collect();
    let moved = |flow: &LayerBytes, depth: LayerDepth| {
        [Direction::Read, Direction::Written].map(|way| flow.bytes(way, depth).unwrap_or(0))
    };
    let most_of = |flow: &LayerBytes| LayerDepth::ALL.iter().map(|depth| moved(flow, *depth).iter().sum::<u64>()).max();
    // The mount with the most bytes comes first, and the others are drawn to its scale.
    let mut flows: Vec<_> = summary.flows.iter().collect();
    flows.sort_by_key(|(_, flow)| std::cmp::Reverse(most_of(flow)));
    let most = flows.first().and_then(|(_, flow)| most_of(flow)).map(|most| most as f64);
    let bars_of = |flow: &LayerBytes| -> Vec<Bar> {
        let bytes = watched.iter().map(|depth| (*depth, moved(flow, *depth)));
        bytes
            .filter(|(_, bytes)| bytes.iter().sum::<u64>() > 0)
            .map(|(depth, bytes)| bar(depth.phrase(), bytes))
            .collect()
    };
    html! {
        h2 id="layers" { "Bytes by file system, layer by layer" }
        (key())
        p.muted {
            "Less in the kernel than asked of MPI-IO: the library gathered small accesses, or answered from its own buffers. \
             Less at the server than above: the page cache answered, or had not yet written back; more: it read ahead."
        }
        @for ((fstype, mount), flow) in flows {
            @let of_flow = bars_of(flow);
            @if !of_flow.is_empty() {
                h3 { (mount) " " span.muted { (fstype) } }
                (bars(&of_flow, AxisUnit::Bytes, most))
            }
        }
    }
}

fn bar(name: &str, [read, written]: [u64; 2]) -> Bar {
    let said = [read, written].into_iter().filter(|bytes| *bytes > 0).map(size);
    let note = said.collect::<Vec<_>>().join(" + ");
    let parts = [(read as f64, size(read)), (written as f64, size(written)), (0.0, String::new())];
    Bar { name: name.into(), parts, note }
}

pub fn sizes(summary: &IoSummary) -> Markup {
    let of = |depth: LayerDepth, way: Direction| {
        let of = summary.transfers.iter().filter(|((other, _, direction), _)| *other == depth && *direction == way);
        of.fold([0_u64; SIZES], |mut sum, (_, amounts)| {
            sum.iter_mut().zip(amounts.sizes).for_each(|(sum, more)| *sum += more);
            sum
        })
    };
    let small = |depth: LayerDepth, limit| {
        let (all, small) = summary.smaller_than(depth, limit);
        percent(small, all)
    };
    html! {
        h2 id="sizes" { "Access sizes" }
        (key())
        @for depth in LayerDepth::ALL.iter().copied() {
            @let (all, _) = summary.smaller_than(depth, 1);
            @if all > 0 {
                h3 { (depth.calls()) }
                p.muted {
                    (all) " accesses; below 4 KiB " (small(depth, 1 << 12)) ", below 64 KiB " (small(depth, 1 << 16)) ", below 1 MiB " (small(depth, 1 << 20))
                }
                (columns(&of(depth, Direction::Read), &of(depth, Direction::Written)))
            }
        }
    }
}
