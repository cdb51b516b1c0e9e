//! A lock that a fork finds unlocked in the child, and consistent: whoever forks takes it before, and both sides release it after.

use std::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::Once,
};

use crate::tables::Tables;

/// The one lock, around all that the library knows. Held for short, and never while a request is under way.
pub struct ForkMutex {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    tables: UnsafeCell<Option<Tables>>,
}

// SAFETY: the tables are reached under the lock only.
unsafe impl Sync for ForkMutex {}

static STATE: ForkMutex =
    ForkMutex { lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), tables: UnsafeCell::new(None) };
static HANDLERS: Once = Once::new();

/// The tables, locked.
pub struct Guard(());

/// Locks them. The first time, sees to forks.
pub fn tables() -> Guard {
    HANDLERS.call_once(|| {
        // SAFETY: three functions that stay: the library is never unloaded (build.rs).
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
    // SAFETY: a valid mutex, never destroyed.
    unsafe { libc::pthread_mutex_lock(STATE.lock.get()) };
    Guard(())
}

extern "C" fn prepare() {
    // SAFETY: as in `tables`.
    unsafe { libc::pthread_mutex_lock(STATE.lock.get()) };
}

extern "C" fn parent() {
    // SAFETY: this thread locked it in `prepare`.
    unsafe { libc::pthread_mutex_unlock(STATE.lock.get()) };
}

/// The child has no part in the parent's connection: the daemon must see its end when the parent ends.
extern "C" fn child() {
    // SAFETY: this thread locked it in `prepare`, and is the only one there is.
    unsafe {
        if let Some(tables) = &mut *STATE.tables.get() {
            tables.forked();
        }
        libc::pthread_mutex_unlock(STATE.lock.get());
    }
}

impl Deref for Guard {
    type Target = Tables;
    fn deref(&self) -> &Tables {
        // SAFETY: locked.
        unsafe { (*STATE.tables.get()).get_or_insert_with(Tables::default) }
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Tables {
        // SAFETY: locked, by this guard alone.
        unsafe { (*STATE.tables.get()).get_or_insert_with(Tables::default) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: locked by the thread that made this guard, which cannot leave it.
        unsafe { libc::pthread_mutex_unlock(STATE.lock.get()) };
    }
}
