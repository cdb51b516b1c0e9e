//! Walks paths name by name, where names can be cached.

use cephfs_proxy::wire::{Errno, Handle, LookupRoot, Statx};

use super::{HARMLESS, Question, now};
use crate::{
    fork,
    link::CallError,
    session::{RequestTarget, put_back},
    tables::{Origin, Pointer},
};

/// AT_SYMLINK_NOFOLLOW.
const NO_FOLLOW: u32 = 0x100;

impl RequestTarget {
    /// Finds a path's inode, as `RequestTarget::find` does for a name. `None` if the daemon must walk the path.
    pub fn walk(&self, path: &[u8], want: u32, flags: u32, perms: Handle) -> Option<Result<(Pointer, Statx), Errno>> {
        if !self.link.keeps_names || flags & !HARMLESS != 0 || path.is_empty() {
            return None;
        }
        let names = self.names(path)?;
        let (mut at, asked) = (self.root().ok()?, now());
        for (index, name) in names.iter().enumerate() {
            let last = index + 1 == names.len();
            let found = self.find(&Question { parent: at, name, perms, want, flags, asked });
            if index > 0 {
                let _ = put_back(self.local as Pointer, at);
            }
            let (inode, statx) = match found {
                Ok(found) => found,
                Err(CallError::Errno(Errno::NOENT)) => return Some(Err(Errno::NOENT)),
                // The daemon walks the path: libcephfs then decides on the errno, and follows symbolic links.
                Err(_) => return None,
            };
            let kind = u32::from(statx.mode) & libc::S_IFMT;
            match last {
                true if kind != libc::S_IFLNK || flags & NO_FOLLOW != 0 => return Some(Ok((inode, statx))),
                false if kind == libc::S_IFDIR => at = inode,
                _ => {
                    let _ = put_back(self.local as Pointer, inode);
                    return None;
                }
            }
        }
        None
    }

    /// The names of a path from the root; `None` if they do not follow from the path alone.
    fn names(&self, path: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut whole = Vec::new();
        if !path.starts_with(b"/") {
            whole.extend_from_slice(fork::tables().mounts.get(self.local).ok()?.directory.to_bytes());
        }
        let own = path.strip_prefix(b"/").unwrap_or(path);
        if own != b"." && !own.is_empty() {
            whole.push(b'/');
            whole.extend_from_slice(own);
        }
        let mut names: Vec<Vec<u8>> =
            whole.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
        if own.ends_with(b"/") || names.iter().any(|name| name == b"." || name == b".." || name.len() > 255) {
            return None;
        }
        if names.is_empty() {
            names.push(b".".to_vec());
        }
        Some(names)
    }

    /// The root of the mount, which the library holds as long as it is mounted.
    fn root(&self) -> Result<Pointer, CallError> {
        let known = fork::tables().mounts.get(self.local)?.root;
        if let Some(root) = known
            && fork::tables().present(root).is_ok_and(|inode| inode.is_at(self.local, &self.link))
        {
            return Ok(root as Pointer);
        }
        let root = self.hand_out(self.link.call(&LookupRoot { mount: self.mount })?, Origin::Root);
        let mut tables = fork::tables();
        let inode = tables.inode(root as u64)?;
        (inode.held, inode.pinned) = (inode.held - 1, true);
        tables.mounts.get(self.local)?.root = Some(root as u64);
        Ok(root)
    }
}
