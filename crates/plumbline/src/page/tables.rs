//! The tables: the slowest operations, what changed, where threads waited, and the rankings.

use maud::{Markup, html};
use model::{Changed, EventLine, Incident, PodNames, RankedProcess, Share, Waited};

use super::units::{bytes, grouped, micros, of_ms, time_of_day};

/// The most rows of a table; the daemon writes fewer.
const ROWS: usize = 50;
/// The most functions of a stack that are shown.
const FRAMES: usize = 6;

/// The slowest operations, each with its phases; empty without operations.
pub fn slowest(lines: &[EventLine<'_>]) -> Markup {
    if lines.is_empty() {
        return Markup::default();
    }
    let phase = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), of_ms);
    let time = |line: &EventLine<'_>| micros(&line.time).map_or_else(String::new, |at| time_of_day(at, 3));
    let (has_process, has_file) =
        (lines.iter().any(|line| !line.comm.is_empty()), lines.iter().any(|line| !line.file.is_empty()));
    html! {
        h2 { "The slowest operations" }
        div.wide { table {
            tr {
                th { "start (UTC)" } th { "operation" } th.n { "took" } th.n { "waiting in the client" } th.n { "network and server" }
                th.n { "arrival to caller" } th.n { "bytes" } @if has_process { th { "process" } } @if has_file { th { "file" } } th { "result" }
            }
            @for line in lines {
                tr {
                    td { (time(line)) } td { (line.operation) } td.n { strong { (of_ms(line.duration_ms)) } }
                    td.n { (phase(line.queue_ms)) } td.n { (phase(line.wire_ms)) } td.n { (phase(line.deliver_ms)) }
                    td.n { (bytes(line.bytes)) }
                    @if has_process { td { (line.comm) @if line.pid > 0 { " (" (line.pid) ")" } } }
                    @if has_file { td { (line.file) } }
                    td { (result(line)) }
                }
            }
        } }
    }
}

fn result<'a>(line: &'a EventLine<'_>) -> &'a str {
    match (line.in_flight, line.status.as_deref(), line.errno.as_deref()) {
        (true, ..) => "in flight",
        (_, Some(status), _) => status.trim_start_matches("STATUS_"),
        (_, None, Some(errno)) => errno,
        _ if line.failed => "failed",
        _ => "",
    }
}

/// The groups of operations to which the time beyond normal belongs, and the latency without them.
pub fn changed(changed: &[Changed]) -> Markup {
    let Some(first) = changed.first() else { return Markup::default() };
    let rate = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:?}"));
    html! {
        h2 { "What changed" }
        div.wide { table {
            tr {
                th { "operations by" } th {}
                th.n { @if first.p99_ms.is_some() { "of the time beyond normal" } @else { "of the failures" } }
                th.n { "per second" } th.n { "normally" } th.n { "p99 without them" }
            }
            @for Changed { by, name, share, per_second, normally_per_second, p99_without_ms, .. } in changed.iter().take(ROWS) {
                tr {
                    td { (by) } td { (name) } td.n { (format!("{:.0} %", share * 100.0)) } td.n { (format!("{per_second:?}")) }
                    td.n { (rate(*normally_per_second)) } td.n { (p99_without_ms.map_or_else(|| "–".to_owned(), of_ms)) }
                }
            }
        } }
        @if let Some(p99) = first.p99_ms { p.muted { "99 of 100 operations took at most " (of_ms(p99)) "." } }
    }
}

/// Where threads waited in the kernel.
pub fn waited(waited: &[Waited]) -> Markup {
    if waited.is_empty() {
        return Markup::default();
    }
    html! {
        h2 { "What waited where" }
        div.wide { table {
            tr { th { "who" } th { "process" } th { "state" } th { "in the kernel, innermost first" } th.n { "share" } th.n { "longest" } }
            @for Waited { role, comm, state, share, longest_ms, stack, .. } in waited.iter().take(ROWS) {
                tr {
                    td { (role) } td { (comm) } td { (state) }
                    td {
                        @for (depth, name) in stack.iter().take(FRAMES).enumerate() { @if depth > 0 { " ← " } code { (name) } }
                        @if stack.len() > FRAMES { " ← …" }
                    }
                    td.n { (format!("{:.0} %", share * 100.0)) } td.n { (or_dash(*longest_ms)) }
                }
            }
        } }
        p.muted {
            "Sampled while the incident was open: the threads whose operations were in flight, and the threads that take answers. "
            code { "stacks.folded" } " has the complete stacks."
        }
    }
}

/// A duration; a dash for none: a thread that was seen once, or an event of a connection.
fn or_dash(ms: f64) -> String {
    if ms > 0.0 { of_ms(ms) } else { "–".to_owned() }
}

/// The operations, mounts, processes and files with the most slow time.
pub fn rankings(incident: &Incident) -> Markup {
    let top = &incident.top;
    let operations = top.operations.iter().map(|of| (vec![of.operation.clone()], of.share));
    let mounts = top.mounts.iter().map(|of| {
        let mount = &of.mount;
        (vec![mount.mountpoint.clone(), mount.source.clone(), mount.server.clone(), mount.fstype.clone()], of.share)
    });
    let processes = top
        .processes
        .iter()
        .map(|of| (vec![of.pid.to_string(), of.comm.clone(), container(of), of.cgroup.clone()], of.share));
    let files = top.files.iter().map(|of| (vec![of.file.clone(), of.mountpoint.clone()], of.share));
    html! {
        (ranking("Operations", &["operation"], operations))
        (ranking("Mounts", &["mount point", "source", "server", "type"], mounts))
        (ranking("Processes", &["process", "name", "container", "cgroup"], processes))
        (ranking("Files", &["file", "mount point"], files))
    }
}

/// `shop/web-0/main (4d3f4d3f4d3f)`, as far as it is known.
fn container(of: &RankedProcess) -> String {
    let PodNames { namespace, pod, container_name, .. } = &of.names;
    let names = [namespace, pod, container_name].into_iter().filter(|name| !name.is_empty());
    match (names.map(String::as_str).collect::<Vec<_>>().join("/"), of.container.as_str()) {
        (names, "") => names,
        (names, id) if names.is_empty() => id.to_owned(),
        (names, id) => format!("{names} ({id})"),
    }
}

fn ranking(title: &str, columns: &[&str], rows: impl ExactSizeIterator<Item = (Vec<String>, Share)>) -> Markup {
    if rows.len() == 0 {
        return Markup::default();
    }
    html! {
        h2 { (title) }
        div.wide { table {
            tr { @for column in columns { th { (column) } } th.n { "slow" } th.n { "altogether" } }
            @for (cells, share) in rows.take(ROWS) {
                tr { @for cell in cells { td { (cell) } } td.n { (grouped(share.count)) } td.n { (or_dash(share.total_ms)) } }
            }
        } }
    }
}
