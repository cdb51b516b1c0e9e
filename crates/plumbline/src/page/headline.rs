//! The top of the page: which host noticed what, where, since when, how bad it is, and the cause with its confidence.

use diagnose::{baseline, counted, latency, span};
use maud::{Markup, html};
use model::{Alternative, Cause, Incident, IncidentState, Layer, SNAPSHOT, Verdict};

use super::{
    normal::NormalDurations,
    units::{grouped, lasted, moment},
};

/// The least confidence at which a culprit is named. `diagnose` has the same limit, but the bundle may be another
/// program's.
const NAMED: f64 = 0.8;

/// The layer and the cause; `None` if the confidence is too low to name them.
fn culprit(incident: &Incident) -> Option<(Layer, Option<Cause>)> {
    let verdict = &incident.verdict;
    let is_named = verdict.layer != Layer::Unknown && verdict.confidence >= NAMED;
    is_named.then_some((verdict.layer, verdict.cause))
}

/// The first sentence.
pub fn sentence(incident: &Incident, normal: &NormalDurations) -> String {
    let host = if incident.host.name.is_empty() { "a host" } else { &incident.host.name };
    if incident.anomaly.kind == SNAPSHOT {
        return format!(
            "Plumbline on {host} took this snapshot at {}; nothing was detected.",
            moment(&incident.detected)
        );
    }
    let since = match incident.first_seen.as_str() {
        "" => String::new(),
        first_seen => format!(" since {}", moment(first_seen)),
    };
    let (what, normally) = what(incident, normal);
    format!("Plumbline on {host} noticed {what}{}{since}{normally}: {}.", place(incident), why(incident))
}

/// The observation, and its comparison with the normal (empty if not known).
fn what(incident: &Incident, normal: &NormalDurations) -> (String, String) {
    let top = incident.top.operations.first();
    let is_slow = [latency::KIND, baseline::KIND].contains(&incident.anomaly.kind.as_ref());
    let Some(top) = top.filter(|top| is_slow && top.share.count > 0) else {
        let observed = incident.anomaly.observed.trim_end_matches('.');
        let what = if observed.is_empty() { "that a rule was broken" } else { observed };
        return (what.to_owned(), String::new());
    };
    let slow = counted(top.share.count, &format!("slow {} operation", top.operation));
    let mean = span((top.share.total_ms.max(0.0) / top.share.count as f64 * 1e6) as u64);
    let normally = match normal.median() {
        Some(median) => {
            format!(" instead of {} (the median of the last {} before)", span(median), grouped(normal.count()))
        }
        None => String::new(),
    };
    (slow, format!(", which took {mean} on average{normally}"))
}

/// The mount, its source and its server; empty if not known.
fn place(incident: &Incident) -> String {
    let Some(mount) = incident.mount() else { return String::new() };
    let named = |label: &str, name: &str| if name.is_empty() { None } else { Some(format!("{label}{name}")) };
    let about =
        [named("", &mount.source), named("on server ", &mount.server)].into_iter().flatten().collect::<Vec<_>>();
    let at = if mount.mountpoint.is_empty() { "a mount" } else { &mount.mountpoint };
    let more = match incident.top.mounts.len() {
        0 | 1 => String::new(),
        mounts => format!(" and {}", counted(mounts as u64 - 1, "other mount")),
    };
    if about.is_empty() { format!(" at {at}{more}") } else { format!(" at {at} ({}){more}", about.join(" ")) }
}

fn why(incident: &Incident) -> String {
    match culprit(incident) {
        Some((_, Some(cause))) => format!("{} ({})", cause.describe(), sure(&incident.verdict)),
        Some((layer, None)) => format!("the {} is at fault ({})", layer.name(), sure(&incident.verdict)),
        None => "the evidence does not show which layer was at fault".into(),
    }
}

fn sure(verdict: &Verdict) -> String {
    let proven = if verdict.proven { "proven by what the server's Plumbline saw, " } else { "" };
    format!("{proven}{:.0} % sure", verdict.confidence.clamp(0.0, 1.0) * 100.0)
}

