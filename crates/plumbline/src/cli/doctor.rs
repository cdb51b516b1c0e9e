//! `plumbline doctor`: tries out what this kernel allows, probe by probe.

use std::{io::Write, path::Path, process::ExitCode};

use anyhow::{Result, anyhow};
use model::Protocol;
use probes::{
    Capability, Kernel, ProbeOptions, ProbeSet, ProbeSupport,
    tasks::{self, Tasks},
};
use serde::Serialize;

use super::{EXIT_USAGE, usage_error};
use crate::{
    config,
    view::{
        paint,
        table::{Table, TableColumn, room_of},
    },
    watched,
};

#[derive(clap::Args)]
pub struct DoctorArguments {
    /// Only these, of which each costs the verifier's time: smb, nfs, vfs, syscalls, connections, mpiio, cephproxy, fuse, ceph, server, tcp, tasks; and the
    /// path of a configuration, whose own operations are probes, too
    #[arg(value_name = "PROBE|FILE")]
    probe: Vec<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DoctorReport<'a> {
    kernel: &'a str,
    btf: bool,
    lockdown: &'a str,
    probes: Vec<ProbeReport<'a>>,
}

#[derive(Serialize)]
struct ProbeReport<'a> {
    #[serde(flatten)]
    capability: &'a Capability,
    /// What it can name, but for what `reason` says.
    operations: Vec<&'static str>,
}

impl<'a> ProbeReport<'a> {
    fn of(capability: &'a Capability) -> Self {
        let protocol = probes::protocol(capability.probe);
        let operations = protocol.into_iter().flat_map(Protocol::all_operations);
        let own = capability.probe.split_once('/').and_then(|(name, one)| probes::protocol(name)?.operation(one));
        Self { capability, operations: operations.chain(own).map(model::Operation::name).collect() }
    }
}

pub fn run(arguments: &DoctorArguments) -> Result<ExitCode> {
    // An argument with a slash or a dot is a file, since names of probes have neither.
    let (files, names): (Vec<_>, Vec<_>) = arguments.probe.iter().partition(|name| name.contains(['/', '.']));
    for file in files {
        match config::read(Some(Path::new(file)), &watched::never_touched()) {
            Ok(config) => probes::own::enter(&config.operations).map_err(|error| anyhow!(error))?,
            Err(errors) => {
                errors.iter().for_each(|error| eprintln!("{error}"));
                return Ok(ExitCode::from(EXIT_USAGE));
            }
        }
    }
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|probe| *probe == name);
    let there = |name: &str| name == TASKS || probes::protocol(name).is_some();
    if let Some(unknown) = names.iter().find(|name| !there(name)) {
        let names: Vec<_> = probes::protocols().map(|protocol| protocol.name).chain([TASKS]).collect();
        return Ok(usage_error(anyhow!("there is no probe {unknown}; there are {}", names.join(", "))));
    }
    let kernel = Kernel::current();
    let wanted: Vec<_> = probes::protocols().filter(|protocol| is_wanted(protocol.name)).collect();
    let mut probes = if wanted.is_empty() { Vec::new() } else { try_probes(&kernel, wanted) };
    // The process table always works, so it is no sign that this kernel can run probes.
    let any = probes.is_empty() || probes.iter().any(|probe| probe.state != ProbeSupport::Unavailable);
    if is_wanted(TASKS) {
        probes.push(
            Tasks::load(tasks::TaskOptions { wait_channels: true, ..tasks::TaskOptions::default() }).capability(),
        );
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let (kernel, btf, lockdown) = (&kernel.release, kernel.btf, &kernel.lockdown);
        let report = DoctorReport { kernel, btf, lockdown, probes: probes.iter().map(ProbeReport::of).collect() };
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        let btf = if kernel.btf { "BTF" } else { "no BTF" };
        writeln!(out, "kernel {}, {btf}, lockdown {}\n", kernel.release, kernel.lockdown)?;
        print_probes(&mut out, &probes)?;
    }
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The process table, which is not a probe.
const TASKS: &str = "tasks";

/// Attaches these probes for a moment. If attaching cannot begin, all are unavailable for the same reason.
fn try_probes(kernel: &Kernel, wanted: Vec<&'static Protocol>) -> Vec<Capability> {
    let options = ProbeOptions {
        protocols: wanted.clone(),
        ring_bytes: 1 << 16,
        recorder_records: 64,
        usage_keys: 0,
        on_demand: vec![],
        yield_idle_modules: false,
    };
    match ProbeSet::start(&options) {
        Ok(watch) => watch.state(),
        Err(error) => {
            let fix = if probes::may_load() {
                format!("kernel {} must allow the bpf system call (CONFIG_BPF_SYSCALL)", kernel.release)
            } else {
                probes::PERMISSION.to_owned()
            };
            let unavailable = |protocol: &Protocol| Capability {
                probe: protocol.name,
                state: ProbeSupport::Unavailable,
                via: vec![],
                reason: format!("cannot create BPF maps: {error}"),
                fix: fix.clone(),
                may_come: false,
            };
            wanted.into_iter().map(unavailable).collect()
        }
    }
}

/// Prints the table of probes, with reasons and remedies below their rows. Also used by `run`.
pub fn print_probes(out: &mut impl Write, probes: &[Capability]) -> std::io::Result<()> {
    let columns = [
        TableColumn::text("PROBE", 19),
        TableColumn::text("STATE", 12),
        TableColumn::text("VIA", 15),
        TableColumn::rest("", 24).wrapped(),
    ];
    let table = Table::new(&columns, room_of(&std::io::stdout()));
    table.header(out)?;
    for probe in probes {
        let state = match probe.state {
            ProbeSupport::Ready => paint::green("ready", 12),
            ProbeSupport::Degraded => paint::yellow("degraded", 12),
            ProbeSupport::Unavailable => paint::red("unavailable", 12),
        };
        let via = if probe.via.is_empty() { "-".to_owned() } else { probe.via.join(",") };
        table.row(out, &[probe.probe, &state, &via, &probe.reason])?;
        if !probe.fix.is_empty() {
            table.row(out, &["", "", "", &format!("fix: {}", probe.fix)])?;
        }
    }
    Ok(())
}
