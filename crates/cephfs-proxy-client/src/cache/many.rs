//! Look-ups of many names at once. If a caller has read a directory's list and looks up several of its names in order, it will probably continue.
//! So further names are requested together.

use std::sync::Arc;

use cephfs_proxy::wire::{DirectoryEntry, Errno, FoundInode, Handle, LookupMany, Wire, WireReader, Xattr, errno_of};

use super::{LARGEST, Question, names::COMMON};
use crate::{fork, link::CallError, session::RequestTarget, tables::Origin};

/// The most names of one request.
const MANY: usize = 128;
/// How many names of a list must be requested one by one before many are requested at once.
const SIGNS: u32 = 2;
/// The most extended attributes of each name: the ones requested last.
const MOST_XATTRS: usize = 4;

/// A directory's list when it was last read, and how many of its names have been requested since.
#[derive(Default)]
pub struct Hint {
    bytes: Arc<Vec<u8>>,
    asked: u32,
}

impl Hint {
    /// The hint for a list that has just been read.
    pub fn new(bytes: Arc<Vec<u8>>) -> Hint {
        Hint { bytes, asked: 0 }
    }
}

/// The names of a list, starting at `name`; empty if the list does not contain `name`.
fn names_from(list: &[u8], name: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut names) = (0, Vec::<Vec<u8>>::new());
    while names.len() < MANY
        && let Some(rest) = list.get(at..).filter(|rest| !rest.is_empty())
    {
        let mut reader = WireReader::new(rest);
        let Ok(entry) = DirectoryEntry::take(&mut reader) else { break };
        let Ok(found) = reader.bytes(entry.length.into()) else { break };
        at += DirectoryEntry::SIZE + found.len();
        if (found == name || !names.is_empty()) && found != b".." {
            names.push(found.to_vec());
        }
    }
    names
}

impl RequestTarget {
    /// Notes that an extended attribute was requested.
    pub fn wanted_xattr(&self, name: &[u8]) {
        if self.link.keeps_names {
            let wanted = &mut fork::tables().wanted_xattrs;
            wanted.retain(|other| **other != *name);
            wanted.truncate(MOST_XATTRS - 1);
            wanted.insert(0, name.into());
        }
    }

    /// Requests many names if this is likely to save requests. Returns whether the names have arrived.
    pub fn bring_many(&self, question: &Question<'_>) -> bool {
        self.link.keeps_names && self.ask_many(question).is_ok()
    }

    fn ask_many(&self, question: &Question<'_>) -> Result<(), CallError> {
        let no = CallError::Errno(Errno::NOENT);
        let (parent, list, xattrs) = {
            let mut tables = fork::tables();
            let xattrs = tables.wanted_xattrs.clone();
            let directory = tables.present(question.parent as u64)?;
            if directory.hint.bytes.is_empty() || !directory.is_at(self.local, &self.link) {
                return Err(no);
            }
            directory.hint.asked += 1;
            if directory.hint.asked <= SIGNS {
                return Err(no);
            }
            (directory.remote, directory.hint.bytes.clone(), xattrs)
        };
        let names = names_from(&list, question.name);
        if names.len() < 2 {
            return Err(no);
        }
        let mut data = Vec::new();
        for text in names.iter().map(Vec::as_slice).chain(xattrs.iter().map(|name| &**name)) {
            data.push(u8::try_from(text.len()).map_err(|_| no)?);
            data.extend_from_slice(text);
        }
        let claim = self.link.claim()?;
        // SAFETY: pointer and length are those of a vector.
        unsafe { claim.give(data.as_ptr(), data.len()) };
        let request = LookupMany {
            mount: self.mount,
            parent,
            want: question.want | COMMON,
            names: names.len() as u32,
            xattrs: xattrs.len() as u32,
            perms: question.perms,
        };
        let (length, ()) = claim.call(&request, data.len())?;
        let said = claim.copy(length as usize);
        drop(claim);
        let learnt = self.learn_many(question, &names, &xattrs, &said);
        fork::tables().trim();
        Ok(learnt?)
    }

    fn learn_many(
        &self,
        question: &Question<'_>,
        names: &[Vec<u8>],
        xattrs: &[Box<[u8]>],
        said: &[u8],
    ) -> Result<(), Errno> {
        let malformed = |_| Errno::PROTO;
        let mut reader = WireReader::new(said);
        for name in names {
            // The answer may not have had room for all names.
            let Ok(found) = FoundInode::take(&mut reader) else { break };
            let about = Question { name, ..*question };
            if found.inode == Handle(0) {
                self.learn(&about, &found, None);
                continue;
            }
            let key = (self.local, self.link.id, found.inode);
            let number = fork::tables().found(key, Origin::from(&found.statx));
            self.learn(&about, &found, Some(number));
            for xattr in xattrs {
                let length = u32::take(&mut reader).map_err(malformed)?;
                let Xattr { errno, stamp } = Xattr::take(&mut reader).map_err(malformed)?;
                let value = reader.bytes(length as usize).map_err(malformed)?;
                let value = if errno == 0 { Ok(value) } else { Err(errno_of(-i64::from(errno))) };
                self.learn_xattr(number, (xattr, question.perms), value, stamp, question.asked);
            }
        }
        Ok(())
    }
}

const _: () = assert!(LARGEST <= 1024 && MANY <= 256);
