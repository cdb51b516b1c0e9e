//! The outputs of trees: standard output, a file for Perfetto, a collector.

use std::{
    io::{self, BufWriter, IsTerminal, Write},
    time::{Duration, Instant},
};

use anyhow::Result;
use diagnose::{OperationTree, counted};
use model::{Event, Protocol, text::printable};

use super::{FollowArguments, FollowProtocol};
use crate::{
    cli::mount_point,
    config::{Otlp, OtlpProtocol, otlp_endpoint},
    follow::{NameSource, PerfettoFile, RandomIds, TreeNames, TreeTable, new_file, spans, tree_line},
    publish::SpanExporter,
    view::clock::{Clock, nanos},
};

/// The time limit for a request to the collector.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes that wait while the collector does not answer.
const BUFFER: usize = 16 << 20;
/// The longest time that the end waits for the collector.
const PATIENCE: Duration = Duration::from_secs(10);

/// The outputs, and the selection of trees.
pub struct Sinks {
    wanted: WantedTrees,
    names: TreeNames,
    out: BufWriter<Box<dyn Write>>,
    /// The table; `None` for JSON.
    table: Option<TreeTable>,
    most: usize,
    perfetto: Option<PerfettoFile>,
    otlp: Option<TraceSink>,
    shown: u64,
    below: u64,
    left_out: u64,
}

/// The collector that gets the trees as traces.
struct TraceSink {
    exporter: SpanExporter,
    endpoint: String,
    ids: RandomIds,
}

impl TraceSink {
    fn start(config: &Otlp) -> Result<Self> {
        let (endpoint, ids) = (config.endpoint.to_string(), RandomIds::default());
        Ok(Self { exporter: SpanExporter::start(config)?, endpoint, ids })
    }
}

/// The selection of trees.
struct WantedTrees {
    min: u64,
    operations: Vec<String>,
    mount: Option<String>,
    errors: bool,
}

impl WantedTrees {
    fn has(&self, tree: &OperationTree, names: &TreeNames) -> bool {
        let is_named = |event: &Event| {
            let name = event.operation.name();
            self.operations.iter().any(|wanted| is_called(event.operation.protocol(), wanted, name))
        };
        let is_there = |event: &Event| Some(names.mount_point(event)) == self.mount.as_deref();
        tree.event.duration >= self.min
            && (self.operations.is_empty() || tree.any(&is_named))
            && (self.mount.is_none() || tree.any(&is_there))
            && (!self.errors || tree.any(&|event| event.flags.failed))
    }
}

/// Whether `wanted` is a name of this operation of the protocol.
fn is_called(protocol: &'static Protocol, wanted: &str, name: &str) -> bool {
    protocol.operation(wanted).is_some_and(|operation| operation.name() == name)
}

/// Refuses names of operations that no probe has.
pub fn known_operations(names: &[String]) -> Result<(), String> {
    let is_known = |name: &String| probes::protocols().any(|protocol| protocol.operation(name).is_some());
    match names.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(unknown) => Err(format!(
            "no probe has an operation {}; docs/kernels.md lists their names",
            printable(unknown.as_bytes())
        )),
    }
}

/// The collector, if one is configured.
pub fn collector(arguments: &FollowArguments) -> Result<Option<Otlp>, String> {
    let Some(url) = &arguments.otlp else { return Ok(None) };
    let protocol = match arguments.otlp_protocol {
        FollowProtocol::Grpc => OtlpProtocol::Grpc,
        FollowProtocol::Http => OtlpProtocol::Http,
    };
    let endpoint = otlp_endpoint(url, protocol);
    let endpoint = endpoint.map_err(|wrong| format!("--otlp is {}; {wrong}", printable(url.as_bytes())))?;
    let headers = http::HeaderMap::new();
    Ok(Some(Otlp { endpoint, protocol, interval: Duration::from_secs(1), timeout: TIMEOUT, headers, buffer: BUFFER }))
}

