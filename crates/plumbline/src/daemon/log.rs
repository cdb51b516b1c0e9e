//! Logging: the journal under systemd; else standard error, and also syslog if standard error is no terminal.

use std::{env, fmt, io::IsTerminal};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Layer,
    fmt::{format::Writer, time::FormatTime},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// The time of a record, UTC, in whole seconds. The journal and syslog have times of their own.
struct UtcSeconds;

impl FormatTime for UtcSeconds {
    fn format_time(&self, out: &mut Writer<'_>) -> fmt::Result {
        write!(out, "{:.0}", jiff::Timestamp::now())
    }
}

/// Sets up logging for the whole process. `verbose` adds details: 1 debug, 2 everything.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let journal = stderr_is_the_journal().then(|| tracing_journald::layer().ok()).flatten();
    let terminal = std::io::stderr().is_terminal();
    let stderr = journal.is_none().then(|| {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(terminal)
            .with_target(false)
            .with_timer(UtcSeconds)
            .compact()
    });
    let syslog = (journal.is_none() && !terminal && !stderr_is_the_journal()).then(syslog).flatten();
    let layers = journal.map(Layer::boxed).into_iter().chain(stderr.map(Layer::boxed)).chain(syslog);
    let layers: Vec<_> = layers.collect();
    // Only tests start logging twice; the first start stays in force.
    let _ = tracing_subscriber::registry().with(layers.with_filter(level)).try_init();
    probes::log_libbpf();
}

/// Whether standard error is the journal. `$JOURNAL_STREAM` alone does not prove it, since children of a service
/// inherit the variable (systemd.exec(5)); it must name the device and inode of standard error.
fn stderr_is_the_journal() -> bool {
    let stderr = nix::sys::stat::fstat(std::io::stderr()).map(|about| format!("{}:{}", about.st_dev, about.st_ino));
    env::var("JOURNAL_STREAM").is_ok_and(|stream| stderr.is_ok_and(|stderr| stderr == stream))
}

/// The local syslog, if there is one.
fn syslog<S>() -> Option<Box<dyn Layer<S> + Send + Sync>>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    std::path::Path::new("/dev/log").exists().then_some(())?;
    let (options, facility) = (syslog_tracing::Options::LOG_PID, syslog_tracing::Facility::Daemon);
    let writer = syslog_tracing::Syslog::new(c"plumbline", options, facility)?;
    Some(
        tracing_subscriber::fmt::layer()
            .with_writer(writer)
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .with_level(false)
            .compact()
            .boxed(),
    )
}
