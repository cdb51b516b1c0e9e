//! Prometheus: `/metrics`, in the format that the client likes best.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use exposition::{Format, Server, Source, page};

use super::{Desk, families::families};

/// How long the daemon may be busy otherwise.
const PATIENCE: Duration = Duration::from_secs(3);

/// Begins to serve what the desk gives out.
///
/// # Errors
///
/// When the address is taken, or not one of this host's.
pub fn serve(address: SocketAddr, desk: Arc<Desk>) -> Result<Server> {
    Server::start(address, Arc::new(Exporter { desk }))
}

struct Exporter {
    desk: Arc<Desk>,
}

impl Source for Exporter {
    fn name(&self) -> &'static str {
        "Plumbline"
    }

    fn page(&self, format: Format) -> Option<Vec<u8>> {
        self.desk.ask(PATIENCE).map(|snapshot| page(&families(&snapshot), format))
    }

    fn rest(&self) {
        crate::daemon::release_free_memory();
    }
}
