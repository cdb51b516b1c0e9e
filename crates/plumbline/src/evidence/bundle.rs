//! Reads and writes bundles: tar.zst archives, which are either complete or absent.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use model::Incident;

use super::id::IncidentId;
use super::output::Spool;
use super::retention::{Claimed, DiskQuota};
use super::store::Store;
use crate::page::{NamesShown, PAGE, PageMaterial, Reading};

/// zstd's own default level: higher ones barely reduce the size, and take more time.
const LEVEL: i32 = 3;
/// A window of 1 MiB, which bounds the memory of writers and readers of bundles.
const WINDOW_LOG: u32 = 20;

/// The most bytes of `incident.json` that are read; it has a few kilobytes.
const MAX_INCIDENT: u64 = 1 << 20;

type Compressed = zstd::stream::write::Encoder<'static, Claimed>;

/// A bundle being written, under a temporary name. If it is dropped without [`BundleWriter::commit`], the file is deleted.
pub struct BundleWriter {
    /// `None` once the archive is finished.
    tar: Option<tar::Builder<Compressed>>,
    store: Arc<Store>,
    id: IncidentId,
    /// The input of the page.
    material: PageMaterial,
    /// The time of all entries, seconds since the epoch.
    begun: u64,
    committed: bool,
}

impl BundleWriter {
    /// Begins a bundle; [`BundleWriter::describe`] comes next.
    ///
    /// # Errors
    /// If the temporary file cannot be created or written.
    pub fn create(store: &Arc<Store>, quota: &Arc<DiskQuota>, id: &IncidentId) -> Result<Self> {
        let shown = store.path_of(id);
        let file = store.create_temporary(id).with_context(|| format!("cannot write {}", shown.display()))?;
        let tar = Some(tar::Builder::new(encoder(Claimed::new(file, quota.clone(), u64::MAX))?));
        let begun = now();
        let material = PageMaterial::default();
        Ok(Self { tar, store: store.clone(), id: id.clone(), material, begun, committed: false })
    }

    /// Writes `incident.json`, which readers expect first.
    ///
    /// # Errors
    /// As [`BundleWriter::add_bytes`].
    pub fn describe(&mut self, incident: &Incident) -> Result<()> {
        self.material = PageMaterial::new(incident.clone());
        self.add_bytes("incident.json", &json(incident)?).context("incident.json")
    }

    /// Adds a file from memory.
    ///
    /// # Errors
    /// Any error of writing, such as a full disk, or no room in the quota.
    pub fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.add(name, bytes.len() as u64, bytes)
    }

    /// Adds a file from a spool.
    ///
    /// # Errors
    /// As [`BundleWriter::add_bytes`].
    pub fn add_spool(&mut self, name: &str, spool: Spool) -> io::Result<()> {
        self.add(name, spool.bytes(), spool.into_reader()?)
    }

    /// Adds a file of `bytes` bytes.
    ///
    /// # Errors
    /// As [`BundleWriter::add_bytes`]; also if `content` has fewer bytes.
    pub fn add(&mut self, name: &str, bytes: u64, content: impl Read) -> io::Result<()> {
        let tar = self.tar.as_mut().ok_or_else(|| io::Error::other("the bundle is finished"))?;
        let header = header(name, bytes, self.begun)?;
        let mut counted =
            CountingReader { content: content.take(bytes), bytes: 0, page: self.material.file(name, bytes) };
        tar.append(&header, &mut counted)?;
        if counted.bytes != bytes {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{name} ends {} bytes early", bytes - counted.bytes),
            ));
        }
        Ok(())
    }

    /// Completes the bundle: adds the page, syncs the file and renames it. Returns its size in bytes. `replacing`: an
    /// existing bundle may be replaced.
    ///
    /// # Errors
    /// Any error of writing; then the temporary file is deleted.
    pub fn commit(mut self, replacing: bool) -> Result<u64> {
        let page = std::mem::take(&mut self.material).page(NamesShown::Shown);
        self.add_bytes(PAGE, page.as_bytes()).context(PAGE)?;
        drop(page);
        let tar = self.tar.take().context("the bundle is finished")?;
        let file = tar.into_inner()?.finish()?;
        let bytes = file.written();
        let shown = self.store.path_of(&self.id);
        let synced = self.store.commit(file.file(), &self.id, replacing);
        synced.with_context(|| format!("cannot write {}", shown.display()))?;
        self.committed = true;
        file.keep();
        Ok(bytes)
    }
}

impl Drop for BundleWriter {
    fn drop(&mut self) {
        if !self.committed {
            // If the deletion fails, the collector's next start tries again.
            let _ = self.store.remove_temporary(&self.id);
        }
    }
}

