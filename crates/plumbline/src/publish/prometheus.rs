//! Prometheus: `/metrics`, in the format that the client likes best.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use exposition::{Format, Server, Source, page};

use super::{SnapshotExchange, families::families};

/// How long the daemon may be busy otherwise.
const PATIENCE: Duration = Duration::from_secs(3);

/// Begins to serve what the exchange gives out.
///
/// # Errors
///
/// When the address is taken, or not one of this host's.
pub fn serve(address: SocketAddr, exchange: Arc<SnapshotExchange>) -> Result<Server> {
    Server::start(address, Arc::new(Exporter { exchange }))
}

struct Exporter {
    exchange: Arc<SnapshotExchange>,
}

impl Source for Exporter {
    fn name(&self) -> &'static str {
        "Plumbline"
    }

    fn page(&self, format: Format) -> Option<Vec<u8>> {
        self.exchange.ask(PATIENCE).map(|snapshot| page(&families(&snapshot), format))
    }

    fn rest(&self) {
        crate::daemon::release_free_memory();
    }
}
