//! Libraries in use, of one kind. A library is found where a process maps it, whatever its path and namespace. The probe is
//! attached to it once, and detached when no process maps the library any more. The probe is on the file, so it sees all of
//! the file's processes, later ones too. What a library of the kind is, and how to attach to it, is defined by the probe: its
//! `LibraryKind`.

pub(crate) mod elf;
mod maps;

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::fd::AsRawFd,
    path::Path,
    time::Duration,
};

use libbpf_rs::{Link, MapCore, MapFlags, Object, ProgramMut};
use model::{MountKey, text::printable};

use crate::{
    ProbeSupport,
    aside::aside,
    generated::{Plain as _, mapped},
    mounts::Mounts,
    processes::every_process,
};
use elf::contains;
use maps::{FileId, MappedFile};

/// A kind of libraries that a probe is attached to.
pub(crate) struct LibraryKind {
    /// The probe that is attached to these libraries.
    pub probe: &'static str,
    /// The name for such a library in a sentence.
    pub what: &'static str,
    /// How the names of their files begin.
    pub prefix: &'static str,
    /// Programs that indicate the use of such a library: they start the processes that use one.
    pub programs: &'static [&'static str],
    /// Tries whether this kernel attaches by a rung.
    pub attempt: fn(&mut Object, &str) -> libbpf_rs::Result<()>,
    /// Whether a file of this name is one, and where in it to attach.
    pub examine: fn(&File, &str) -> Option<AttachOffsets>,
    /// Attaches to the file that is at a path, by a rung.
    pub attach: fn(&mut Object, &str, &Path, &AttachOffsets) -> libbpf_rs::Result<Vec<Link>>,
    /// Gives back what processes that have ended have left in the probe's maps.
    pub forget_ended: fn(&Object),
}

/// Where in a file to attach.
#[derive(Debug, Default)]
pub(crate) struct AttachOffsets {
    /// Offsets, each with its cookie, where the kind has them.
    pub offsets: Vec<(u64, u64)>,
    /// What cannot be seen of this one; empty if nothing is missing.
    pub unseen: &'static str,
}

/// Libraries attached to at a time.
const LIBRARIES: usize = 64;
/// The most files remembered as not being such a library.
const FILES: usize = 16_384;
/// All processes are asked at most this often whether they map a library whose known process has ended.
const REST: Duration = Duration::from_secs(10);
/// How often to look for libraries that were mapped in a way that the kernel side does not see.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// How often, and how far apart, to look for a file that is about to be mapped.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(1);
/// How often a process that maps something new is looked at again, each time that libraries are tended.
const LOOKS: u8 = 10;
pub(crate) struct Libraries {
    kind: &'static LibraryKind,
    via: &'static str,
    /// The program that reports mapped files, loaded once there is a sign of the kind on this host: until then, it slows
    /// down no mapping.
    hook: Option<Link>,
    attached: HashMap<FileId, Library>,
    others: HashSet<FileId>,
    /// Why a library is not attached to, by its path.
    refused: HashMap<FileId, String>,
    /// Processes that map a new file, each with the number of further looks: a slow process is looked at again later.
    late: HashMap<u32, u8>,
    looked: Duration,
    /// When witnesses were last looked for.
    witnessed: Duration,
    programs_started: u64,
}

struct Library {
    // Dropping them detaches.
    _links: Vec<Link>,
    path: String,
    /// What cannot be seen of it.
    unseen: &'static str,
    /// A process that maps the library: as long as this process lives, no other process need be asked.
    witness: u32,
}

impl Libraries {
    /// None yet. Tries whether this kernel attaches in this way: it may load a program that it cannot attach.
    pub fn new(kind: &'static LibraryKind, object: &mut Object, via: &'static str) -> libbpf_rs::Result<Self> {
        (kind.attempt)(object, via)?;
        let (attached, others, refused) = Default::default();
        let (looked, witnessed, programs_started) = (Duration::ZERO, Duration::ZERO, 0);
        let late = HashMap::new();
        let mut libraries =
            Self { kind, via, hook: None, attached, others, refused, late, looked, witnessed, programs_started };
        if std::fs::read("/etc/ld.so.cache").is_ok_and(|cache| contains(&cache, kind.prefix.as_bytes())) {
            libraries.hook(object)?;
        }
        Ok(libraries)
    }

    /// There is a sign of such libraries here: from now on, the kernel side reports files as soon as they are mapped.
    fn hook(&mut self, object: &mut Object) -> libbpf_rs::Result<()> {
        let program = object.progs_mut().find(|program| program.name() == HOOK && program.autoload());
        if let (None, Some(program)) = (&self.hook, program) {
            self.hook = Some(program.attach()?);
        }
        Ok(())
    }

