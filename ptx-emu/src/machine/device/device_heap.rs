//! The heap of a device, from which `malloc` in kernels allocates.
//!
//! All blocks lie in one address range, with unmapped bytes between them. An address is reused only
//! when no fresh address is left, so most accesses to freed blocks can be recognized.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fault::AllocationInfo;
use crate::machine::device::allocation::ShadowedAllocation;

/// The maximum size of all live blocks, which is the default of `CU_LIMIT_MALLOC_HEAP_SIZE`.
const LIMIT: u64 = 8 << 20;
/// The size of the address range of a heap.
const ROOM: u64 = 4 * LIMIT;
/// The alignment of block addresses.
const ALIGN: u64 = 16;
/// The minimum number of unmapped bytes after a block.
const GAP: u64 = 64;
/// The number of freed blocks that are remembered.
const REMEMBERED: usize = 4096;

/// The heap of one device.
#[derive(Debug)]
pub(crate) struct Heap {
    arena: ShadowedAllocation,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// The offset of the next fresh block.
    next: u64,
    /// The size of all live blocks in bytes.
    used: u64,
    /// The size of each live block, by offset.
    live: BTreeMap<u64, u64>,
    freed: VecDeque<(u64, u64)>,
}

impl Heap {
    /// Creates an empty heap in [`Heap::room`] bytes at `base`, or returns `None` if the host has
    /// too little memory.
    pub(crate) fn new(base: u64, device: u32) -> Option<Heap> {
        Some(Heap {
            arena: ShadowedAllocation::on_device(base, device, ROOM)?,
            blocks: Mutex::default(),
        })
    }

    /// Returns the size of the address range of a heap.
    pub(crate) fn room() -> u64 {
        ROOM
    }

    /// Returns the arena if it contains `address`.
    pub(crate) fn holds(&self, address: u64) -> Option<&ShadowedAllocation> {
        (address.wrapping_sub(self.arena.base) < self.arena.bytes).then_some(&self.arena)
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `bytes` uninitialized bytes and returns their address, or 0 if the heap is full or
    /// `bytes` is 0.
    pub(crate) fn malloc(&self, bytes: u64) -> u64 {
        let mut blocks = self.lock();
        if bytes == 0 || bytes > LIMIT - blocks.used {
            return 0;
        }
        let Some(offset) = blocks.find(bytes) else {
            return 0;
        };

        blocks.used += bytes;
        blocks.live.insert(offset, bytes);
        self.arena.base + offset
    }

    /// Frees a block. Returns false if no live block begins at `address`.
    pub(crate) fn free(&self, address: u64) -> bool {
        let mut blocks = self.lock();
        let offset = address.wrapping_sub(self.arena.base);
        let Some(bytes) = blocks.live.remove(&offset) else {
            return false;
        };

        blocks.used -= bytes;
        blocks.freed.push_back((offset, bytes));
        if blocks.freed.len() > REMEMBERED {
            blocks.freed.pop_front();
        }

        self.arena.forget_all(offset, bytes);
        true
    }

    /// Returns true if all `bytes` bytes lie in one live block.
    pub(crate) fn is_live(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.arena.base);
        let blocks = self.lock();
        let found = blocks.live.range(..=offset).next_back();
        found.is_some_and(|(start, size)| offset.saturating_add(bytes) <= start + size)
    }

    /// Returns the freed block that contained `address`.
    pub(crate) fn freed(&self, address: u64) -> Option<AllocationInfo> {
        let offset = address.wrapping_sub(self.arena.base);
        let blocks = self.lock();
        let found = blocks
            .freed
            .iter()
            .rev()
            .find(|(start, bytes)| (*start..start + bytes).contains(&offset));
        found.map(|block| self.info(*block))
    }

    /// Returns the live block that contains `address` or is nearest before it.
    pub(crate) fn nearest(&self, address: u64) -> Option<AllocationInfo> {
        let offset = address.wrapping_sub(self.arena.base);
        let blocks = self.lock();
        let before = blocks.live.range(..=offset).next_back();
        before
            .or_else(|| blocks.live.iter().next())
            .map(|(start, bytes)| self.info((*start, *bytes)))
    }

    fn info(&self, (offset, bytes): (u64, u64)) -> AllocationInfo {
        AllocationInfo {
            base: self.arena.base + offset,
            bytes,
            label: "a block of malloc".into(),
        }
    }
}

impl Blocks {
    /// Returns the offset of a free range: a fresh one, or else the first gap between live blocks.
    fn find(&mut self, bytes: u64) -> Option<u64> {
        let whole = (bytes + GAP).next_multiple_of(ALIGN);
        if whole <= ROOM - self.next {
            self.next += whole;
            return Some(self.next - whole);
        }

        let mut from = 0;
        for (start, size) in &self.live {
            if start.saturating_sub(from) >= whole {
                return Some(from);
            }
            from = (start + size + GAP).next_multiple_of(ALIGN);
        }

        (ROOM.saturating_sub(from) >= whole).then_some(from)
    }
}
