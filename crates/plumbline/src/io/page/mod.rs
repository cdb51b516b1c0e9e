//! A recording as one self-contained page: no script, no network, readable on paper.

mod charts;
mod course;

use diagnose::span;
use model::Direction;

use super::{
    layers::{Depth, Flow},
    record::Header,
    rows::size,
    summary::Summary,
};
use crate::view::{
    event::milliseconds,
    report::{STYLE, escape},
};

/// Beside the style of an incident's page.
const MORE_STYLE: &str = "\
body{max-width:72rem}h3{font-size:.95rem;margin-bottom:.2rem}svg{display:block;width:100%;height:auto;margin:.5rem 0}svg text{fill:currentColor;font:12px system-ui,sans-serif}\
svg .faint{opacity:.65}svg .grid{stroke:currentColor;opacity:.15}.tiles{display:flex;flex-wrap:wrap;gap:1rem;margin:1rem 0}\
.tiles div{border:1px solid #8884;border-radius:6px;padding:.5rem .9rem;min-width:8rem}.tiles b{display:block;font-size:1.3rem;font-weight:600}\
.read{fill:#4a7fb5;background:#4a7fb5}.written{fill:#c77d2e;background:#c77d2e}.other{fill:#7b6ca8;background:#7b6ca8}\
.key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .4em 0 1em;vertical-align:-.05em}\
.warning{border-left:4px solid #b04a4a;padding:.2rem .8rem}.wide{overflow-x:auto}h2{border-top:1px solid #8884;padding-top:1rem}";

/// Processes that have a bar of their own.
const MOST_PROCESSES: usize = 32;
/// Rows of the table of operations.
const MOST_OPERATIONS: usize = 200;

/// The page of a recording. `whole`: it ends where it should.
pub fn page(header: &Header, summary: &Summary, whole: bool) -> String {
    let title = match header.command.as_slice() {
        [] => format!("I/O on {}", header.host),
        command => format!("I/O of {}", command.join(" ")),
    };
    let title = escape(&shortened(&title, 160));
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}{MORE_STYLE}</style><h1>{title}</h1>\n"
    );
    html.push_str(&format!(
        "<p>{} · Linux {} · from {} UTC for {} · layers: {}{}</p>\n",
        escape(&header.host),
        escape(&header.kernel),
        escape(&header.started.split('.').next().unwrap_or_default().replace('T', " ")),
        span((summary.seconds() * 1e9) as u64),
        escape(&header.layers.join(", ")),
        summary.end.as_ref().and_then(|end| end.status).map_or_else(String::new, |code| format!(" · exit code {code}")),
    ));
    warnings(&mut html, summary, whole);
    if summary.operations.is_empty() {
        html.push_str("<p>Nothing was asked of the file systems that were looked at.</p></html>\n");
        return html;
    }
    tiles(&mut html, summary);
    layers(&mut html, header, summary);
    sizes(&mut html, summary);
    processes(&mut html, summary);
    course::over_time(&mut html, summary);
    slowest(&mut html, header, summary);
    operations(&mut html, summary);
    html.push_str("</html>\n");
    html
}

fn warnings(html: &mut String, summary: &Summary, whole: bool) {
    let mut warnings = Vec::new();
    if !whole {
        warnings.push("The recording has no end: it was cut off, or is still being made.".to_owned());
    }
    if summary.not_understood > 0 {
        warnings.push(format!("{} entries are of operations that this version does not know.", summary.not_understood));
    }
    let losses = summary.end.iter().flat_map(|end| &end.losses);
    warnings.extend(losses.map(|(cause, lost)| format!("{cause}: {lost} operations.")));
    for warning in warnings {
        html.push_str(&format!("<p class=\"warning\">{}</p>\n", escape(&warning)));
    }
}

/// The figures that come first.
fn tiles(html: &mut String, summary: &Summary) {
    let depth = summary.main_depth();
    let moved = |direction| {
        let of = summary.transfers.iter().filter(|((other, _, way), _)| *other == depth && *way == direction);
        of.map(|(_, amounts)| amounts.bytes).sum::<u64>()
    };
    let of_depth =
        || summary.operations.iter().filter(|((_, other, ..), _)| *other == depth).map(|(_, amounts)| amounts);
    let calls: u64 = of_depth().map(|amounts| amounts.count).sum();
    let errors: u64 = of_depth().map(|amounts| amounts.errors).sum();
    let ns: u64 = of_depth().map(|amounts| amounts.sum).sum();
    let (all, small) = summary.smaller_than(depth, 1 << 16);
    html.push_str("<div class=\"tiles\">");
    for (figure, what) in [
        (size(moved(Direction::Read)), "read".to_owned()),
        (size(moved(Direction::Written)), "written".into()),
        (calls.to_string(), format!("{} ({errors} failed)", depth.calls())),
        (span(ns), format!("in them, by {} processes", summary.processes.len())),
        (percent(small, all), "of reads and writes below 64 KiB".into()),
    ] {
        html.push_str(&format!("<div><b>{figure}</b>{what}</div>"));
    }
    html.push_str("</div>\n");
}

