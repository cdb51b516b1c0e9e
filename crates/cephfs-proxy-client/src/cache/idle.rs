//! Inodes that the caller has given back: they are kept for a while, with what is known of them, in case somebody asks again.

use std::collections::VecDeque;

use cephfs_proxy::wire::Errno;

use crate::tables::{Inode, Tables};

/// How many are kept, at most.
const MOST: usize = 2048;

/// In the order in which they became idle, each once.
#[derive(Default)]
pub struct Idle {
    queue: VecDeque<(u64, u64)>,
    count: u64,
}

impl Tables {
    /// Keeps an inode that the caller has just given back for the last time; false if it is not worth it, or not possible.
    pub fn retire(&mut self, number: u64) -> bool {
        let Ok(inode) = self.inodes.get(number) else { return false };
        let (at, remote, owed) = (inode.link, inode.remote, inode.owed);
        let worth = inode.attributes.is_some();
        let link = self.live_link().filter(|link| worth && link.id == at);
        if !link.is_some_and(|link| link.retire(remote, owed)) {
            return false;
        }
        self.rest(number);
        true
    }

    /// Counts an inode among those that nobody has but us; the one that has been there for longest may have to go.
    pub fn rest(&mut self, number: u64) {
        self.idle.count += 1;
        let count = self.idle.count;
        let Ok(inode) = self.inodes.get(number) else { return };
        (inode.owed, inode.idle) = (0, count);
        if !inode.queued {
            inode.queued = true;
            self.idle.queue.push_back((number, count));
        }
        while self.idle.queue.len() > MOST {
            let Some((oldest, count)) = self.idle.queue.pop_front() else { return };
            let Ok(inode) = self.inodes.get(oldest) else { continue };
            inode.queued = inode.held == 0 && inode.idle != count;
            if inode.queued {
                let again = (oldest, inode.idle);
                self.idle.queue.push_back(again);
            } else if inode.held == 0
                && let Ok(gone) = self.forget(oldest)
            {
                // If there is no room to say so, the daemon comes to it by itself.
                if let Some(link) = self.live_link().filter(|link| link.id == gone.link) {
                    link.release(gone.remote, 0);
                }
            }
        }
    }

    /// Takes out an inode.
    pub fn forget(&mut self, number: u64) -> Result<Inode, Errno> {
        let gone = self.inodes.remove(number)?;
        self.known.remove(&(gone.mount, gone.link, gone.remote));
        self.names = self.names.saturating_sub(gone.names.len());
        Ok(gone)
    }
}
