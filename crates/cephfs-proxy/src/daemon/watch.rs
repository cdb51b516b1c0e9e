//! The descriptors for which a main thread waits.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};

use crate::sys;

/// Descriptors that become readable, each with a number.
pub struct Watch(OwnedFd);

impl Watch {
    /// A watch without descriptors.
    pub fn new() -> io::Result<Watch> {
        Ok(Watch(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor.
    pub fn add(&self, fd: impl AsFd, id: u64) -> rustix::io::Result<()> {
        epoll::add(&self.0, fd, EventData::new_u64(id), EventFlags::IN | EventFlags::RDHUP)
    }

    /// Removes a descriptor. A descriptor that is closed everywhere is removed automatically.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Waits at most for `limit`. Returns the numbers of readable descriptors.
    pub fn wait(&self, limit: Duration) -> io::Result<Vec<u64>> {
        let mut room = [MaybeUninit::uninit(); 64];
        match epoll::wait(&self.0, &mut room, Some(&sys::timespec(limit))) {
            Ok((events, _)) => Ok(events.iter().map(|event| event.data.u64()).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}