fn layers(html: &mut String, header: &Header, summary: &Summary) {
    html.push_str("<h2 id=\"layers\">Bytes, layer by layer</h2>\n");
    html.push_str(KEY);
    html.push_str(
        "<p class=\"muted\">Less in the kernel than asked of MPI-IO: the library gathered small accesses, or answered from its own buffers. \
         Less at the server than above: the page cache answered, or had not yet written back; more: it read ahead.</p>\n",
    );
    let watched: Vec<Depth> = Depth::ALL.iter().filter(|depth| depth.is_one_of(&header.layers)).copied().collect();
    // What moved most is what the run is about: it comes first, and the others are drawn to its scale.
    let moved = |flow: &Flow, depth: Depth| {
        [Direction::Read, Direction::Written].map(|way| flow.bytes(way, depth).unwrap_or(0))
    };
    let most_of = |flow: &Flow| Depth::ALL.iter().map(|depth| moved(flow, *depth).iter().sum::<u64>()).max();
    let mut flows: Vec<_> = summary.flows.iter().collect();
    flows.sort_by_key(|(_, flow)| std::cmp::Reverse(most_of(flow)));
    let most = flows.first().and_then(|(_, flow)| most_of(flow));
    for ((fstype, mount), flow) in flows {
        let bars: Vec<charts::Bar> = Depth::ALL
            .iter()
            .filter(|depth| watched.contains(depth))
            .filter_map(|depth| {
                let bytes = moved(flow, *depth);
                (bytes.iter().sum::<u64>() > 0).then(|| charts::Bar::of_bytes(depth.phrase(), bytes))
            })
            .collect();
        if !bars.is_empty() {
            html.push_str(&format!("<h3>{} <span class=\"muted\">{}</span></h3>\n", escape(mount), escape(fstype)));
            charts::bars(html, &bars, most);
        }
    }
}

/// What the colours mean.
const KEY: &str = "<p class=\"key\"><i class=\"read\"></i>read<i class=\"written\"></i>written</p>\n";

fn sizes(html: &mut String, summary: &Summary) {
    html.push_str("<h2 id=\"sizes\">Access sizes</h2>\n");
    html.push_str(KEY);
    for depth in Depth::ALL {
        let of = |way| {
            let of = summary.transfers.iter().filter(|((other, _, direction), _)| other == depth && *direction == way);
            of.fold([0_u64; model::SIZES], |mut sum, (_, amounts)| {
                sum.iter_mut().zip(amounts.sizes).for_each(|(sum, more)| *sum += more);
                sum
            })
        };
        let (read, written) = (of(Direction::Read), of(Direction::Written));
        let (all, _) = summary.smaller_than(*depth, 1);
        if all == 0 {
            continue;
        }
        let small = |limit| percent(summary.smaller_than(*depth, limit).1, all);
        html.push_str(&format!(
            "<h3>{}</h3><p class=\"muted\">{all} accesses; below 4 KiB {}, below 64 KiB {}, below 1 MiB {}</p>\n",
            depth.phrase(),
            small(1 << 12),
            small(1 << 16),
            small(1 << 20)
        ));
        charts::columns(html, &read, &written);
    }
}

fn processes(html: &mut String, summary: &Summary) {
    let depth = summary.main_depth();
    html.push_str(&format!(
        "<h2 id=\"processes\">Time in I/O, by process</h2><p class=\"key\">in {}:<i class=\"read\"></i>reading\
         <i class=\"written\"></i>writing<i class=\"other\"></i>everything else</p>\n",
        depth.calls()
    ));
    let mut all: Vec<_> = summary.processes.iter().collect();
    let share = |process: &super::summary::Process| process.at.get(&depth).copied().unwrap_or_default();
    all.sort_by_key(|(pid, process)| (std::cmp::Reverse(share(process).ns()), **pid));
    let with_time = all.iter().filter(|(_, process)| share(process).ns() > 0);
    let bars: Vec<_> = with_time
        .clone()
        .take(MOST_PROCESSES)
        .map(|(pid, process)| {
            let share = share(process);
            let mut note = format!(
                "{} of {}",
                percent_of_time(share.ns(), summary.seconds()),
                span((summary.seconds() * 1e9) as u64)
            );
            if let Some(above) = process.at.get(&Depth::Library).filter(|_| depth != Depth::Library) {
                note.push_str(&format!("; in MPI-IO {}", span(above.ns())));
            }
            charts::Bar::of_times(&name(**pid, process), [share.reading_ns, share.writing_ns, share.other_ns], &note)
        })
        .collect();
    charts::bars(html, &bars, None);
    let rest = with_time.count().saturating_sub(MOST_PROCESSES);
    if rest > 0 {
        html.push_str(&format!("<p class=\"muted\">and {rest} processes that took less time</p>\n"));
    }
}

