//! The order in which files were read and written, and by which processes, according to their system calls.

use maud::{Markup, html};
use probes::Transfers;

use super::{
    axis::AxisUnit,
    charts::{Bar, bars},
    percent,
};
use crate::io::{
    files::{Manner, OneFile, by_file},
    record::IoHeader,
    rows::size,
    summary::IoSummary,
};

/// The most files that are listed at first, and in all.
const LISTED: usize = 10;
const MOST_LISTED: usize = 200;

pub fn pattern(header: &IoHeader, summary: &IoSummary) -> Markup {
    let uses = summary.end.as_ref().map_or(&[][..], |end| &end.files);
    if uses.is_empty() {
        return missing(header);
    }
    let files = by_file(uses);
    let (mut read, mut written) = (Transfers::default(), Transfers::default());
    for file in &files {
        read.add(&file.read);
        written.add(&file.written);
    }
    html! {
        h2 id="pattern" { "Access pattern" }
        p.muted {
            "Reads and writes by system calls, each compared with the one before it of the same process on the same file. "
            "Sequential: it begins where that one ended, or behind that; consecutive: just there. "
            "Unaligned: its offset is no multiple of 4 KiB."
        }
        p.key { i.read {} "reads" i.written {} "writes" }
        (bars(&order_bars(&read, 0).into_iter().chain(order_bars(&written, 1)).collect::<Vec<_>>(), AxisUnit::Count, None))
        (table_of_files(&files))
        (list(&files))
    }
}

fn missing(header: &IoHeader) -> Markup {
    let why = if header.layers.iter().any(|layer| layer == "syscalls") {
        "The recording has no file accesses. Either no measured process opened, read or wrote a file, or the kernel refused the BPF program that records \
         file accesses, or the recording was cut off."
    } else {
        "Files are noted where the layer syscalls is recorded."
    };
    html! { h2 id="pattern" { "Access pattern" } p { (why) } h2 id="files" { "Files" } p { (why) } }
}

fn order_bars(order: &Transfers, class: usize) -> Vec<Bar> {
    let word = if class == 0 { "reads" } else { "writes" };
    if order.calls == 0 {
        return Vec::new();
    }
    let bar = |name: String, count: u64| {
        let mut parts = [(0.0, String::new()), (0.0, String::new()), (0.0, String::new())];
        if let Some(part) = parts.get_mut(class) {
            *part = (count as f64, count.to_string());
        }
        Bar { name, parts, note: format!("{count}, {}", percent(count, order.calls)) }
    };
    vec![
        bar(format!("all {word}"), order.calls),
        bar("sequential".into(), order.sequential),
        bar("consecutive".into(), order.consecutive),
        bar("unaligned".into(), order.unaligned),
    ]
}

fn table_of_files(files: &[OneFile]) -> Markup {
    let row = |name: &str, wanted: &dyn Fn(&OneFile) -> bool| {
        let some: Vec<&OneFile> = files.iter().filter(|file| wanted(file)).collect();
        let count = some.len() as u64;
        let ends = || some.iter().map(|file| file.end());
        let (read, written) =
            some.iter().fold((0, 0), |(read, written), file| (read + file.read.bytes, written + file.written.bytes));
        html! {
            @if count > 0 {
                tr {
                    td { (name) } td.n { (count) } td.n { (size(read)) } td.n { (size(written)) }
                    td.n { (size(ends().sum::<u64>() / count)) } td.n { (size(ends().max().unwrap_or(0))) }
                }
            }
        }
    };
    html! {
        h2 id="files" { "Files" }
        div.wide { table {
            tr {
                th { "files" } th.n { "how many" } th.n { "read" } th.n { "written" } th.n { "used up to, mean" } th.n { "used up to, most" }
            }
            (row("all", &|_| true))
            @for manner in Manner::ALL { (row(manner.phrase(), &|file| file.manner() == *manner)) }
            (row("shared: used by several processes", &OneFile::is_shared))
            (row("own: used by one process", &|file| !file.is_shared()))
        } }
        p.muted { "Regular files that were opened, read or written. Used up to: the greatest offset at which a read or a write ended." }
    }
}

fn list(files: &[OneFile]) -> Markup {
    let moved: Vec<&OneFile> =
        files.iter().filter(|file| file.read.calls + file.written.calls > 0).take(MOST_LISTED).collect();
    let (first, more) = moved.split_at(LISTED.min(moved.len()));
    let rows = |files: &[&OneFile]| {
        html! {
            div.wide { table {
                tr {
                    th { "file" } th { "mount" } th.n { "processes" } th { "" } th.n { "accesses" } th.n { "bytes" } th.n { "sequential" }
                    th.n { "consecutive" } th.n { "unaligned" }
                }
                @for file in files {
                    @for (word, order) in [("reads", &file.read), ("writes", &file.written)].iter().filter(|(_, order)| order.calls > 0) {
                        tr {
                            td { code { (file.file) } } td { (file.mount) } td.n { (file.processes.len()) } td { (word) } td.n { (order.calls) }
                            td.n { (size(order.bytes)) } td.n { (percent(order.sequential, order.calls)) }
                            td.n { (percent(order.consecutive, order.calls)) } td.n { (percent(order.unaligned, order.calls)) }
                        }
                    }
                }
            } }
        }
    };
    html! {
        @if !first.is_empty() {
            h3 { "Files that moved most bytes" }
            (rows(first))
        }
        @if !more.is_empty() {
            details { summary { (more.len()) " more files" } (rows(more)) }
        }
    }
}
