//! The report as one self-contained page, in the style of an incident's.

use diagnose::counted;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    FleetReport,
    report::{AffectedHost, FleetEpisode},
    text::own_verdict,
};
use crate::page::{STYLE, moment, of_ms};

/// The most episodes, and the most hosts, that are shown.
const EPISODES: usize = 200;
const HOSTS: usize = 2000;

/// The page.
pub fn page(report: &FleetReport) -> String {
    let FleetReport { hosts, servers, incidents, episodes, notes, .. } = report;
    let title = match episodes.first() {
        Some(first) => headline(first),
        None => format!("No incident of a server on {hosts} hosts"),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p.state {
                    (counted(*hosts as u64, "host")) " · " (counted(*servers as u64, "server")) " · " (counted(*incidents as u64, "incident"))
                    @if let (Some(from), Some(to)) = (&report.from, &report.to) { " · " (moment(from)) " to " (moment(to)) }
                }
                @for episode in episodes.iter().take(EPISODES) { (one(episode)) }
                @if episodes.len() > EPISODES { p.muted { "and " (episodes.len() - EPISODES) " more of fewer hosts" } }
                @if !notes.is_empty() { h2 { "What is not known" } ul { @for note in notes { li { (note) } } } }
            }
        }
        "\n"
    };
    page.into_string()
}

/// `17 of 19 clients of nfs1 were affected from 10:02:14 to 10:05:40 UTC: the server`
fn headline(episode: &FleetEpisode) -> String {
    format!(
        "{} of {} known clients of {} were affected from {} to {}: {}",
        episode.affected.len(),
        episode.clients,
        episode.servers.join(", "),
        moment(&episode.from),
        moment(&episode.to),
        episode.verdict.said
    )
}

fn layer(episode: &FleetEpisode) -> &'static str {
    match episode.verdict.cause {
        Some(cause) if cause.starts_with("server") => "server",
        Some(cause) if cause.starts_with("network") => "network",
        Some(_) => "client",
        None => "",
    }
}

fn one(episode: &FleetEpisode) -> Markup {
    let verdict = &episode.verdict;
    html! {
        h2 { (headline(episode)) }
        div class={ "verdict " (layer(episode)) } {
            p.layer { (verdict.said) }
            @if verdict.cause.is_some() { p { (format!("{:.0} % sure", verdict.confidence * 100.0)) } }
            @for other in &verdict.alternatives {
                p.muted { "otherwise " (other.said) (format!(" ({:.0} %)", other.confidence * 100.0)) }
            }
        }
        ul { @for sentence in &verdict.because { li { (sentence) } } }
        (hosts(&episode.affected))
        (names("Not affected", &episode.unaffected))
        (names("Clients of which there are no records of that time", &episode.silent))
    }
}

fn hosts(hosts: &[AffectedHost]) -> Markup {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), of_ms);
    html! {
        div.wide { table {
            tr { th { "affected" } th { "from" } th { "until" } th.n { "took" } th.n { "normally" } th { "its own verdict" } th { "incidents" } }
            @for host in hosts.iter().take(HOSTS) {
                tr {
                    td { strong { (host.host) } } td { (moment(&host.from)) } td { (moment(&host.to)) }
                    td.n { (ms(host.slow_ms)) } td.n { (ms(host.normal_ms)) } td { (own_verdict(host)) } td { (host.incidents.join(", ")) }
                }
            }
        } }
        @if hosts.len() > HOSTS { p.muted { "and " (hosts.len() - HOSTS) " more" } }
    }
}

fn names(what: &str, hosts: &[String]) -> Markup {
    html! {
        @if !hosts.is_empty() {
            details {
                summary { (what) ": " (hosts.len()) }
                p { (hosts.iter().take(HOSTS).map(String::as_str).collect::<Vec<_>>().join(", ")) }
            }
        }
    }
}
