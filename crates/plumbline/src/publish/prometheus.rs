//! Prometheus: serves `/metrics` in the format that the client prefers.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use exposition::{Format, HttpServer, PageSource, page};

use super::{SnapshotExchange, families::families};

/// How long a scrape waits for the daemon before it fails.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts a server for the exchange's snapshots.
///
/// # Errors
///
/// When the address is in use, or does not belong to this host.
pub fn serve(address: SocketAddr, exchange: Arc<SnapshotExchange>) -> Result<HttpServer> {
    HttpServer::start(address, Arc::new(PrometheusExporter { exchange }))
}

struct PrometheusExporter {
    exchange: Arc<SnapshotExchange>,
}

impl PageSource for PrometheusExporter {
    fn name(&self) -> &'static str {
        "Plumbline"
    }

    fn page(&self, format: Format) -> Option<Vec<u8>> {
        self.exchange.ask(SNAPSHOT_TIMEOUT).map(|snapshot| page(&families(&snapshot), format))
    }

    fn rest(&self) {
        crate::daemon::release_free_memory();
    }
}
