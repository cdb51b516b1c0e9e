//! The jobs of the collector's thread: makes a bundle, updates one, or applies retention.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::iter;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, Result};
use model::Incident;

use super::actions::is_own;
use super::bundle::{self, BundleWriter};
use super::id::IncidentId;
use super::labels;
use super::output::{Output, OutputBounds};
use super::retention::DiskQuota;
use super::runner::{ActionBatch, ActionRecord, Collected, Context, Status, ThreadCounts};
use super::store::Store;
use super::{Attachment, BundleAddition, BundleOutcome, BundleRequest, IncidentScope, Settings};
use crate::page::PAGE;
use crate::publish::message;

/// The bundle to be updated was never written, or retention has deleted it.
#[derive(Debug, thiserror::Error)]
#[error("it is no longer there")]
pub struct Gone;

/// The list of the actions and their results, in a bundle.
const MANIFEST: &str = "manifest.json";
/// No manifest is larger, bytes.
const MAX_MANIFEST: u64 = 4 << 20;

/// The state that jobs share.
#[derive(Default)]
pub struct Workshop {
    /// The limit on disk space, and its use.
    pub quota: Arc<DiskQuota>,
    /// The count of the actions' threads.
    pub threads: Arc<ThreadCounts>,
    /// The time by which actions must end; set when the collector is shut down.
    pub stop: Arc<OnceLock<Instant>>,
}

impl Workshop {
    /// Collects and writes a new bundle.
    ///
    /// # Errors
    /// If the bundle cannot be written; then no part of it is left.
    pub fn collect(&self, settings: Arc<Settings>, mut request: BundleRequest) -> Result<BundleOutcome> {
        let started = Instant::now();
        let store = self.open(&settings, None)?;
        let path = store.path_of(&request.id);
        let mut writer = BundleWriter::create(&store, &self.quota, &request.id)?;
        let BundleRequest { actions, cuts, scope, .. } = request;
        let part = BundleAddition { rule: String::new(), actions, cuts, scope };
        // The actions start first, since what they examine is changing.
        let begun = self.begin(settings, part, &mut request.incident, &path, &store)?;
        writer.describe(&request.incident)?;
        self.attach(&mut writer, &store, request.attachments)?;
        let manifest = add_files(&mut writer, begun)?;
        writer.add_bytes(MANIFEST, &bundle::json(&manifest)?).context(MANIFEST)?;
        let bytes = writer.commit(false)?;
        let (seconds, labels) = (started.elapsed().as_secs_f64(), request.incident.labels);
        let (id, actions_failed) = (request.id, failed(&manifest));
        Ok(BundleOutcome::Written { id, path, bytes, seconds, actions_failed, labels, proven: None })
    }

    /// Rewrites a bundle with a new `incident.json`, a new page, these attachments, and the part's files; its labels and its
    /// other files stay.
    ///
    /// # Errors
    /// [`Gone`] if the bundle no longer exists; or if it cannot be written: then the old one stays.
    pub fn update(
        &self,
        settings: Arc<Settings>,
        id: IncidentId,
        incident: Incident,
        attachments: Vec<Attachment>,
        part: Option<BundleAddition>,
    ) -> Result<BundleOutcome> {
        self.rewrite(settings, id, incident, (attachments, part), false)
    }

    /// As [`Workshop::update`]. `is_settled`: the server's answer is already part of the incident's verdict.
    pub(super) fn rewrite(
        &self,
        settings: Arc<Settings>,
        id: IncidentId,
        mut incident: Incident,
        (attachments, part): (Vec<Attachment>, Option<BundleAddition>),
        is_settled: bool,
    ) -> Result<BundleOutcome> {
        let started = Instant::now();
        let store = self.open(&settings, Some(&id))?;
        let path = store.path_of(&id);
        let before = bundle::read_incident(open_bundle(&store, &id)?)
            .with_context(|| format!("cannot read {}", path.display()))?;
        incident.labels = before.labels;
        if incident.own_verdict.is_none() && before.own_verdict.is_some() && !is_settled {
            // The daemon does not know the server's answer yet, so the verdict that takes it into account stays.
            incident.own_verdict = Some(std::mem::replace(&mut incident.verdict, before.verdict));
        }
        let old = open_bundle(&store, &id)?;
        let mut replaced: Vec<&str> = attachments.iter().map(|attachment| attachment.name).collect();
        replaced.extend(["incident.json", PAGE]);
        let mut writer = BundleWriter::create(&store, &self.quota, &id)?;
        let begun = part.map(|part| self.begin(settings, part, &mut incident, &path, &store)).transpose()?;
        writer.describe(&incident)?;
        self.attach(&mut writer, &store, attachments)?;
        let mut manifest: Vec<serde_json::Value> = Vec::new();
        bundle::each_entry(old, |name, bytes, content| {
            if begun.is_some() && name == MANIFEST {
                manifest = serde_json::from_reader(content.take(MAX_MANIFEST)).context(MANIFEST)?;
            } else if !replaced.contains(&name) {
                writer.add(&bundle::safe_name(name), bytes, content)?;
            }
            Ok(true)
        })
        .with_context(|| format!("cannot update {}", path.display()))?;
        let mut actions_failed = 0;
        if let Some(begun) = begun {
            let added = add_files(&mut writer, begun)?;
            actions_failed = failed(&added);
            for record in &added {
                manifest.push(serde_json::to_value(record)?);
            }
            writer.add_bytes(MANIFEST, &bundle::json(&manifest)?).context(MANIFEST)?;
        }
        let bytes = writer.commit(true)?;
        let (seconds, labels) = (started.elapsed().as_secs_f64(), incident.labels);
        let proven = incident.own_verdict.is_some().then(|| Box::new(incident.verdict));
        Ok(BundleOutcome::Written { id, path, bytes, seconds, actions_failed, labels, proven })
    }

