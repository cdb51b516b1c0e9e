//! Looks up many names at once, with the extended attributes that the client will request next.

use std::ffi::CString;

use super::{Reply, RequestContext, lock};
use crate::{
    layout::{DATA_SIZE, KEEP},
    memory::copy_from_peer,
    wire::*,
};

/// The most names of one request, and the most extended attributes of each.
const MOST: u32 = 256;
const MOST_XATTRS: u32 = 4;
/// The most bytes of a value; larger ones are left out.
const LARGEST: u32 = 1024;
/// An upper bound of the bytes of one name's answer.
const ROOM: usize = 512 + MOST_XATTRS as usize * (LARGEST as usize + 128);

impl RequestContext<'_> {
    pub(super) fn lookup_many(&self, r: &LookupMany) -> Reply<()> {
        if r.names > MOST || r.xattrs > MOST_XATTRS {
            return Err(Errno::INVAL);
        }
        let data = self.copy();
        let texts = texts(&data, (r.names + r.xattrs) as usize).ok_or(Errno::BADMSG)?;
        let (names, xattrs) = texts.split_at(r.names as usize);
        let mut said = Vec::new();
        for name in names {
            if said.len() + ROOM > DATA_SIZE {
                break;
            }
            let (mount, parent, perms) = (r.mount, r.parent, r.perms);
            let found = self.lookup(&Lookup { mount, parent, name, want: r.want, flags: 0, perms });
            let found = found.map_or(FoundInode::default(), |(_, found)| found);
            append(&mut said, &found)?;
            if found.inode == Handle(0) {
                continue;
            }
            for xattr in xattrs {
                let (value, about) = self.xattr(r, found.inode, xattr);
                append(&mut said, &(value.len() as u32))?;
                append(&mut said, &about)?;
                said.extend_from_slice(&value);
            }
            // The inode is idle at once: the client takes the inode back when needed.
            let surplus = lock(&self.connection.handles).release(found.inode, 1 | KEEP);
            drop(surplus);
        }
        self.fill(&said)?;
        Ok((said.len() as i64, ()))
    }

    /// The value of an extended attribute; empty, with a stamp of 0, if it must not be cached.
    fn xattr(&self, r: &LookupMany, inode: Handle, name: &CString) -> (Vec<u8>, Xattr) {
        let (mount, room, perms) = (r.mount, LARGEST, r.perms);
        let said = if name.is_empty() {
            self.listxattr(&Listxattr { mount, inode, room, perms })
        } else {
            self.getxattr(&Getxattr { mount, inode, name, room, perms })
        };
        match said {
            Ok((length, about)) if length <= LARGEST.into() => {
                let mut value = vec![0; length as usize];
                // SAFETY: the slot's data is at least as long, and aligned to its size.
                unsafe { copy_from_peer(self.data, &mut value) };
                (value, about)
            }
            _ => (Vec::new(), Xattr::default()),
        }
    }
}

fn append<'a>(to: &mut Vec<u8>, value: &impl Wire<'a>) -> Result<(), Errno> {
    let mut room = [0; 512];
    let mut writer = WireWriter::new(&mut room);
    value.put(&mut writer).map_err(|_| Errno::IO)?;
    to.extend_from_slice(writer.written());
    Ok(())
}

/// Decodes `count` texts, each with its length in front; `None` if the data is anything else.
fn texts(data: &[u8], count: usize) -> Option<Vec<CString>> {
    let (mut reader, mut texts) = (WireReader::new(data), Vec::new());
    for _ in 0..count {
        let length = u8::take(&mut reader).ok()?;
        texts.push(CString::new(reader.bytes(length.into()).ok()?).ok()?);
    }
    reader.end().ok()?;
    Some(texts)
}
