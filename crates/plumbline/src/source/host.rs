//! Which host this is.

use std::fs;

use model::text::printable;
use serde::Serialize;

/// A host, as an incident names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Version of this program.
    pub plumbline: &'static str,
}

impl Host {
    /// This one.
    pub fn this() -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        Self {
            name: printable(read("hostname").trim().as_bytes()),
            kernel: read("osrelease").trim().to_owned(),
            plumbline: env!("CARGO_PKG_VERSION"),
        }
    }
}