impl Sinks {
    /// Creates the outputs.
    ///
    /// # Errors
    ///
    /// When the file cannot be created, or the exporter cannot start.
    pub fn new(arguments: &FollowArguments, otlp: Option<&Otlp>) -> Result<Self> {
        let names = TreeNames::new();
        let out: Box<dyn Write> = match &arguments.output {
            Some(path) => Box::new(new_file(path)?),
            None => Box::new(io::stdout()),
        };
        // As in other commands, lines are not cut if the output is no terminal.
        let room = arguments.wide.room().filter(|_| arguments.output.is_none());
        let limit = (arguments.max_size * 1_048_576.0) as u64;
        let perfetto = arguments.perfetto.as_ref().map(|path| PerfettoFile::create(path, limit, &names.clock));
        let otlp = otlp.map(TraceSink::start);
        let table = (!arguments.json).then(|| TreeTable::new(room, arguments.children));
        let mut sinks = Self {
            wanted: WantedTrees {
                min: nanos(Duration::from_secs_f64(arguments.min_ms / 1e3)),
                operations: arguments.op.clone(),
                mount: arguments.mount.as_deref().map(mount_point),
                errors: arguments.errors,
            },
            names,
            out: BufWriter::new(out),
            table,
            most: arguments.children,
            perfetto: perfetto.transpose()?,
            otlp: otlp.transpose()?,
            shown: 0,
            below: 0,
            left_out: 0,
        };
        if let Some(table) = &sinks.table {
            table.heading(&mut sinks.out)?;
            sinks.out.flush()?;
        }
        Ok(sinks)
    }

    /// Shows the trees that are selected.
    ///
    /// # Errors
    ///
    /// When an output cannot be written.
    pub fn show(&mut self, trees: &[OperationTree], source: &dyn NameSource) -> Result<()> {
        for tree in trees {
            self.names.learn(tree, source);
            if !self.wanted.has(tree, &self.names) {
                self.left_out += 1;
                continue;
            }
            self.shown += 1;
            self.below += tree.below() as u64;
            match &mut self.table {
                Some(table) => table.show(&mut self.out, tree, &self.names)?,
                None => {
                    let line = tree_line(tree, tree.event.start, self.most, &self.names);
                    serde_json::to_writer(&mut self.out, &line)?;
                    writeln!(self.out)?;
                }
            }
            if let Some(perfetto) = &mut self.perfetto {
                perfetto.add(tree, &self.names)?;
            }
            if let Some(TraceSink { exporter, ids, .. }) = &mut self.otlp {
                exporter.queue(spans(tree, &self.names, ids));
            }
        }
        if let Some(perfetto) = &mut self.perfetto {
            perfetto.flush()?;
        }
        Ok(self.out.flush()?)
    }

    /// Takes a new clock, since the wall clock may have been set.
    pub fn set_clock(&mut self, clock: Clock) {
        self.names.clock = clock;
    }

    /// Forgets names, since mounts may have changed.
    pub fn forget_names(&mut self, clock: Clock) {
        self.names.forget(clock);
    }

    /// Ends all outputs. Prints what was shown, what was left out and what was lost.
    ///
    /// # Errors
    ///
    /// When an output cannot be ended.
    pub fn finish(self, lost: &[String], given_up: u64) -> Result<()> {
        let mut said = format!("{} shown, with {} below", counted(self.shown, "operation"), self.below);
        if self.left_out > 0 {
            said += &format!("; {} that were not asked for are not shown", self.left_out);
        }
        if io::stdout().is_terminal() {
            eprintln!();
        }
        let lost = if lost.is_empty() { "none lost".to_owned() } else { format!("lost: {}", lost.join(", ")) };
        eprintln!("{said}; {lost}");
        if given_up > 0 {
            let given_up = counted(given_up, "operation");
            eprintln!("{given_up} waited too long for the operation above them to end, and were shown without it");
        }
        if let Some(perfetto) = self.perfetto {
            eprintln!("{}", perfetto.finish()?);
        }
        if let Some(TraceSink { exporter, endpoint, .. }) = self.otlp {
            let (sent, lost) = exporter.stop(Instant::now() + PATIENCE);
            let spans = counted(sent, "span");
            let lost = if lost > 0 { format!("; {lost} were lost, since it did not take them") } else { String::new() };
            eprintln!("{spans} sent to {endpoint}{lost}");
        }
        Ok(())
    }
}
