//! Cached answers of the daemon, used for as long as the version table shows that they are valid (`cephfs_proxy::version_table`).
//!
//! They lie with the inode that they are about. Looking takes the library's lock and no request.

mod attributes;
mod idle;
mod lists;
mod many;
mod names;
mod paths;
mod xattrs;

use cephfs_proxy::wire::Stamp;

use crate::link::Link;

pub use attributes::{Attributes, attributes};
pub use idle::Idle;
pub use lists::{Batch, List};
pub use many::Hint;
pub use names::{COMMON, Names, Question};
pub use xattrs::{LARGEST, Xattrs};

/// Flags with which what is asked for may be a copy: AT_SYMLINK_NOFOLLOW and AT_STATX_DONT_SYNC. libcephfs judges others.
const HARMLESS: u32 = 0x100 | 0x4000;

/// So much [`now`] may be behind: milliseconds between two ticks (CONFIG_HZ=100, the slowest), and the part of one that is cut off.
const BEHIND: u64 = 10 + 1;

/// A moment, in milliseconds, to be taken before something is asked for that may be kept.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// A copy.
pub struct Kept<T> {
    value: T,
    stamp: Stamp,
    until: u64,
    link: u64,
}

impl<T> Kept<T> {
    /// What was asked for at this moment; none if it is not to be kept.
    pub fn new(link: &Link, value: T, stamp: Stamp, asked: u64) -> Option<Kept<T>> {
        // Never later than promised: a moment from a clock that is behind is too early only in the beginning.
        let until = (asked + u64::from(stamp.life)).saturating_sub(BEHIND);
        (stamp.life > 0).then_some(Kept { value, stamp, until, link: link.id })
    }

    /// It, if it is still right.
    pub fn get(&self, link: &Link) -> Option<&T> {
        let Stamp { first, second, .. } = self.stamp;
        let same = |(entry, value)| link.versions.value(entry) == value;
        (self.link == link.id && same(first) && same(second) && now() < self.until && link.versions.alive())
            .then_some(&self.value)
    }
}
