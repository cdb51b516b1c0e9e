//! The incidents that are open, read from their bundles.

use std::{collections::HashMap, path::PathBuf, time::SystemTime};

use anyhow::Result;
use model::IncidentState;

use crate::{
    evidence::{INCIDENTS, Store, read_incident},
    top::model::KnownOrReason,
    view::incident::IncidentRow,
};

/// The most bundles that are read, the newest: the bundle of an open incident was written recently.
const NEWEST: usize = 64;

/// The directory of the incidents, and the incidents that were read.
pub struct IncidentListing {
    folder: KnownOrReason<PathBuf>,
    /// By id: when the bundle was written, and its incident.
    read: HashMap<String, (SystemTime, IncidentRow)>,
}

impl IncidentListing {
    /// The incidents of an output directory; or why the directory is not known.
    pub fn of(folder: KnownOrReason<PathBuf>) -> Self {
        Self { folder, read: HashMap::new() }
    }

    /// The open incidents, the newest first.
    pub fn open(&mut self) -> KnownOrReason<Vec<IncidentRow>> {
        let folder = self.folder.clone()?;
        self.read(&Store::existing(&folder, INCIDENTS))
            .map_err(|error| format!("cannot read {}: {error:#}", folder.display()))
    }

    /// Reads each bundle once for each time that it is written.
    fn read(&mut self, store: &Result<Store>) -> Result<Vec<IncidentRow>> {
        let store = match store {
            Ok(store) => store,
            // There has been no incident yet.
            Err(error) if is_missing(error) => return Ok(Vec::new()),
            Err(error) => anyhow::bail!("{error:#}"),
        };
        let mut before = std::mem::take(&mut self.read);
        for stored in store.list()?.into_iter().take(NEWEST) {
            let known = before.remove(stored.id.as_str()).filter(|(written, _)| *written == stored.modified);
            let (_, row) = known.unwrap_or_else(|| {
                let incident = store.open_bundle(&stored.id).map_err(anyhow::Error::from).and_then(read_incident);
                let path = store.path_of(&stored.id).display().to_string();
                (stored.modified, IncidentRow::new(incident, stored.id.as_str(), stored.bytes, path))
            });
            self.read.insert(stored.id.as_str().to_owned(), (stored.modified, row));
        }
        let mut open: Vec<_> = self.read.values().filter(|(_, row)| row.state == Some(IncidentState::Open)).collect();
        open.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
        Ok(open.into_iter().map(|(_, row)| row.clone()).collect())
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    let not_found = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    error.chain().any(not_found)
}
