//! The conditions of conditional nodes: values that kernels set and nodes read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All conditions of the driver, by handle.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Mutex<HashMap<u64, Arc<AtomicU32>>>);

/// The next handle. It is shared by all machines of the process, so that a handle of an earlier
/// machine is invalid in a later one.
static NEXT: AtomicU64 = AtomicU64::new(0x7c00_0000_0000_0001);

impl Conditions {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<AtomicU32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a condition and returns its handle and its value.
    pub(crate) fn create(&self, value: u32) -> (u64, Arc<AtomicU32>) {
        let handle = NEXT.fetch_add(1, Relaxed);
        let cell = Arc::new(AtomicU32::new(value));
        self.lock().insert(handle, Arc::clone(&cell));
        (handle, cell)
    }

    /// Sets the value of a condition. Returns false if it does not exist.
    pub(crate) fn set(&self, handle: u64, value: u32) -> bool {
        let found = self.lock().get(&handle).cloned();
        found.inspect(|cell| cell.store(value, Relaxed)).is_some()
    }

    /// Returns the value of a condition, or a new one if its graph no longer exists.
    pub(crate) fn cell(&self, handle: u64) -> Arc<AtomicU32> {
        self.lock().get(&handle).cloned().unwrap_or_default()
    }

    pub(crate) fn remove(&self, handle: u64) {
        self.lock().remove(&handle);
    }
}
