//! `plumbline fleet`: one verdict over many hosts.

use std::{
    fs,
    io::{self, BufWriter, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use diagnose::fleet::{Millis, judge};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use jiff::{SignedDuration, Timestamp};

use super::{incidents::since, usage_error};
use crate::{
    fleet::{
        FleetReport, Groups, SourceData, folder, page, print,
        prometheus::{self, Api},
    },
    view::table::Wide,
};

#[derive(clap::Args)]
pub struct FleetArguments {
    /// Where hosts have left bundles and summaries, in folders of any depth, or a file of an OpenTelemetry collector
    #[arg(value_name = "DIR", conflicts_with = "prometheus")]
    source: Option<PathBuf>,
    /// Ask this Prometheus instead: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    prometheus: Option<Uri>,
    /// Only incidents that ended at this time or later: a time such as 2026-11-24T08:00:00Z, or how long ago, such as 90m, 12h or 7d [default: with --prometheus an hour ago]
    #[arg(long, value_name = "T", value_parser = since)]
    from: Option<Timestamp>,
    /// Only incidents that began at this time or earlier, given as for --from [default: now]
    #[arg(long, value_name = "T", value_parser = since)]
    to: Option<Timestamp>,
    /// Only compare hosts by this property, such as `network` or a label; may be given again [default: all that are known]
    #[arg(long, value_name = "PROPERTY")]
    by: Vec<String>,
    /// Properties of hosts: lines of a host's name and PROPERTY=VALUE words, such as `c17 rack=r3`
    #[arg(long, value_name = "F")]
    groups: Option<PathBuf>,
    /// Sent to Prometheus with each request, such as 'Authorization: Bearer ...'; `@F` reads it from a file
    #[arg(long, value_name = "HEADER", requires = "prometheus")]
    header: Vec<String>,
    /// How long Prometheus may take for an answer, seconds
    #[arg(long, value_name = "S", default_value_t = 30.0, requires = "prometheus")]
    timeout: f64,
    /// List every episode, not only those with most hosts
    #[arg(long)]
    all: bool,
    /// One JSON object
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Write a page to this file instead
    #[arg(short, long, value_name = "F.html")]
    output: Option<PathBuf>,
    #[command(flatten)]
    wide: Wide,
}

/// The time span of queries to Prometheus without --from.
const HOUR: SignedDuration = SignedDuration::from_hours(1);

pub fn run(arguments: &FleetArguments) -> Result<ExitCode> {
    let now = Timestamp::now();
    let to = arguments.to.unwrap_or(now);
    let earliest =
        if arguments.prometheus.is_some() { to.checked_sub(HOUR).unwrap_or(Timestamp::MIN) } else { Timestamp::MIN };
    let from = arguments.from.unwrap_or(earliest);
    if from >= to {
        return Ok(usage_error(format!("--from ({from:.0}) is not before --to ({to:.0})")));
    }
    if !(0.1..=3600.0).contains(&arguments.timeout) {
        return Ok(usage_error("--timeout takes seconds from 0.1 to 3600"));
    }
    let groups = match Groups::read(arguments.by.clone(), arguments.groups.as_deref()) {
        Ok(groups) => groups,
        Err(error) => return Ok(usage_error(format!("{error:#}"))),
    };
    let asked = (from.as_millisecond(), to.as_millisecond());
    let (report, is_good) = match (&arguments.prometheus, &arguments.source) {
        (Some(address), _) => {
            let headers = match headers(&arguments.header) {
                Ok(headers) => headers,
                Err(error) => return Ok(usage_error(format!("{error:#}"))),
            };
            if !matches!(address.scheme_str(), Some("http" | "https")) || address.authority().is_none() {
                return Ok(usage_error(format!("--prometheus takes http://HOST:PORT, not `{address}`")));
            }
            let api = Api::new(address.clone(), headers, Duration::from_secs_f64(arguments.timeout))?;
            let report = of_prometheus(&api, asked, &groups);
            (report.with_context(|| format!("cannot ask Prometheus at {address}"))?, true)
        }
        (None, Some(path)) => {
            let read = folder::read(path, asked.1)?;
            let is_good = read.understood > 0 || read.damaged == 0;
            let (material, span, mut notes) = (read.material, read.span, read.notes);
            if read.understood == 0 {
                notes.say(format!("there is no bundle and no summary that can be read in {}", path.display()));
            }
            let local = material.local;
            let fleet = material.fleet(asked, &groups);
            (FleetReport::new(&fleet, &judge(&fleet), local, span, notes.lines().collect()), is_good)
        }
        (None, None) => return Ok(usage_error("give a directory, or --prometheus URL: see --help")),
    };
    report.notes.iter().for_each(|note| eprintln!("plumbline: {note}"));
    let mut out = BufWriter::new(io::stdout().lock());
    if let Some(path) = &arguments.output {
        fs::write(path, page(&report)).with_context(|| format!("cannot write {}", path.display()))?;
    } else if arguments.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        print(&mut out, &report, arguments.wide.room(), arguments.all)?;
    }
    out.flush()?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn of_prometheus(api: &Api, asked: (Millis, Millis), groups: &Groups) -> Result<FleetReport> {
    let (read, mounts) = prometheus::read(api, asked)?;
    let SourceData { material, mut notes, span, .. } = read;
    let local = material.local;
    let mut fleet = material.fleet(asked, groups);
    let mut judged = judge(&fleet);
    if !judged.is_empty() {
        match prometheus::add_latencies(api, &mounts, &mut fleet, &judged) {
            Ok(()) => judged = judge(&fleet),
            Err(error) => notes.say(format!("how long operations took is not known: {error:#}")),
        }
    }
    Ok(FleetReport::new(&fleet, &judged, local, span, notes.lines().collect()))
}

/// Headers: each a `Name: value`, or `@F` for a file with such a line.
fn headers(given: &[String]) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for one in given {
        let text = match one.strip_prefix('@') {
            Some(path) => fs::read_to_string(path).with_context(|| format!("--header: cannot read {path}"))?,
            None => one.clone(),
        };
        // The error does not repeat the value, which may be a password.
        let (name, value) = text.trim().split_once(':').context("--header takes 'Name: value', or @F")?;
        let name: HeaderName = name.trim().parse().context("--header: what is before the colon is no header's name")?;
        let mut value = HeaderValue::from_str(value.trim())
            .context("--header: the value has characters that no header can have")?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}
