//! The trees of a recording.

use std::{collections::HashSet, path::Path, process::ExitCode, time::Duration};

use anyhow::Result;
use diagnose::TreeAssembler;
use model::{Caller, Event};

use super::{FollowArguments, is_followed, session::MOST_HELD, sinks::Sinks};
use crate::{
    cli::kind::FileFormat,
    config::Otlp,
    follow::is_of_job,
    recording::RecordingReader,
    source::{EventSource, RecordedSource, ReplayStep, SeesBelow, WantedOperations},
};

pub fn run(arguments: &FollowArguments, path: &Path, otlp: Option<&Otlp>) -> Result<ExitCode> {
    let explain = |error| FileFormat::explain(path, FileFormat::Recording, error);
    let reader = RecordingReader::open(path).map_err(explain)?;
    let operations = probes::protocols().flat_map(|protocol| protocol.all_operations());
    let all = operations.filter(|operation| is_followed(operation.level()));
    let wanted = WantedOperations { thresholds: all.map(|operation| (operation, 0)).collect(), failures: Vec::new() };
    let mut source = RecordedSource::new(reader, wanted);
    let mut sinks = Sinks::new(arguments, otlp)?;
    let mut trees = TreeAssembler::new(MOST_HELD);
    let (mut asked, mut open, mut given_up) = (0, Vec::new(), 0);
    loop {
        let step = source.advance()?;
        if step != ReplayStep::Interval {
            // Another run has another clock, and the operations in flight of the previous run are over.
            given_up += trees.given_up();
            let last = std::mem::replace(&mut trees, TreeAssembler::new(MOST_HELD));
            let last = last.all(std::mem::take(&mut open), &|key, device| source.means(key, device));
            sinks.show(&last, &source)?;
            sinks.forget_names(source.clock());
            asked = 0;
            if step == ReplayStep::End {
                break;
            }
            continue;
        }
        sinks.set_clock(source.clock());
        // A fast operation that failed has both an event and a record.
        let mut seen = HashSet::new();
        let mut events = Vec::new();
        source.drain(&mut |event| {
            if is_followed(event.operation.level()) && seen.insert(event.identity()) {
                events.push(event.clone());
            }
        });
        events.into_iter().filter(|event| counts(arguments, &source, event)).for_each(|event| trees.add(event));
        let whole = trees.whole(asked, &open, &|key, device| source.means(key, device));
        sinks.show(&whole, &source)?;
        asked = source.now();
        open = source.in_flight(&|protocol| is_followed(protocol.level), Duration::ZERO, MOST_HELD);
        open.retain(|event| counts(arguments, &source, event));
    }
    source.reader().notes().iter().for_each(|note| eprintln!("plumbline: {note}"));
    let (_, records_lost, intervals_lost) = source.totals();
    let losses = [(records_lost, "operations before they were recorded"), (intervals_lost, "intervals")];
    let lost: Vec<_> =
        losses.iter().filter(|(lost, _)| *lost > 0).map(|(lost, what)| format!("{lost} {what}")).collect();
    sinks.finish(&lost, given_up)?;
    Ok(if source.reader().damaged() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether the operation belongs to the selected process or job, or to a kernel thread.
fn counts(arguments: &FollowArguments, source: &RecordedSource, event: &Event) -> bool {
    let who = &event.requester;
    let of_job = |job: &String| is_of_job(&EventSource::cgroup(source, who.pid, who.cgroup).job, job);
    event.caller == Caller::Kernel
        || (arguments.pid.is_none_or(|pid| pid == who.pid) && arguments.job.as_ref().is_none_or(of_job))
}
