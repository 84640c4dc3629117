//! Pinned host memory.

use std::sync::atomic::AtomicU32;

/// Pinned host memory. Its device address is the address of its storage, so that the host and the
/// devices share it.
#[derive(Debug)]
pub struct HostBlock {
    storage: Box<[AtomicU32]>,
    start: usize,
    len: usize,
}

impl HostBlock {
    /// The alignment of the start, as for pinned memory of the driver.
    const PAGE: usize = 4096;

    /// The maximum size of the guard on either side, in bytes. A guard is as large as the block, so
    /// that an index that is too large by the length of the block leads to unmapped memory.
    const MOST_GUARD: u64 = 1 << 20;

    pub(crate) fn new(bytes: u64) -> Option<HostBlock> {
        let len = words_for(bytes);
        let guard = (bytes.clamp(Self::PAGE as u64, Self::MOST_GUARD) / 4) as usize;
        let storage = zeroed(len.checked_add(Self::PAGE / 4)?.checked_add(2 * guard)?)?;
        let guarded = storage[guard..].as_ptr() as usize;
        let start = guard + guarded.wrapping_neg() % Self::PAGE / 4;
        Some(HostBlock {
            storage,
            start,
            len,
        })
    }

    /// Returns the address of the first word, for the host and the devices. It is a multiple of
    /// 4096.
    pub fn address(&self) -> u64 {
        self.words().as_ptr() as u64
    }

    /// Returns the storage as little-endian words.
    ///
    /// The words are atomic because host threads and kernels may access them at the same time.
    pub fn words(&self) -> &[AtomicU32] {
        &self.storage[self.start..self.start + self.len]
    }
}

pub(crate) fn words_for(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(4)).unwrap_or(usize::MAX)
}

pub(crate) fn zeroed(words: usize) -> Option<Box<[AtomicU32]>> {
    let mut storage = Vec::new();
    storage.try_reserve_exact(words).ok()?;
    storage.resize_with(words, AtomicU32::default);
    Some(storage.into_boxed_slice())
}
