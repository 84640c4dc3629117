//! The heap of a device, from which `malloc` of kernels takes its blocks.
//!
//! All blocks lie in one range of addresses. An address is used again only when no fresh one is left, so a block that was
//! freed can mostly be recognised. Unmapped bytes lie between blocks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::allocation::Allocation;
use crate::fault::AllocationInfo;

/// Bytes that the live blocks of a heap may have: the default of a device (`CU_LIMIT_MALLOC_HEAP_SIZE`).
const LIMIT: u64 = 8 << 20;
/// Bytes of addresses that a heap has.
const ROOM: u64 = 4 * LIMIT;
/// Block addresses are multiples of this.
const ALIGN: u64 = 16;
/// Unmapped bytes behind a block, at least.
const GAP: u64 = 64;
/// Freed blocks that are remembered.
const REMEMBERED: usize = 4096;

/// The heap of one device.
#[derive(Debug)]
pub(crate) struct Heap {
    arena: Allocation,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// Where the next block may begin, as an offset.
    next: u64,
    /// Bytes of live blocks.
    used: u64,
    /// Sizes of live blocks by offset.
    live: BTreeMap<u64, u64>,
    freed: VecDeque<(u64, u64)>,
}

impl Heap {
    /// An empty heap at an address for [`Heap::room`] bytes; none where the host has no room for it.
    pub(crate) fn new(base: u64, device: u32) -> Option<Heap> {
        Some(Heap {
            arena: Allocation::on_device(base, device, ROOM)?,
            blocks: Mutex::default(),
        })
    }

    /// Bytes of addresses that a heap takes.
    pub(crate) fn room() -> u64 {
        ROOM
    }

    /// The memory of all blocks, if an address lies in it.
    pub(crate) fn holds(&self, address: u64) -> Option<&Allocation> {
        (address.wrapping_sub(self.arena.base) < self.arena.bytes).then_some(&self.arena)
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of uninitialised bytes; 0 when there is no room, or none is asked for.
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

    /// Frees a block; whether there was one.
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

    /// Whether all of some bytes lie in one live block.
    pub(crate) fn is_live(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.arena.base);
        let blocks = self.lock();
        let found = blocks.live.range(..=offset).next_back();
        found.is_some_and(|(start, size)| offset.saturating_add(bytes) <= start + size)
    }

    /// The freed block that held an address.
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

    /// The live block at or nearest before an address.
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
    /// The offset of a block that fits: a fresh one, or else the first between those that live.
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
