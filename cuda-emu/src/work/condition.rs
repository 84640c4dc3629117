//! The conditions of conditional nodes: words that kernels set and nodes read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Every condition of the driver, by its handle.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Mutex<HashMap<u64, Arc<AtomicU32>>>);

/// Handles are drawn for the whole process, so that one of an earlier machine is none of a later one.
static NEXT: AtomicU64 = AtomicU64::new(0x7c00_0000_0000_0001);

impl Conditions {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<AtomicU32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new condition and its handle.
    pub(crate) fn create(&self, value: u32) -> (u64, Arc<AtomicU32>) {
        let (handle, cell) = (NEXT.fetch_add(1, Relaxed), Arc::new(AtomicU32::new(value)));
        self.lock().insert(handle, Arc::clone(&cell));
        (handle, cell)
    }

    /// What a kernel sets; whether there is such a condition.
    pub(crate) fn set(&self, handle: u64, value: u32) -> bool {
        let found = self.lock().get(&handle).cloned();
        found.inspect(|cell| cell.store(value, Relaxed)).is_some()
    }

    /// The word of a condition; a fresh one where its graph is gone.
    pub(crate) fn cell(&self, handle: u64) -> Arc<AtomicU32> {
        self.lock().get(&handle).cloned().unwrap_or_default()
    }

    pub(crate) fn remove(&self, handle: u64) {
        self.lock().remove(&handle);
    }
}
