//! Memory that nodes of graphs allocate and free.
//!
//! The address belongs to the node that allocates. The bytes exist only between that node and the
//! one that frees.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ptx_emu::{Memory, MemoryError};

/// The memory of graphs.
#[derive(Debug, Default)]
pub(crate) struct GraphMemory(Mutex<Ledger>);

#[derive(Debug, Default)]
struct Ledger {
    /// The size and the device of each reserved address.
    reserved: BTreeMap<u64, (u64, u32)>,
    usage: BTreeMap<u32, GraphUsage>,
}

/// The bytes of one device that graphs use and that they keep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GraphUsage {
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) held: u64,
    pub(crate) held_high: u64,
}

impl GraphMemory {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves an address for a node that allocates.
    pub(crate) fn reserve(
        &self,
        memory: &Memory,
        device: u32,
        bytes: u64,
    ) -> Result<u64, MemoryError> {
        let base = memory.reserve(bytes)?;
        self.lock().reserved.insert(base, (bytes, device));
        Ok(base)
    }

    /// Returns the base and the size of the reserved range that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, u64)> {
        let ledger = self.lock();
        let (&base, &(bytes, _)) = ledger.reserved.range(..=address).next_back()?;
        (address - base < bytes).then_some((base, bytes))
    }

    /// Allocates the memory for a reserved address.
    pub(crate) fn alloc(&self, memory: &Memory, base: u64) -> Result<(), MemoryError> {
        let mut ledger = self.lock();
        let Some(&(bytes, device)) = ledger.reserved.get(&base) else {
            return Err(MemoryError::NotAnAllocation { address: base });
        };

        memory.alloc_at(base, device, bytes)?;
        memory.set_label(base, "memory of a graph");
        let usage = ledger.usage.entry(device).or_default();
        usage.used += bytes;
        usage.used_high = usage.used_high.max(usage.used);
        usage.held = usage.held.max(usage.used);
        usage.held_high = usage.held_high.max(usage.held);
        Ok(())
    }

    /// Frees an allocation of a graph, or any other allocation.
    pub(crate) fn free(&self, memory: &Memory, base: u64) -> Result<(), MemoryError> {
        let mut ledger = self.lock();
        memory.free(base)?;
        if let Some(&(bytes, device)) = ledger.reserved.get(&base) {
            ledger.usage.entry(device).or_default().used -= bytes;
        }
        Ok(())
    }

    /// Calls `f` with the usage of a device, which it may change.
    pub(crate) fn usage<R>(&self, device: u32, f: impl FnOnce(&mut GraphUsage) -> R) -> R {
        f(self.lock().usage.entry(device).or_default())
    }
}
