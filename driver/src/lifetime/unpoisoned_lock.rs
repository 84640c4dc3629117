//! Locks that ignore poisoning.
//!
//! A panic under a lock of this crate leaves the data valid, because each critical section changes
//! it in steps that are complete in themselves. All locks of the crate are taken through this
//! module, so that tests can control the order in which threads take them.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(test)]
#[path = "../../tests/locks/turns.rs"]
pub(crate) mod turns;

/// Locks a mutex whose data stays valid after a panic.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(test)]
    turns::before_lock(mutex);
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes shared access to a lock whose data stays valid after a panic.
#[inline]
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    #[cfg(test)]
    turns::before_read(lock);
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes exclusive access to a lock whose data stays valid after a panic.
#[inline]
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    #[cfg(test)]
    turns::before_write(lock);
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
