//! The front: the process that is started. It has the socket, the figures and the signals, and looks after the processes
//! that serve clients. It never calls libcephfs.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use anyhow::Context;
use exposition::HttpServer;
use rustix::process::{Resource, Rlimit};

use super::{
    DaemonOptions, TICK,
    arrivals::Arrivals,
    exporter::ProxyExporter,
    figures::ProxyCounters,
    listener,
    places::{FIRST_CONTROL, MountProcesses},
    sessions::SessionNumber,
    signals,
    watch::Watch,
};

const SIGNALS: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// Runs until a signal ends it.
pub fn run(options: &DaemonOptions) -> anyhow::Result<()> {
    let signals = signals::block().context("cannot set up signals")?;
    raise_descriptor_limit();
    let watch = Arc::new(Watch::new().context("cannot use epoll(7)")?);
    let (for_others, figures) = ProxyCounters::create(options.metrics.is_some()).context("cannot share memory")?;
    let figures = Arc::new(figures);
    let sessions = SessionNumber::open(&options.state);
    let (mut places, version) =
        MountProcesses::open(figures.clone(), for_others, sessions, watch.clone(), options.limits.mounts)?;
    let listener = listener::listen(options)?;
    let _metrics = options.metrics.map(|address| serve_metrics(address, options, &figures, &version)).transpose()?;
    let mut arrivals = Arrivals::new(figures, watch.clone(), options.limits.clone(), options.users.clone());
    watch.add(&signals, SIGNALS)?;
    watch.add(&listener, LISTENER)?;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tracing::info!("{} with {version}", options.socket.display());

    let mut listening = true;
    let mut due = Instant::now() + TICK;
    loop {
        for event in watch.wait(TICK)? {
            match event {
                SIGNALS => {
                    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
                    drop((listener, arrivals));
                    return places.close();
                }
                LISTENER => {
                    if let Err(error) = arrivals.accept(&listener) {
                        tracing::warn!("cannot accept clients for a moment: {error}");
                        watch.remove(&listener);
                        listening = false;
                    }
                }
                FIRST_CONTROL.. => {
                    places.see(event - FIRST_CONTROL);
                }
                client => arrivals.see(client, &mut places),
            }
        }
        if Instant::now() >= due {
            due = Instant::now() + TICK;
            arrivals.tick();
            if !listening {
                watch.add(&listener, LISTENER)?;
                listening = true;
            }
        }
    }
}

/// Starts the metrics server, which runs until it is dropped.
fn serve_metrics(
    address: SocketAddr,
    options: &DaemonOptions,
    figures: &Arc<ProxyCounters>,
    version: &str,
) -> anyhow::Result<HttpServer> {
    let exporter =
        ProxyExporter { figures: figures.clone(), limits: options.limits.clone(), libcephfs: version.to_owned() };
    let server =
        HttpServer::start(address, Arc::new(exporter)).with_context(|| format!("cannot serve figures at {address}"))?;
    tracing::info!("figures are at http://{}/metrics", server.address());
    Ok(server)
}

/// Raises the limit of descriptors as far as the kernel permits, for the processes below, too: each client needs two
/// there, and libcephfs has its own.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
