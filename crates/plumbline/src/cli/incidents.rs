//! `plumbline incidents`: what happened, newest first.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use model::{Incident, Layer, SNAPSHOT, State};
use serde::Serialize;

use super::EXIT_USAGE;
use crate::{
    config::{self, Config},
    daemon,
    evidence::{Store, read_entry},
    view::table::Table,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Where they are; without it, where the running daemon or the configuration puts them
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// The configuration that says where they are
    #[arg(long, value_name = "F", conflicts_with = "output_dir")]
    config: Option<PathBuf>,
    /// One JSON array
    #[arg(long)]
    json: bool,
}

/// An `incident.json` is a few kilobytes.
pub const MAX_INCIDENT: u64 = 1 << 20;

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let asks_the_daemon = arguments.output_dir.is_none() && arguments.config.is_none();
    if asks_the_daemon && !is_root() && daemon::runtime_dir().exists() {
        bail!("cannot read where the daemon puts incidents: run as root, or give --output-dir or --config");
    }
    let output_dir = match place(arguments) {
        Ok(place) => place,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("plumbline: {error}"));
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    let mut incidents = Vec::new();
    if let Some(store) = existing(&output_dir)? {
        let bundles = store.list().with_context(|| format!("cannot read {}", output_dir.display()))?;
        for stored in bundles {
            let bundle = store.open_bundle(&stored.id).map_err(anyhow::Error::from);
            let incident = bundle.and_then(read_incident);
            let path = store.path_of(&stored.id);
            incidents.push(Row::new(incident, stored.id.as_str(), stored.bytes, path.display().to_string()));
        }
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &incidents)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if incidents.is_empty() {
        writeln!(out, "no incidents in {}", output_dir.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let table = Table::new(&[("DETECTED (UTC)", 19), ("ANOMALY", 18), ("LAYER", 8), ("MOUNT", 24), ("OBSERVED", 0)]);
    table.header(&mut out)?;
    for incident in &incidents {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let detected = incident.detected.as_deref().and_then(|time| time.get(..19)).unwrap_or("-").replace('T', " ");
        let layer = incident.layer.map_or("-", Layer::name);
        let cells = [&incident.name, &incident.mountpoint, &incident.observed].map(or_dash);
        let [name, mountpoint, observed] = &cells;
        table.row(&mut out, &[&detected, name, layer, mountpoint, observed])?;
        writeln!(out, "{:21}{}", "", incident.path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The store, if there is one. To look at it makes and changes nothing.
fn existing(output_dir: &Path) -> Result<Option<Store>> {
    let not_found = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    match Store::existing(output_dir) {
        Ok(store) => Ok(Some(store)),
        Err(error) if error.chain().any(not_found) => Ok(None),
        Err(error) if is_root() => Err(error),
        Err(error) => bail!("cannot read the incidents in {}: {error:#}; run as root", output_dir.display()),
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn place(arguments: &Arguments) -> Result<PathBuf, Vec<String>> {
    let say = |errors: Vec<crate::config::ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    if let Some(dir) = &arguments.output_dir {
        return Ok(dir.clone());
    }
    if let Some(file) = &arguments.config {
        return Config::load(file).map(|config| config.output_dir).map_err(say);
    }
    match daemon::output_dir_of_running(&daemon::runtime_dir()) {
        Some(dir) => Ok(dir),
        None => Config::compiled_in().map(|config| config.output_dir).map_err(say),
    }
}

/// The incident of a bundle.
pub fn read_incident(bundle: File) -> Result<Incident> {
    let bytes = read_entry(bundle, "incident.json", MAX_INCIDENT)?.context("it has no incident.json")?;
    let mut incident: Incident = serde_json::from_slice(&bytes).context("its incident.json cannot be read")?;
    incident.complete();
    Ok(incident)
}

/// One incident as a listing has it. A bundle that cannot be read is listed too, with the reason.
#[derive(Default, Serialize)]
struct Row {
    id: String,
    detected: Option<String>,
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    probe: Option<String>,
    observed: Option<String>,
    layer: Option<Layer>,
    confidence: Option<f64>,
    operations: Option<u64>,
    mountpoint: Option<String>,
    server: Option<String>,
    closed: Option<bool>,
    state: Option<State>,
    first_seen: Option<String>,
    last_seen: Option<String>,
    bytes: u64,
    path: String,
    error: Option<String>,
}

/// What another version calls a kind that this one does not have says nothing here.
fn known_kind(word: &str) -> &str {
    if config::is_kind(word) || word == SNAPSHOT { word } else { "unknown" }
}

impl Row {
    fn new(incident: Result<Incident>, id: &str, bytes: u64, path: String) -> Self {
        let row = Self { id: id.to_owned(), bytes, path, ..Self::default() };
        let incident = match incident {
            Ok(incident) => incident,
            Err(error) => return Self { error: Some(format!("{error:#}")), ..row },
        };
        let mount = incident.mount().cloned();
        let Incident { anomaly, verdict, .. } = incident;
        Self {
            detected: Some(incident.detected),
            name: Some(anomaly.name),
            kind: Some(known_kind(&anomaly.kind).to_owned()),
            probe: Some(anomaly.probe.into_owned()),
            observed: Some(anomaly.observed),
            layer: Some(verdict.layer),
            confidence: Some(verdict.confidence),
            operations: Some(incident.operations),
            mountpoint: mount.as_ref().map(|mount| mount.mountpoint.clone()),
            server: mount.map(|mount| mount.server),
            closed: Some(incident.closed),
            state: Some(incident.state),
            first_seen: Some(incident.first_seen),
            last_seen: Some(incident.last_seen),
            ..row
        }
    }
}
