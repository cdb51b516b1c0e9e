//! The message about an incident for the webhook and the operator's program.

use std::path::Path;

use model::{Incident, text::printable};
use serde::Serialize;

use crate::page;

#[derive(Serialize)]
struct IncidentMessage<'a> {
    /// `opened` or `closed`.
    event: &'static str,
    /// The incident in one sentence. Chat programs show the value of this key.
    text: String,
    /// The path of the bundle, on the host that the incident names.
    bundle: String,
    /// The incident in the form of `incident.json`.
    incident: &'a Incident,
}

/// The message about an incident that has begun or is over, as JSON.
///
/// # Errors
///
/// When it cannot be written as JSON.
pub fn message(incident: &Incident, bundle: &Path) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&IncidentMessage {
        event: if incident.closed { "closed" } else { "opened" },
        text: page::headline(incident),
        bundle: printable(bundle.as_os_str().as_encoded_bytes()),
        incident,
    })
}