fn encoder<W: Write>(out: W) -> io::Result<zstd::stream::write::Encoder<'static, W>> {
    let mut encoder = zstd::stream::write::Encoder::new(out, LEVEL)?;
    encoder.window_log(WINDOW_LOG)?;
    encoder.include_checksum(true)?;
    Ok(encoder)
}

/// Seconds since the epoch.
fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0)
}

fn header(name: &str, bytes: u64, time: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name)?;
    header.set_mode(0o600);
    header.set_mtime(time);
    header.set_size(bytes);
    header.set_cksum();
    Ok(header)
}

/// A bundle of these files, in memory.
///
/// # Errors
/// When a name is not allowed in an archive.
pub fn in_memory(files: &[(&str, &[u8])]) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(encoder(Vec::new())?);
    for (name, content) in files {
        tar.append(&header(name, content.len() as u64, now())?, *content)?;
    }
    tar.into_inner()?.finish()
}

/// Counts the bytes that are read, and passes them to the page.
struct CountingReader<'a, R> {
    content: R,
    bytes: u64,
    page: Reading<'a>,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        self.bytes += count as u64;
        self.page.write_all(buffer.get(..count).unwrap_or_default())?;
        Ok(count)
    }
}

/// Calls `see` for every file of a bundle, in order, with its name, its size in bytes and its content. Stops when `see`
/// returns false.
///
/// # Errors
/// If the input is no bundle or is damaged; or the error of `see`.
pub fn each_entry(bundle: impl Read, see: impl FnMut(&str, u64, &mut dyn Read) -> Result<bool>) -> Result<()> {
    each_entry_of(zstd::stream::read::Decoder::with_buffer(BufReader::new(bundle))?, see)
}

fn each_entry_of<R: BufRead>(
    mut decoder: zstd::stream::read::Decoder<'_, R>,
    mut see: impl FnMut(&str, u64, &mut dyn Read) -> Result<bool>,
) -> Result<()> {
    // Rejects archives that would need much memory to read; no bundle does.
    decoder.window_log_max(WINDOW_LOG)?;
    let mut archive = tar::Archive::new(decoder);
    // Raw entries: tar's extensions allow names and headers of any length, which would be held in memory. No bundle
    // uses them.
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        let name = entry.path()?.to_str().map(str::to_owned);
        let bytes = entry.size();
        if let Some(name) = name
            && !see(&name, bytes, &mut entry)?
        {
            break;
        }
    }
    Ok(())
}

/// Reads a bundle's incident.
///
/// # Errors
/// If the input is no bundle, or has no valid `incident.json`.
pub fn read_incident(bundle: impl Read) -> Result<Incident> {
    understood(read_entry(bundle, "incident.json", MAX_INCIDENT)?)
}

/// Reads the incidents of many bundles one after another, with one decompressor for all.
pub struct IncidentReader(zstd::zstd_safe::DCtx<'static>);

impl Default for IncidentReader {
    fn default() -> Self {
        Self(zstd::zstd_safe::DCtx::create())
    }
}

impl IncidentReader {
    /// Reads a bundle's incident.
    ///
    /// # Errors
    /// Those of [`read_incident`].
    pub fn read(&mut self, bundle: impl Read) -> Result<Incident> {
        let _ = self.0.reset(zstd::zstd_safe::ResetDirective::SessionOnly);
        let decoder = zstd::stream::read::Decoder::with_context(BufReader::new(bundle), &mut self.0);
        let mut found = None;
        each_entry_of(decoder, |name, _, content| take(&mut found, "incident.json", MAX_INCIDENT, name, content))?;
        understood(found)
    }
}

fn understood(bytes: Option<Vec<u8>>) -> Result<Incident> {
    let bytes = bytes.context("it has no incident.json")?;
    let mut incident: Incident = serde_json::from_slice(&bytes).context("its incident.json cannot be read")?;
    incident.complete();
    Ok(incident)
}

/// The content of one file of a bundle, at most `limit` bytes; `None` if the bundle has no such file.
///
/// # Errors
/// If the input is no bundle, or is damaged.
fn read_entry(bundle: impl Read, wanted: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    each_entry(bundle, |name, _, content| take(&mut found, wanted, limit, name, content))?;
    Ok(found)
}

/// Keeps the content of a file if it is the wanted one. Returns whether to continue with the next file.
fn take(found: &mut Option<Vec<u8>>, wanted: &str, limit: u64, name: &str, content: &mut dyn Read) -> Result<bool> {
    if name == wanted {
        let mut bytes = Vec::new();
        content.take(limit).read_to_end(&mut bytes)?;
        *found = Some(bytes);
    }
    Ok(found.is_none())
}

/// Makes a file name from text of another source: letters, digits, `.`, `_` and `-` only, without a leading dot, at
/// most 64 characters.
pub fn safe_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.trim_start_matches('.').chars().take(64).map(safe).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// `value` as indented JSON.
pub fn json(value: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.write_all(b"\n")?;
    Ok(bytes)
}
