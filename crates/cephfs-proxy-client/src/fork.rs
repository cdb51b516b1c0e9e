//! A lock that is unlocked in a forked child, with consistent data: a forking thread takes it before the fork, and
//! parent and child release it afterwards.

use std::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::Once,
};

use crate::tables::Tables;

/// The only lock of the library's tables. It is held briefly, and never while a request is under way.
pub struct ForkMutex {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    tables: UnsafeCell<Option<Tables>>,
}

// SAFETY: the tables are accessed under the lock only.
unsafe impl Sync for ForkMutex {}

static STATE: ForkMutex =
    ForkMutex { lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), tables: UnsafeCell::new(None) };
static HANDLERS: Once = Once::new();

/// Access to the locked tables.
pub struct Guard(());

/// Locks the tables. The first call installs the fork handlers.
pub fn tables() -> Guard {
    HANDLERS.call_once(|| {
        // SAFETY: the three functions stay valid, as the library is never unloaded (build.rs).
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
    // SAFETY: a valid mutex, never destroyed.
    unsafe { libc::pthread_mutex_lock(STATE.lock.get()) };
    Guard(())
}

extern "C" fn prepare() {
    // SAFETY: a valid mutex, never destroyed.
    unsafe { libc::pthread_mutex_lock(STATE.lock.get()) };
}

extern "C" fn parent() {
    // SAFETY: this thread locked it in `prepare`.
    unsafe { libc::pthread_mutex_unlock(STATE.lock.get()) };
}

/// Closes the parent's connection in the child: otherwise the daemon would not see its end when the parent ends.
extern "C" fn child() {
    // SAFETY: this thread locked it in `prepare`, and is the child's only thread.
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
