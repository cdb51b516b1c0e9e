//! An incident as one self-contained page: no script, no network, readable on paper.

use serde_json::Value;

/// Of every page.
pub const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.3rem}h2{font-size:1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8884;vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.layer{font-size:1.6rem;font-weight:600}\
.muted{opacity:.7}.bar{display:flex;height:1.4rem;border-radius:3px;overflow:hidden;margin:.5rem 0}\
.bar span{color:#fff;font-size:.75rem;padding:.15rem .3rem;overflow:hidden;white-space:nowrap}\
.queue{background:#7b6ca8}.send{background:#5a7fa8}.network{background:#c77d2e}.server{background:#b04a4a}\
.deliver{background:#4f8f5b}code{overflow-wrap:anywhere}";

/// The page of an `incident.json`.
pub fn page(incident: &Value) -> String {
    let mut html = String::from("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width\">");
    html.push_str(&format!("<title>{}</title><style>{STYLE}</style>", text(incident, "/id")));
    html.push_str(&format!("<h1>{}</h1>", text(incident, "/id")));
    html.push_str(&format!(
        "<p class=\"layer\">{}</p><p>{}: {} <span class=\"muted\">(limit {})</span></p>",
        headline(incident),
        text(incident, "/anomaly/name"),
        text(incident, "/anomaly/observed"),
        text(incident, "/anomaly/limit"),
    ));
    phases(&mut html, incident);
    html.push_str("<h2>Why</h2><ul>");
    for because in array(incident, "/verdict/because") {
        html.push_str(&format!("<li>{}</li>", escape(because.as_str().unwrap_or_default())));
    }
    html.push_str("</ul>");
    table(&mut html, incident, "Operations", "/top/operations", &["operation"]);
    calls(&mut html, incident);
    table(&mut html, incident, "Mounts", "/top/mounts", &["mountpoint", "source", "server", "fstype"]);
    table(&mut html, incident, "Processes", "/top/processes", &["pid", "comm", "container", "cgroup"]);
    table(&mut html, incident, "Files", "/top/files", &["file", "mountpoint"]);
    html.push_str("<h2>About</h2><table>");
    for (name, pointer) in [
        ("From", "/window/from"),
        ("To", "/window/to"),
        ("Detected", "/detected"),
        ("Rule", "/anomaly/rule"),
        ("Host", "/host/name"),
        ("Kernel", "/host/kernel"),
        ("Losses", "/losses"),
    ] {
        html.push_str(&format!("<tr><th>{name}<td><code>{}</code>", text(incident, pointer)));
    }
    html.push_str("</table></html>\n");
    html
}

fn headline(incident: &Value) -> String {
    let confidence = incident.pointer("/verdict/confidence").and_then(Value::as_f64).unwrap_or_default() * 100.0;
    match incident.pointer("/verdict/layer").and_then(Value::as_str) {
        Some(layer @ ("client" | "network" | "server")) => format!("The {layer} was slow ({confidence:.0} % sure)"),
        _ => "The evidence does not say who was slow".into(),
    }
}

/// One bar: the mean slow operation, phase by phase.
fn phases(html: &mut String, incident: &Value) {
    let names = ["queue", "send", "network", "server", "deliver"];
    let ms = |name: &str| incident.pointer(&format!("/verdict/phases_ms/{name}")).and_then(Value::as_f64);
    let total: f64 = names.iter().filter_map(|name| ms(name)).sum();
    if total <= 0.0 {
        return;
    }
    html.push_str("<div class=\"bar\">");
    for (name, ms) in names.iter().filter_map(|name| Some((name, ms(name).filter(|ms| *ms > 0.0)?))) {
        let share = ms / total * 100.0;
        html.push_str(&format!(
            "<span class=\"{name}\" style=\"width:{share:.1}%\" title=\"{name} {ms:.1} ms\">{name} {ms:.1} ms</span>"
        ));
    }
    html.push_str("</div><p class=\"muted\">the mean slow operation, phase by phase</p>");
}

fn table(html: &mut String, incident: &Value, title: &str, pointer: &str, columns: &[&str]) {
    let rows = array(incident, pointer);
    if rows.is_empty() {
        return;
    }
    html.push_str(&format!("<h2>{title}</h2><table><tr>"));
    for column in columns {
        html.push_str(&format!("<th>{column}"));
    }
    html.push_str("<th class=\"n\">slow<th class=\"n\">total ms");
    for row in rows {
        html.push_str("<tr>");
        for column in columns {
            html.push_str(&format!("<td>{}", text(row, &format!("/{column}"))));
        }
        html.push_str(&format!("<td class=\"n\">{}<td class=\"n\">{}", text(row, "/count"), text(row, "/total_ms")));
    }
    html.push_str("</table>");
}

/// The slowest system calls, each with the operations below it.
fn calls(html: &mut String, incident: &Value) {
    let calls = array(incident, "/calls");
    if calls.is_empty() {
        return;
    }
    html.push_str("<h2>Slowest system calls, and what ran below them</h2><table><tr><th>call<th>process<th>file");
    html.push_str("<th class=\"n\">after ms<th class=\"n\">ms<th>status");
    for call in calls {
        let cells = ["/operation", "/comm", "/file"].map(|field| format!("<td>{}", text(call, field)));
        html.push_str(&format!(
            "<tr>{}<td class=\"n\"><td class=\"n\">{}<td>{}",
            cells.concat(),
            text(call, "/duration_ms"),
            text(call, "/errno")
        ));
        children(html, call, "/children", "/children_count", "└");
        children(html, call, "/meanwhile", "/meanwhile_count", "meanwhile");
        if call.pointer("/children_incomplete") == Some(&Value::Bool(true)) {
            html.push_str(
                "<tr><td colspan=\"6\" class=\"muted\">more may be missing: they were not seen, or are overwritten by now",
            );
        }
    }
    html.push_str("</table>");
}

fn children(html: &mut String, call: &Value, pointer: &str, count: &str, mark: &str) {
    let listed = array(call, pointer);
    for child in listed {
        let status = if child.pointer("/in_flight") == Some(&Value::Bool(true)) {
            "in flight".into()
        } else {
            text(child, "/status")
        };
        html.push_str(&format!(
            "<tr><td>{mark} {}<td><td><td class=\"n\">{}<td class=\"n\">{}<td>{status}",
            text(child, "/operation"),
            text(child, "/after_ms"),
            text(child, "/duration_ms"),
        ));
    }
    let all = call.pointer(count).and_then(Value::as_u64).unwrap_or_default();
    let rest = all.saturating_sub(listed.len() as u64);
    if rest > 0 {
        html.push_str(&format!("<tr><td colspan=\"6\" class=\"muted\">{mark} and {rest} shorter ones"));
    }
}

fn array<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => escape(text),
        Some(other) => escape(&other.to_string()),
    }
}

/// Text that a browser shows as it is.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_hostile_name_stays_text() {
        let incident = json!({"id": "x", "top": {"processes": [{"pid": 1, "comm": "<script>alert(1)</script>"}]}});
        let page = page(&incident);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
    }

    #[test]
    fn an_unknown_layer_blames_nobody() {
        let incident = json!({"verdict": {"layer": "unknown", "confidence": 0.0}});
        assert!(page(&incident).contains("does not say who was slow"));
    }
}