/// The verdict in large letters. If it is unknown, the likeliest causes and how to tell them apart.
pub fn verdict(incident: &Incident) -> Markup {
    if incident.anomaly.kind == SNAPSHOT {
        return Markup::default();
    }
    let alternatives = incident.verdict.alternatives.iter().take(2);
    html! {
        @match culprit(incident) {
            Some((layer, cause)) => div class={ "verdict " (layer.name()) } {
                p.layer { (who(layer)) @if let Some(cause) = cause { ": " (cause.describe()) } }
                p { (sure(&incident.verdict)) @if alternatives.len() > 0 { "; otherwise " (listed(alternatives)) } }
            },
            None => div.verdict {
                p.layer { "The evidence does not show which layer was at fault" }
                @if alternatives.len() > 0 { p { "Likeliest: " (listed(alternatives)) "." } }
                @if let Some(apart) = next_step(incident) { p { (apart) } }
            },
        }
    }
}

/// The layer's name on the page.
fn who(layer: Layer) -> &'static str {
    match layer {
        Layer::Client => "This host (client)",
        Layer::Network => "Network",
        Layer::Server => "Server",
        Layer::Unknown => "Unknown",
    }
}

fn listed<'a>(alternatives: impl Iterator<Item = &'a Alternative>) -> String {
    alternatives.map(Alternative::describe).collect::<Vec<_>>().join(", or ")
}

/// How to tell the likeliest causes apart: the end of the last sentence of the reasons.
fn next_step(incident: &Incident) -> Option<&str> {
    let last = incident.verdict.because.last()?.strip_prefix("Likeliest: ")?;
    let (_, apart) = last.split_once("%). ")?;
    Some(apart).filter(|apart| !apart.is_empty())
}

/// The incident's state, its duration, and the number of operations.
pub fn state(incident: &Incident) -> Markup {
    let duration = lasted(&incident.first_seen, &incident.last_seen);
    html! {
        p.state {
            span class={ "pill " (incident.state.name()) } { (incident.state.name()) }
            @if let Some(duration) = duration {
                @if incident.state == IncidentState::Open { " for " } @else { " after " }
                strong { (duration) } " · " (moment(&incident.first_seen)) " to " (moment(&incident.last_seen))
            }
            @if incident.operations > 0 { " · " (counted(incident.operations, "operation")) " counted" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Incident {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_first_sentence_says_all_that_is_known() {
        let incident = read(
            r#"{"first_seen": "2026-03-01T12:00:00Z", "last_seen": "2026-03-01T12:00:05Z", "host": {"name": "client-a"},
                "anomaly": {"type": "latency", "probe": "smb"},
                "verdict": {"layer": "server", "cause": "slow_server", "confidence": 0.97},
                "top": {"operations": [{"operation": "SMB2_WRITE", "count": 37, "total_ms": 7400.0}],
                        "mounts": [{"mountpoint": "/mnt/a", "source": "//srv/share", "server": "srv", "fstype": "cifs"}]}}"#,
        );
        let mut normal = NormalDurations::of(&incident);
        (0..100).for_each(|_| normal.add("SMB2_WRITE", 2_000_000));
        (0..200).for_each(|_| normal.add("SMB2_READ", 9_000_000));
        assert_eq!(
            sentence(&incident, &normal),
            "Plumbline on client-a noticed 37 slow SMB2_WRITE operations at /mnt/a (//srv/share on server srv) since 2026-03-01 12:00:00 UTC, \
             which took 200 ms on average instead of 2 ms (the median of the last 100 before): the server is slow (97 % sure)."
        );
    }

    #[test]
    fn below_the_limit_nobody_is_accused() {
        let incident = read(
            r#"{"verdict": {"layer": "server", "cause": "slow_server", "confidence": 0.79,
                "alternatives": [{"layer": "network", "cause": "loss", "confidence": 0.2}],
                "because": ["Likeliest: the server is slow (79 %), or the path loses segments (20 %). Look at the server."]}}"#,
        );
        assert!(
            sentence(&incident, &NormalDurations::default())
                .ends_with("the evidence does not show which layer was at fault.")
        );
        let verdict = verdict(&incident).into_string();
        assert!(
            verdict.contains("The evidence does not show which layer was at fault")
                && verdict.contains("Look at the server.")
        );
        assert!(verdict.contains("the path loses segments (20 %)") && !verdict.contains("Server"));
    }
}
