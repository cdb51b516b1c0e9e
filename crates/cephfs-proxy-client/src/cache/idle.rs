//! Idle inodes: the caller has released them, but the library keeps them and their copies for a while, in case the caller needs them again.

use std::collections::VecDeque;

use cephfs_proxy::wire::{Errno, Handle};

use crate::tables::{HandleTable, Inode, Origin, Tables};

/// The most idle inodes.
const MOST: usize = 2048;

/// The queue of idle inodes, in the order in which they became idle, each once.
#[derive(Default)]
pub struct Idle {
    queue: VecDeque<(u64, u64)>,
    count: u64,
}

impl Idle {
    /// Forgets the inodes that are not in the table any more.
    pub fn retain(&mut self, inodes: &mut HandleTable<Inode>) {
        self.queue.retain(|(number, _)| inodes.get(*number).is_ok());
    }
}

impl Tables {
    /// Makes an inode idle after the caller's last release. Returns false if the inode has no copies worth keeping, or cannot be kept.
    pub fn retire(&mut self, number: u64) -> bool {
        let Ok(inode) = self.inodes.get(number) else { return false };
        let (at, remote, owed) = (inode.link, inode.remote, inode.owed);
        let worth = inode.attributes.is_some();
        let link = self.live(at).filter(|_| worth);
        if !link.is_some_and(|link| link.retire(remote, owed)) {
            return false;
        }
        self.rest(number);
        self.trim();
        true
    }

    /// The number of an inode that the daemon has looked up in advance. If the caller does not hold the inode, the inode becomes idle now. Call
    /// [`Tables::trim`] after the last of these inodes.
    pub fn found(&mut self, (mount, link, remote): (u64, u64, Handle), origin: Origin) -> u64 {
        let known = self.known.get(&(mount, link, remote)).copied();
        let number = known.unwrap_or_else(|| {
            let number = self.inodes.add(Inode::new(mount, link, remote, origin, 0));
            self.known.insert((mount, link, remote), number);
            number
        });
        if self.present(number).is_err() {
            self.rest(number);
        }
        number
    }

    /// Adds an inode to the idle ones.
    fn rest(&mut self, number: u64) {
        self.idle.count += 1;
        let count = self.idle.count;
        let Ok(inode) = self.inodes.get(number) else { return };
        (inode.owed, inode.idle) = (0, count);
        if !inode.queued {
            inode.queued = true;
            self.idle.queue.push_back((number, count));
        }
    }

    /// Drops the inodes that have been idle longest, if there are too many. Call this only after an answer is processed completely. Otherwise it
    /// would drop inodes that the same answer has just brought.
    pub fn trim(&mut self) {
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
                // If there is no room for the release, the daemon drops the inode after the daemon's own time limit.
                if let Some(link) = self.live(gone.link) {
                    link.release(gone.remote, 0);
                }
            }
        }
    }

    /// Removes an inode and everything that is known of it.
    pub fn forget(&mut self, number: u64) -> Result<Inode, Errno> {
        let gone = self.inodes.remove(number)?;
        self.known.remove(&(gone.mount, gone.link, gone.remote));
        self.names = self.names.saturating_sub(gone.names.len());
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(tables: &mut Tables, remote: u64) -> u64 {
        tables.found((1, 1, Handle(remote)), Origin::Number { ino: remote, snapshot: 0 })
    }

    #[test]
    fn those_of_an_answer_stay_and_the_oldest_others_go() {
        let mut tables = Tables::default();
        let numbers: Vec<u64> = (0..MOST as u64).map(|remote| find(&mut tables, remote)).collect();
        tables.trim();
        // The ten new inodes, then the ten oldest ones.
        let new: Vec<u64> = (0..10).map(|remote| find(&mut tables, MOST as u64 + remote)).collect();
        let old: Vec<u64> = (0..10).map(|remote| find(&mut tables, remote)).collect();
        assert_eq!(old, numbers[..10]);
        tables.trim();
        assert_eq!(tables.inodes.all().count(), MOST);
        for number in new.iter().chain(&old).chain(&numbers[20..]) {
            assert!(tables.inodes.get(*number).is_ok());
        }
        for number in &numbers[10..20] {
            assert!(tables.inodes.get(*number).is_err());
        }
    }

    #[test]
    fn what_the_caller_has_is_not_idle() {
        let mut tables = Tables::default();
        let number = tables.inodes.add(Inode::new(1, 1, Handle(7), Origin::Root, 3));
        tables.known.insert((1, 1, Handle(7)), number);
        assert_eq!(find(&mut tables, 7), number);
        assert_eq!(tables.inodes.get(number).map(|inode| (inode.owed, inode.queued)), Ok((3, false)));
    }
}
