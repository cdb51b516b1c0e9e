//! Cached answers of the daemon. A copy is used as long as the version table shows that it is valid (`cephfs_proxy::version_table`).
//!
//! An inode's copies are kept with the inode. A look-up takes the library's lock, and makes no request.

mod attributes;
pub mod data;
mod idle;
mod lists;
mod many;
mod names;
mod paths;
mod xattrs;

use cephfs_proxy::wire::Validity;
use rustix::time::ClockId;

use crate::link::DaemonLink;

pub use attributes::{CachedAttributes, attributes};
pub use idle::Idle;
pub use lists::{EntryBatch, List};
pub use many::Hint;
pub use names::{COMMON, DirectoryNames, Question};
pub use xattrs::{LARGEST, Xattrs};

/// The flags with which a copy may be the answer: AT_SYMLINK_NOFOLLOW and AT_STATX_DONT_SYNC. With other flags, the daemon must ask libcephfs.
const HARMLESS: u32 = 0x100 | 0x4000;

/// The most milliseconds by which [`now`] is late: a tick at CONFIG_HZ=100, the slowest rate, and the truncated fraction.
const BEHIND: u64 = 10 + 1;

/// The current time, milliseconds. Call this before a request whose answer may be cached.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// A cached answer.
pub struct CachedAnswer<T> {
    value: T,
    stamp: Validity,
    until: u64,
    link: u64,
}

impl<T> CachedAnswer<T> {
    /// A copy of an answer that was requested at the time `asked`; `None` if it must not be cached.
    pub fn new(link: &DaemonLink, value: T, stamp: Validity, asked: u64) -> Option<CachedAnswer<T>> {
        // A copy must not outlive its stamp. `asked` may be early, which is safe. But the time of a later look-up may be early, too, so the life is
        // shortened.
        let until = (asked + u64::from(stamp.life)).saturating_sub(BEHIND);
        (stamp.life > 0).then_some(CachedAnswer { value, stamp, until, link: link.id })
    }

    /// The answer, if it is still valid.
    pub fn get(&self, link: &DaemonLink) -> Option<&T> {
        let Validity { first, second, .. } = self.stamp;
        let same = |(entry, value)| link.versions.value(entry) == value;
        (self.link == link.id && same(first) && same(second) && now() < self.until && link.versions.alive())
            .then_some(&self.value)
    }
}
