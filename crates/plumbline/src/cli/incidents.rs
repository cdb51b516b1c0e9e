//! `plumbline incidents`: what happened, newest first.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::EXIT_USAGE;
use crate::{
    config::Config,
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
            incidents.push(row(incident, stored.id.as_str(), stored.bytes, &path.display().to_string()));
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
        let get = |name: &str| incident.get(name).and_then(Value::as_str).unwrap_or("-");
        let detected = get("detected").get(..19).unwrap_or("-").replace('T', " ");
        table.row(&mut out, &[&detected, get("name"), get("layer"), get("mountpoint"), get("observed")])?;
        writeln!(out, "{:21}{}", "", get("path"))?;
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

/// The `incident.json` of a bundle.
pub fn read_incident(bundle: File) -> Result<Value> {
    let bytes = read_entry(bundle, "incident.json", MAX_INCIDENT)?.context("it has no incident.json")?;
    serde_json::from_slice(&bytes).context("its incident.json is not JSON")
}

/// One incident as a listing has it. A bundle that cannot be read is listed too, with the reason.
fn row(incident: Result<Value>, id: &str, bytes: u64, path: &str) -> Value {
    let (incident, error) = match incident {
        Ok(incident) => (incident, Value::Null),
        Err(error) => (Value::Null, Value::from(format!("{error:#}"))),
    };
    let get = |pointer: &str| incident.pointer(pointer).cloned().unwrap_or(Value::Null);
    json!({
        "id": id,
        "detected": get("/detected"),
        "name": get("/anomaly/name"),
        "type": get("/anomaly/type"),
        "probe": get("/anomaly/probe"),
        "observed": get("/anomaly/observed"),
        "layer": get("/verdict/layer"),
        "confidence": get("/verdict/confidence"),
        "operations": get("/operations"),
        "mountpoint": get("/top/mounts/0/mountpoint"),
        "server": get("/top/mounts/0/server"),
        "closed": get("/closed"),
        "bytes": bytes,
        "path": path,
        "error": error,
    })
}