/// What a process is called on the page.
fn name(pid: u32, process: &super::summary::Process) -> String {
    let job = if process.job.is_empty() { String::new() } else { format!(" ({})", process.job) };
    if pid == 0 { "without a name".into() } else { format!("{pid} {}{job}", process.comm) }
}

fn slowest(html: &mut String, header: &Header, summary: &Summary) {
    html.push_str(&format!(
        "<h2 id=\"slowest\">Slowest files</h2><p class=\"muted\">operations of {} ms or more</p>\n",
        header.slow_ms
    ));
    let files = summary.end.as_ref().map_or(&[][..], |end| &end.slowest);
    if files.is_empty() {
        html.push_str("<p>None.</p>\n");
        return;
    }
    html.push_str(
        "<div class=\"wide\"><table><tr><th>file<th>mount<th>layer<th class=\"n\">slow calls<th class=\"n\">total<th class=\"n\">longest\
         <th>by<th class=\"n\">bytes\n",
    );
    for file in files {
        let ms = |ms: f64| span((ms * 1e6) as u64);
        html.push_str(&format!(
            "<tr><td><code>{}</code><td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td>{}<td class=\"n\">{}\n",
            escape(&file.file),
            escape(&file.mount),
            escape(&file.layer),
            file.calls,
            ms(file.total_ms),
            ms(file.longest_ms),
            escape(&file.op),
            size(file.bytes),
        ));
    }
    html.push_str("</table></div>\n");
}

fn operations(html: &mut String, summary: &Summary) {
    html.push_str(
        "<h2 id=\"operations\">Every operation</h2><div class=\"wide\"><table><tr><th>mount<th>layer<th>operation<th class=\"n\">calls\
         <th class=\"n\">bytes<th class=\"n\">failed<th class=\"n\">total ms<th class=\"n\">mean ms<th class=\"n\">median ms\
         <th class=\"n\">99 % below ms\n",
    );
    for ((mount, _, layer, op), amounts) in summary.operations.iter().take(MOST_OPERATIONS) {
        let ms = |ns: Option<u64>| ns.map_or_else(|| "-".into(), |ns| format!("{:.3}", milliseconds(ns)));
        html.push_str(&format!(
            "<tr><td>{}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}\
             <td class=\"n\">{}\n",
            escape(mount),
            escape(layer),
            escape(op),
            amounts.count,
            amounts.bytes,
            amounts.errors,
            ms(Some(amounts.sum)),
            ms(amounts.sum.checked_div(amounts.count)),
            ms(amounts.quantile(0.5)),
            ms(amounts.quantile(0.99)),
        ));
    }
    html.push_str("</table></div>\n");
    let rest = summary.operations.len().saturating_sub(MOST_OPERATIONS);
    if rest > 0 {
        html.push_str(&format!("<p class=\"muted\">and {rest} more rows</p>\n"));
    }
}

fn percent(part: u64, all: u64) -> String {
    if all == 0 { "-".into() } else { format!("{:.0} %", part as f64 * 100.0 / all as f64) }
}

fn percent_of_time(ns: u64, seconds: f64) -> String {
    if seconds > 0.0 { format!("{:.1} %", ns as f64 / 1e7 / seconds) } else { "-".into() }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.into() } else { text.chars().take(most).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::record::{Entry, Interval, Line};

    #[test]
    fn a_hostile_name_stays_text_and_an_empty_recording_says_so() {
        let hostile = "<script>alert(1)</script>".to_owned();
        let header = Header { command: vec![hostile.clone()], layers: vec!["syscalls".into()], ..Header::default() };
        assert!(page(&header, &Summary::default(), true).contains("Nothing was asked"));
        let entry = Entry {
            layer: "syscalls".into(),
            op: "write".into(),
            fstype: hostile.clone(),
            mount: hostile.clone(),
            pid: 1,
            comm: hostile.clone(),
            job: hostile,
            rank: None,
            calls: 1,
            bytes: 4096,
            errors: 0,
            ns: 1_000_000,
            sizes: vec![(12, 1)],
            latencies: vec![(40, 1)],
        };
        let mut summary = Summary::default();
        summary.add(Line::Interval(Interval { at_s: 1.0, seconds: 1.0, entries: vec![entry] }));
        let page = page(&header, &summary, false);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script") && page.contains("cut off"), "{page}");
        assert!(!page.contains("http"), "nothing comes from elsewhere");
        for section in ["layers", "sizes", "processes", "time", "slowest", "operations"] {
            assert!(page.contains(&format!("<h2 id=\"{section}\">")), "{section}");
        }
    }
}