    /// Looks at all processes.
    pub fn look_at_all(&mut self, object: &mut Object, mounts: &Mounts, now: Duration) {
        self.looked = now;
        self.programs_started = programs_started(object);
        for (pid, mapped) in maps::of_all(&every_process().collect::<Vec<_>>()) {
            self.look_through(object, mounts, pid, mapped);
        }
    }

    /// A process has mapped a file that no process has mapped before. What was known of its process number belonged to
    /// another process.
    pub fn mapped(&mut self, object: &mut Object, mounts: &Mounts, record: &mapped) {
        let file = FileId { device: MountKey(record.device), inode: record.inode };
        self.others.remove(&file);
        let mut there = None;
        // The kernel side tells when room is looked for, and since 6.17 nothing keeps us from looking before the file is there.
        for _ in 0..TRIES {
            let mapped = maps::of(record.pid);
            // Before Linux 6.8, a file of an overlay is shown as the layer's file, with another device.
            there = mapped.iter().map(|mapping| mapping.file).find(|there| there.inode == file.inode);
            if mapped.is_empty() || there.is_some() {
                break;
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        self.look_again(record.pid);
        self.look_at(object, mounts, record.pid);
        let file = there.unwrap_or(file);
        let is_known = self.attached.contains_key(&file) || self.others.contains(&file);
        if !is_known && !self.refused.contains_key(&file) {
            // The process was gone too soon: the kernel side must report the next process that maps the file.
            forget_seen(object, Some(record));
        }
    }

    /// Detaches from libraries that no process uses, and finds libraries that the kernel side could not report. Call it
    /// every few seconds.
    pub fn maintain(&mut self, object: &mut Object, mounts: &Mounts, now: Duration) {
        let late: Vec<_> = self.late.keys().copied().collect();
        for pid in late {
            self.look_at(object, mounts, pid);
        }
        self.late.retain(|_, looks| {
            *looks = looks.saturating_sub(1);
            *looks > 0
        });
        if self.attached.values().any(has_gone) && now.saturating_sub(self.witnessed) >= REST {
            self.witnessed = now;
            self.find_witnesses();
            if self.attached.values().any(has_gone) {
                self.look_at_all(object, mounts, now);
            }
            if self.attached.values().any(has_gone) {
                // From here on, every mapping is reported; the look at all processes finds the earlier ones. So none is
                // missed.
                forget_seen(object, None);
                self.look_at_all(object, mounts, now);
                self.attached.retain(|_, library| !has_gone(library));
            }
        }
        if now.saturating_sub(self.looked) >= LOOK_AGAIN {
            self.refused.clear();
            (self.kind.forget_ended)(object);
            if programs_started(object) != self.programs_started {
                self.look_at_all(object, mounts, now);
            }
            self.looked = now;
        }
    }

    /// Finds another process for each library whose known process has ended. If thousands use the library, most often
    /// the next process will do.
    fn find_witnesses(&mut self) {
        let mut processes: Vec<u32> = every_process().collect();
        processes.reverse();
        for (pid, mapped) in maps::of_all(&processes) {
            if !self.attached.values().any(has_gone) {
                return;
            }
            for mapping in mapped {
                if let Some(library) = self.attached.get_mut(&mapping.file) {
                    library.witness = pid;
                }
            }
        }
    }

    /// The state of the probe: what is missing or waited for, and the cure.
    pub fn state(&self) -> (ProbeSupport, String, &'static str) {
        let mut reasons: Vec<_> = self.refused.values().cloned().collect();
        let partly = self.attached.values().filter(|library| !library.unseen.is_empty());
        reasons.extend(partly.map(|library| format!("{} of {}", library.unseen, library.path)));
        reasons.sort();
        if !reasons.is_empty() {
            let elsewhere = self.refused.values().any(|reason| reason.contains(" file system"));
            let fix = if elsewhere { "have processes use a copy on a local file system" } else { "" };
            return (ProbeSupport::Degraded, reasons.join("; "), fix);
        }
        let reason = if self.attached.is_empty() {
            format!("no process uses {} now; the probe attaches to the first one that does", self.kind.what)
        } else {
            String::new()
        };
        (ProbeSupport::Ready, reason, "")
    }

    fn look_again(&mut self, pid: u32) {
        if self.late.len() < LIBRARIES {
            self.late.entry(pid).or_insert(LOOKS);
        }
    }

    fn look_at(&mut self, object: &mut Object, mounts: &Mounts, pid: u32) {
        self.look_through(object, mounts, pid, maps::of(pid));
    }

    fn look_through(&mut self, object: &mut Object, mounts: &Mounts, pid: u32, mapped: Vec<MappedFile>) {
        // Read when first needed: most processes have mapped nothing new.
        let mut theirs = None;
        for mapping in mapped {
            if let Some(library) = self.attached.get_mut(&mapping.file) {
                library.witness = pid;
                continue;
            }
            if self.others.contains(&mapping.file) || self.refused.contains_key(&mapping.file) {
                continue;
            }
            let here = mounts.get(mapping.file.device).map(|point| point.remote);
            let remote = here.or_else(|| {
                let theirs = theirs.get_or_insert_with(|| {
                    Mounts::parse(&std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default())
                });
                theirs.get(mapping.file.device).map(|point| point.remote)
            });
            let name = file_name(&mapping.path);
            let (probe, is_named) = (self.kind.probe, name.starts_with(self.kind.prefix));
            let is_sign = is_named || self.kind.programs.contains(&name);
            if is_sign && let Err(error) = self.hook(object) {
                tracing::warn!(probe, %error, "libraries that come into use are found every five minutes only");
            }
            let found = match remote {
                Some(false) => match self.examine(pid, &mapping) {
                    Some((file, places)) => self.attach(object, pid, &mapping, &file, places),
                    // A loader first maps a library as a whole, and then its parts over that: the mapping may have
                    // changed already.
                    None => {
                        self.look_again(pid);
                        continue;
                    }
                },
                // A file on a watched mount, or on a mount that is gone, is not touched.
                _ if is_named => {
                    let path = printable(mapping.path.as_bytes());
                    Err(match remote {
                        Some(true) => format!("{path} is on a network file system, which is never touched"),
                        _ => format!("{path} is on no file system that is mounted"),
                    })
                }
                _ => Ok(None),
            };
            match found {
                Ok(Some(library)) => {
                    self.attached.insert(mapping.file, library);
                }
                Ok(None) => {
                    if self.others.len() >= FILES {
                        self.others.clear();
                    }
                    self.others.insert(mapping.file);
                }
                Err(reason) => {
                    tracing::warn!(probe, pid, "{} is not watched: {reason}", self.kind.what);
                    if self.refused.len() < LIBRARIES {
                        self.refused.insert(mapping.file, reason);
                    }
                }
            }
        }
    }

    /// The file, and where to attach if it is one. `None` if it is not mapped there now, or its disk is slow.
    fn examine(&self, pid: u32, mapping: &MappedFile) -> Option<(File, Option<AttachOffsets>)> {
        let (link, examine) = (format!("/proc/{pid}/map_files/{}", mapping.range), self.kind.examine);
        let name = file_name(&mapping.path).to_owned();
        aside(move || {
            let file = File::open(link).ok()?;
            let places = examine(&file, &name);
            Some((file, places))
        })?
    }

    /// Attaches to the file if it is one. It may have been deleted, and its path be another process's.
    fn attach(
        &self,
        object: &mut Object,
        pid: u32,
        mapping: &MappedFile,
        file: &File,
        places: Option<AttachOffsets>,
    ) -> Result<Option<Library>, String> {
        let Some(places) = places else { return Ok(None) };
        let path = printable(mapping.path.as_bytes());
        if self.attached.len() >= LIBRARIES {
            return Err(format!("{path} is one more than the {LIBRARIES} that are watched at a time"));
        }
        let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        let links = (self.kind.attach)(object, self.via, Path::new(&by_descriptor), &places)
            .map_err(|error| format!("cannot attach to {path}: {error:#}"))?;
        tracing::info!(probe = self.kind.probe, pid, functions = places.offsets.len(), "watching {path}");
        Ok(Some(Library { _links: links, path, unseen: places.unseen, witness: pid }))
    }
}

fn has_gone(library: &Library) -> bool {
    !Path::new("/proc").join(library.witness.to_string()).exists()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The program that tells of files that are mapped.
const HOOK: &str = "tp_mapped";

/// Whether a program is attached here, when there is something to attach it to.
pub(crate) fn is_attached_later(program: &ProgramMut<'_>) -> bool {
    is_on_library(program) || program.name() == HOOK
}

/// Whether a program is one that goes on libraries, and has been loaded.
pub(crate) fn is_on_library(program: &ProgramMut<'_>) -> bool {
    let section = program.section().to_string_lossy();
    program.autoload() && (["uprobe", "uretprobe", "usdt"].iter().any(|kind| section.starts_with(kind)))
}

pub(crate) fn map_of<'o>(object: &'o Object, name: &str) -> Option<libbpf_rs::Map<'o>> {
    object.maps().find(|map| map.name().as_encoded_bytes().ends_with(name.as_bytes()))
}

fn programs_started(object: &Object) -> u64 {
    let value = map_of(object, ".data.started").and_then(|map| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()?);
    value.and_then(|value| Some(u64::from_ne_bytes(value.get(..8)?.try_into().ok()?))).unwrap_or_default()
}

/// Makes the kernel side report a library that was detached, or this file, when it is mapped again.
fn forget_seen(object: &Object, only: Option<&mapped>) {
    let Some(map) = map_of(object, "seen_files") else { return };
    let is_meant = |key: &[u8]| only.is_none_or(|only| key.starts_with(&only.as_bytes()[..16]));
    // The entry may be gone already.
    map.keys().filter(|key| is_meant(key)).for_each(|key| drop(map.delete(&key)));
}
