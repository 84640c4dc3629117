//! Locks that a panic of another holder does not close. All locks of this crate are taken here, so that the tests can
//! let threads take turns at them.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(test)]
#[path = "../tests/locks/turns.rs"]
pub(crate) mod turns;

/// A lock whose data stays whole whatever a holder does.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(test)]
    turns::before_lock(mutex);
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A share of a lock whose data stays whole whatever a holder does.
#[inline]
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    #[cfg(test)]
    turns::before_read(lock);
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// All of a lock whose data stays whole whatever a holder does.
#[inline]
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    #[cfg(test)]
    turns::before_write(lock);
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
