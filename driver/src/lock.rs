//! Locks that a panic of another holder does not close.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose data stays whole whatever a holder does.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
