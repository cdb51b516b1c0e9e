//! The lock of the library's tables. In a forked child, the lock is free and the data is consistent: a forking thread takes the lock before the
//! fork, and parent and child release it afterwards.

use std::{
    cell::{Cell, UnsafeCell},
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    sync::LazyLock,
};

use crate::tables::Tables;

/// A mutex of the C library, which executes no atomic instruction while the process has one thread (glibc 2.34 and newer). With std's mutex,
/// cached attributes took 22 ns instead of 17.
struct PthreadMutex<T> {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed under the lock only.
unsafe impl<T: Send> Sync for PthreadMutex<T> {}

impl<T> PthreadMutex<T> {
    fn new(value: T) -> PthreadMutex<T> {
        PthreadMutex { lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), value: UnsafeCell::new(value) }
    }

    /// Locks the mutex. The mutex is a static, since a locked mutex must not move.
    fn lock(&'static self) -> MutexGuard<T> {
        // SAFETY: a valid mutex, never destroyed.
        unsafe { libc::pthread_mutex_lock(self.lock.get()) };
        MutexGuard { mutex: self, in_this_thread: PhantomData }
    }
}

/// Access to the value of a locked mutex. The guard stays in the thread that locked the mutex.
pub struct MutexGuard<T: 'static> {
    mutex: &'static PthreadMutex<T>,
    in_this_thread: PhantomData<*mut ()>,
}

impl<T> Deref for MutexGuard<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the mutex is locked, and a mutable reference would borrow the guard mutably.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard has locked the mutex, and is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<T> {
    fn drop(&mut self) {
        // SAFETY: this thread locked the mutex when it created the guard.
        unsafe { libc::pthread_mutex_unlock(self.mutex.lock.get()) };
    }
}

/// Access to the locked tables.
pub type Guard = MutexGuard<Tables>;

/// The lock is held briefly, and never while a request is under way.
static TABLES: LazyLock<PthreadMutex<Tables>> = LazyLock::new(|| {
    let tables = PthreadMutex::new(Tables::default());
    // SAFETY: the three functions stay valid, as the library is never unloaded (build.rs).
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    tables
});

thread_local! {
    /// The guard, while this thread forks. The cell has no destructor, so a thread that is ending can fork, too.
    static HELD: Cell<Option<ManuallyDrop<Guard>>> = const { Cell::new(None) };
}

/// Locks the tables. The first call installs the fork handlers.
pub fn tables() -> Guard {
    TABLES.lock()
}

extern "C" fn prepare() {
    HELD.set(Some(ManuallyDrop::new(tables())));
}

/// Takes back the guard from `prepare`, which ran on this thread. In the child, this thread is the only one.
fn held() -> Option<Guard> {
    HELD.take().map(ManuallyDrop::into_inner)
}

extern "C" fn parent() {
    drop(held());
}

/// Closes the parent's connection in the child. Otherwise the daemon would not see the end of the connection when the parent ends.
extern "C" fn child() {
    if let Some(mut tables) = held() {
        tables.forked();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use nix::{
        sys::wait::{WaitStatus, waitpid},
        unistd::{ForkResult, alarm, fork},
    };

    use super::*;

    #[test]
    fn a_fork_waits_for_the_lock_and_the_child_finds_it_free() {
        let (taken, is_taken) = mpsc::channel();
        let holder = thread::spawn(move || {
            let mut tables = tables();
            tables.names += 1;
            taken.send(()).unwrap();
            thread::sleep(Duration::from_millis(20)); // the fork begins meanwhile
            tables.names -= 1;
        });
        is_taken.recv().unwrap();
        // SAFETY: the child only sets an alarm, takes the lock and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                alarm::set(10); // it ends a child that waits for a thread that it does not have
                let whole = tables().names == 0;
                // SAFETY: `_exit` does not return.
                unsafe { libc::_exit(if whole { 0 } else { 1 }) };
            }
            ForkResult::Parent { child } => assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0))),
        }
        drop(tables());
        holder.join().unwrap();
    }
}
