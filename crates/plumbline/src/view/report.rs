//! An incident as one self-contained page: no script, no network, readable on paper.

use model::{CallLine, Changed, ChildLine, Incident, Layer, PhasesMs, Share, Verdict, Waited};

/// Functions of a stack that are shown.
const FRAMES: usize = 6;

/// Of every page.
pub const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.3rem}h2{font-size:1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8884;vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.n{white-space:nowrap}.layer{font-size:1.6rem;font-weight:600}\
.muted{opacity:.7}.bar{display:flex;height:1.4rem;border-radius:3px;overflow:hidden;margin:.5rem 0}\
.bar span{color:#fff;font-size:.75rem;padding:.15rem .3rem;overflow:hidden;white-space:nowrap}\
.queue{background:#7b6ca8}.send{background:#5a7fa8}.network{background:#c77d2e}.server{background:#b04a4a}\
.deliver{background:#4f8f5b}code{overflow-wrap:anywhere}";

/// The page of an incident.
pub fn page(incident: &Incident) -> String {
    let Incident { id, anomaly, verdict, top, window, host, .. } = incident;
    let mut html = String::from("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width\">");
    html.push_str(&format!("<title>{0}</title><style>{STYLE}</style><h1>{0}</h1>", escape(id)));
    html.push_str(&format!(
        "<p class=\"layer\">{}</p><p>{}: {} <span class=\"muted\">(limit {})</span></p>",
        headline(incident),
        escape(&anomaly.name),
        escape(&anomaly.observed),
        escape(&anomaly.limit),
    ));
    phases(&mut html, &verdict.phases_ms);
    html.push_str("<h2>Why</h2><ul>");
    for because in &verdict.because {
        html.push_str(&format!("<li>{}</li>", escape(because)));
    }
    html.push_str("</ul>");
    changed(&mut html, &incident.changed);
    waited(&mut html, &incident.waited);
    let operations = top.operations.iter().map(|ranked| ([ranked.operation.as_str()], ranked.share));
    table(&mut html, "Operations", ["operation"], operations);
    calls(&mut html, &incident.calls);
    let mounts = top.mounts.iter().map(|ranked| {
        let mount = &ranked.mount;
        ([&mount.mountpoint, &mount.source, &mount.server, &mount.fstype].map(String::as_str), ranked.share)
    });
    table(&mut html, "Mounts", ["mountpoint", "source", "server", "fstype"], mounts);
    let pids: Vec<_> = top.processes.iter().map(|ranked| ranked.pid.to_string()).collect();
    let processes = top.processes.iter().zip(&pids).map(|(ranked, pid)| {
        ([pid, &ranked.comm, &ranked.container, &ranked.cgroup].map(String::as_str), ranked.share)
    });
    table(&mut html, "Processes", ["pid", "comm", "container", "cgroup"], processes);
    let files = top.files.iter().map(|ranked| ([ranked.file.as_str(), &ranked.mountpoint], ranked.share));
    table(&mut html, "Files", ["file", "mountpoint"], files);
    html.push_str("<h2>About</h2><table>");
    for (name, text) in [
        ("From", &window.from),
        ("To", &window.to),
        ("Detected", &incident.detected),
        ("Rule", &anomaly.rule),
        ("Host", &host.name),
        ("Kernel", &host.kernel),
        ("Losses", &serde_json::to_string(&incident.losses).unwrap_or_default()),
    ] {
        html.push_str(&format!("<tr><th>{name}<td><code>{}</code>", escape(text)));
    }
    html.push_str("</table></html>\n");
    html
}

fn headline(incident: &Incident) -> String {
    let Verdict { layer, confidence, cause, .. } = &incident.verdict;
    let sure = format!("({:.0} % sure)", confidence * 100.0);
    match (layer, cause) {
        (_, Some(cause)) => format!("{}: {} {sure}", capital(layer.name()), cause.describe()),
        (Layer::Unknown, None) => "The evidence does not say who was at fault".into(),
        (layer, None) => format!("{} {sure}", capital(layer.name())),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// One bar: the mean slow operation, phase by phase.
fn phases(html: &mut String, phases: &PhasesMs) {
    let known = || phases.named().into_iter().filter_map(|(name, ms)| Some((name, ms.filter(|ms| *ms > 0.0)?)));
    let total: f64 = known().map(|(_, ms)| ms).sum();
    if total <= 0.0 {
        return;
    }
    html.push_str("<div class=\"bar\">");
    for (name, ms) in known() {
        let share = ms / total * 100.0;
        html.push_str(&format!(
            "<span class=\"{name}\" style=\"width:{share:.1}%\" title=\"{name} {ms:.1} ms\">{name} {ms:.1} ms</span>"
        ));
    }
    html.push_str("</div><p class=\"muted\">the mean slow operation, phase by phase</p>");
}

fn table<'a, const N: usize>(
    html: &mut String,
    title: &str,
    columns: [&str; N],
    rows: impl ExactSizeIterator<Item = ([&'a str; N], Share)>,
) {
    if rows.len() == 0 {
        return;
    }
    html.push_str(&format!("<h2>{title}</h2><table><tr>"));
    for column in columns {
        html.push_str(&format!("<th>{column}"));
    }
    html.push_str("<th class=\"n\">slow<th class=\"n\">total ms");
    for (cells, share) in rows {
        html.push_str("<tr>");
        for cell in cells {
            html.push_str(&format!("<td>{}", escape(cell)));
        }
        html.push_str(&format!("<td class=\"n\">{}<td class=\"n\">{:?}", share.count, share.total_ms));
    }
    html.push_str("</table>");
}

/// What the time beyond normal belongs to, and what would have been without it.
fn changed(html: &mut String, changed: &[Changed]) {
    let Some(first) = changed.first() else { return };
    let of_what = if first.p99_ms.is_some() { "of the time beyond normal" } else { "of the failures" };
    html.push_str(&format!("<h2>What changed</h2><table><tr><th>operations by<th><th class=\"n\">{of_what}"));
    html.push_str("<th class=\"n\">per second<th class=\"n\">normally<th class=\"n\">p99 without them, ms");
    let figure = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:?}"));
    for Changed { by, name, share, per_second, normally_per_second, p99_without_ms, .. } in changed {
        html.push_str(&format!(
            "<tr><td>{}<td>{}<td class=\"n\">{:.0} %<td class=\"n\">{per_second:?}<td class=\"n\">{}<td class=\"n\">{}",
            escape(by),
            escape(name),
            share * 100.0,
            figure(*normally_per_second),
            figure(*p99_without_ms),
        ));
    }
    html.push_str("</table>");
    if let Some(p99) = first.p99_ms {
        html.push_str(&format!("<p class=\"muted\">99 of 100 operations took at most {p99:?} ms</p>"));
    }
}

/// Where threads waited in the kernel.
fn waited(html: &mut String, waited: &[Waited]) {
    if waited.is_empty() {
        return;
    }
    html.push_str("<h2>What waited where</h2><table><tr><th>who<th>process<th>state<th>in the kernel, innermost first");
    html.push_str("<th class=\"n\">share<th class=\"n\">longest ms");
    for Waited { role, comm, state, share, longest_ms, stack, .. } in waited {
        let shown: Vec<_> = stack.iter().take(FRAMES).map(|name| format!("<code>{}</code>", escape(name))).collect();
        let more = if stack.len() > FRAMES { " \u{2190} ..." } else { "" };
        let cells = [role, comm, state].map(|cell| format!("<td>{}", escape(cell)));
        html.push_str(&format!(
            "<tr>{}<td>{}{more}<td class=\"n\">{:.0} %<td class=\"n\">{longest_ms:?}",
            cells.concat(),
            shown.join(" \u{2190} "),
            share * 100.0,
        ));
    }
    html.push_str("</table><p class=\"muted\">threads that asked for what was in flight, and threads that take answers, sampled while the ");
    html.push_str("incident was open; <code>stacks.folded</code> has the whole stacks</p>");
}

/// The slowest system calls, each with the operations below it.
fn calls(html: &mut String, calls: &[CallLine<'_>]) {
    if calls.is_empty() {
        return;
    }
    html.push_str("<h2>Slowest system calls, and what ran below them</h2><table><tr><th>call<th>process<th>file");
    html.push_str("<th class=\"n\">after ms<th class=\"n\">ms<th>status");
    for CallLine { event: call, below } in calls {
        let cells = [&call.operation, call.comm.as_str(), &call.file].map(|cell| format!("<td>{}", escape(cell)));
        html.push_str(&format!(
            "<tr>{}<td class=\"n\"><td class=\"n\">{:?}<td>{}",
            cells.concat(),
            call.duration_ms,
            escape(call.errno.as_deref().unwrap_or_default())
        ));
        let Some(below) = below else { continue };
        children(html, &below.children, below.children_count, "└");
        children(html, &below.meanwhile, below.meanwhile_count, "meanwhile");
        if below.children_incomplete {
            html.push_str(
                "<tr><td colspan=\"6\" class=\"muted\">more may be missing: they were not seen, or are overwritten by now",
            );
        }
    }
    html.push_str("</table>");
}

fn children(html: &mut String, listed: &[ChildLine<'_>], all: usize, mark: &str) {
    for child in listed {
        let status = if child.in_flight { "in flight" } else { child.status.as_deref().unwrap_or_default() };
        html.push_str(&format!(
            "<tr><td>{mark} {}<td><td><td class=\"n\">{:?}<td class=\"n\">{:?}<td>{}",
            escape(&child.operation),
            child.after_ms,
            child.duration_ms,
            escape(status),
        ));
    }
    let rest = all.saturating_sub(listed.len());
    if rest > 0 {
        html.push_str(&format!("<tr><td colspan=\"6\" class=\"muted\">{mark} and {rest} shorter ones"));
    }
}

/// Text that a browser shows as it is.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(json: &str) -> String {
        page(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn a_hostile_name_stays_text() {
        let page = page_of(r#"{"id": "x", "top": {"processes": [{"pid": 1, "comm": "<script>alert(1)</script>"}]}}"#);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
    }

    #[test]
    fn an_unknown_layer_blames_nobody() {
        let page = page_of(r#"{"verdict": {"layer": "unknown", "confidence": 0.0}}"#);
        assert!(page.contains("does not say who was at fault"));
    }

    #[test]
    fn an_incident_of_nothing_is_a_page_all_the_same() {
        assert!(page_of("{}").ends_with("</html>\n"));
    }
}