    /// Starts the actions. If there are commands of the operator's own among them, waits for all actions, since the labels that these commands set
    /// belong into the bundle's first file.
    fn begin(
        &self,
        settings: Arc<Settings>,
        part: BundleAddition,
        incident: &mut Incident,
        path: &Path,
        store: &Arc<Store>,
    ) -> Result<StartedActions> {
        let BundleAddition { rule, actions, cuts, scope } = part;
        let may_label = actions.iter().any(is_own);
        let message = if may_label { message(incident, path)? } else { Vec::new() };
        let mut batch = ActionBatch::start(actions, cuts, &rule, self.context(settings, scope, message, store));
        let mut ended: Vec<_> = if may_label { iter::from_fn(|| batch.next()).collect() } else { Vec::new() };
        label(incident, &mut ended);
        Ok(StartedActions { ended, batch })
    }

    fn context(&self, settings: Arc<Settings>, scope: IncidentScope, message: Vec<u8>, store: &Arc<Store>) -> Context {
        Context {
            scope: Arc::new(scope),
            message: message.into(),
            settings,
            store: store.clone(),
            quota: self.quota.clone(),
            threads: self.threads.clone(),
            stop: self.stop.clone(),
        }
    }

    /// Adds a part's files to a bundle; everything else stays.
    ///
    /// # Errors
    /// As [`Workshop::update`].
    pub fn append(&self, settings: Arc<Settings>, id: IncidentId, part: BundleAddition) -> Result<BundleOutcome> {
        let store = Store::open(&settings.output_dir, settings.folder)?;
        let cannot = || format!("cannot update {}", store.path_of(&id).display());
        let incident = bundle::read_incident(open_bundle(&store, &id)?).with_context(cannot)?;
        self.update(settings, id, incident, Vec::new(), Some(part))
    }

    /// Applies retention without writing a bundle.
    ///
    /// # Errors
    /// If the directory cannot be opened or read.
    pub fn tidy(&self, settings: &Settings) -> Result<BundleOutcome> {
        self.open(settings, None)?;
        Ok(BundleOutcome::Tidied)
    }

    /// Opens the store and applies retention; `spared` is not deleted. Every job does so, to notice and repair (or
    /// report) changes of the directory since the last job.
    fn open(&self, settings: &Settings, spared: Option<&IncidentId>) -> Result<Arc<Store>> {
        let store = Arc::new(Store::open(&settings.output_dir, settings.folder)?);
        let age = |id: &IncidentId| settings.max_age_of(id);
        self.quota
            .survey(store.clone(), settings.max_bytes, &age, SystemTime::now(), spared)
            .with_context(|| format!("cannot read {}", settings.output_dir.display()))?;
        Ok(store)
    }

    fn attach(&self, writer: &mut BundleWriter, store: &Store, attachments: Vec<Attachment>) -> Result<()> {
        for Attachment { name, write } in attachments {
            let mut out = Output::create(store, &self.quota, OutputBounds::none())?;
            write(&mut out).context(name)?;
            writer.add_spool(name, out.finish().context(name)?).context(name)?;
        }
        Ok(())
    }
}

/// Opens a bundle that is to be updated.
pub(super) fn open_bundle(store: &Store, id: &IncidentId) -> Result<File> {
    let path = store.path_of(id);
    store.open_bundle(id).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::Error::new(Gone).context(format!("cannot update {}", path.display())),
        _ => anyhow::Error::new(error).context(format!("cannot read {}", path.display())),
    })
}

/// Started actions: the results of those that have ended, and those that may still run.
struct StartedActions {
    ended: Vec<Collected>,
    batch: ActionBatch,
}

/// Adds the output of each action. Returns their records.
fn add_files(writer: &mut BundleWriter, begun: StartedActions) -> Result<Vec<ActionRecord>> {
    let StartedActions { ended, mut batch } = begun;
    let mut manifest = Vec::new();
    for Collected { record, spool, .. } in ended.into_iter().chain(iter::from_fn(|| batch.next())) {
        if let (Some(file), Some(spool)) = (&record.file, spool) {
            writer.add_spool(file, spool).with_context(|| file.clone())?;
        }
        manifest.push(record);
    }
    Ok(manifest)
}

/// Gives the incident the labels that actions have set. An action with invalid labels has failed.
fn label(incident: &mut Incident, collected: &mut [Collected]) {
    for Collected { record, labels, .. } in collected {
        if let Err(wrong) = labels::add(&mut incident.labels, labels) {
            if record.status == Status::Ok {
                record.status = Status::Failed;
            }
            record.error.get_or_insert(wrong);
        }
    }
}

fn failed(manifest: &[ActionRecord]) -> usize {
    manifest.iter().filter(|record| record.status != Status::Ok).count()
}
