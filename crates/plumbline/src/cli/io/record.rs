//! `plumbline io --record`: writes every look to a file.

use std::{
    path::Path,
    process::{Child, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Result;
use model::{Event, text::printable};
use nix::sys::{signalfd::SignalFd, utsname::uname};

use super::{IoArguments, IoSession};
use crate::{
    cli::child,
    evidence::exit_code,
    io::{
        files::FileUse,
        known::Durations,
        layers::LAYERS,
        meter::IoSample,
        ranks::RanksByProcess,
        record::{End, IoEntry, IoHeader, IoInterval, IoLine, IoRecordWriter},
        slowest::Slowest,
    },
    view::clock::Clock,
};

/// How often the recording checks whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub fn run(arguments: &IoArguments, path: &Path, mut session: IoSession, stop: &SignalFd) -> Result<ExitCode> {
    let mut writer = IoRecordWriter::create(path, header(arguments, &session))?;
    let (mut slowest, mut durations, mut ranks) = (Slowest::default(), Durations::default(), RanksByProcess::default());
    let mut slow = |event: &Event| {
        slowest.add(event);
        durations.add(event);
    };
    let started = Instant::now();
    let mut child = start(arguments, &session)?;
    let (mut status, mut stopped, mut left) = (None, false, arguments.count.unwrap_or(u64::MAX));
    let mut began = started;
    while left > 0 && status.is_none() && !stopped {
        let until = began + Duration::from_secs_f64(arguments.interval);
        while Instant::now() < until && status.is_none() && !stopped {
            let look = if child.is_some() { until.min(Instant::now() + LOOK_EVERY) } else { until };
            let signal = session.wait(look, stop, &mut slow)?;
            ranks.look(session.followed().into_iter().flatten());
            stopped = signal.is_some_and(|signal| child::passed_on(signal, child.as_ref()));
            status = child.as_mut().map(Child::try_wait).transpose()?.flatten();
        }
        session.drain(&mut slow);
        let now = Instant::now();
        let entries = entries(&mut session, &mut ranks)?;
        let (at_s, seconds) = (now.duration_since(started).as_secs_f64(), now.duration_since(began).as_secs_f64());
        writer.write(&IoLine::Interval(IoInterval { at_s, seconds, entries }))?;
        (began, left) = (now, left - 1);
    }
    let code = status.and_then(exit_code);
    let end = End {
        seconds: started.elapsed().as_secs_f64(),
        status: code,
        slowest: slowest.list(|key| session.watch.mount(key)),
        losses: session.losses(),
        ranks: ranks.count(),
        files: files(&mut session)?,
        durations: durations.list(|key| session.watch.mount(key)),
    };
    end.losses.iter().for_each(|(cause, lost)| eprintln!("plumbline: {cause}: {lost} operations"));
    writer.finish(end)?;
    eprintln!("plumbline: recorded; `plumbline io report {} -o report.html` makes a page of it", path.display());
    Ok(ExitCode::from(code.map_or(0, |code| u8::try_from(code).unwrap_or(1))))
}

fn header(arguments: &IoArguments, session: &IoSession) -> IoHeader {
    let text = |text: &std::ffi::OsStr| printable(text.as_encoded_bytes());
    let (host, kernel) = uname().map(|name| (text(name.nodename()), text(name.release()))).unwrap_or_default();
    let depths = &session.depths;
    IoHeader {
        host,
        kernel,
        started: Clock::now().iso(crate::daemon::nanos(probes::monotonic())),
        command: arguments.command.iter().map(|word| text(word)).collect(),
        layers: LAYERS.iter().filter(|(_, depth)| depths.contains(depth)).map(|(name, _)| (*name).to_owned()).collect(),
        slow_ms: arguments.slow_ms,
        ..IoHeader::default()
    }
}

/// Starts the command, if there is one, so that none of its operations is missed.
fn start(arguments: &IoArguments, session: &IoSession) -> Result<Option<Child>> {
    let followed = session.followed.as_ref().filter(|_| !arguments.command.is_empty());
    followed.map_or(Ok(None), |followed| child::start_followed(followed, &arguments.command))
}

fn entries(session: &mut IoSession, ranks: &mut RanksByProcess) -> Result<Vec<IoEntry>> {
    let samples = session.read()?;
    ranks.look(samples.iter().map(|sample| sample.pid));
    let entry = |sample: &IoSample| {
        let (mount, owner) = session.names(sample);
        IoEntry::new(sample, mount, owner, ranks.of(sample.pid))
    };
    Ok(samples.iter().map(entry).collect())
}

/// The use of files on the selected mounts.
fn files(session: &mut IoSession) -> Result<Vec<FileUse>> {
    let mut files = Vec::new();
    for access in session.accesses()? {
        if let Some(mount) = session.mount_that_counts(access.mount) {
            files.push(FileUse::new(&access, mount.label()));
        }
    }
    files.sort_by(|one, other| (&one.mount, one.inode, one.pid).cmp(&(&other.mount, other.inode, other.pid)));
    Ok(files)
}
