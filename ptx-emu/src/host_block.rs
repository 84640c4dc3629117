//! Pinned host memory.

use std::sync::atomic::AtomicU32;

/// Pinned host memory: its device address is the address of its storage, so host and device share it.
#[derive(Debug)]
pub struct HostBlock {
    storage: Box<[AtomicU32]>,
    start: usize,
    len: usize,
}

impl HostBlock {
    /// Bytes by which the start is aligned, as the driver's pinned memory is.
    const PAGE: usize = 4096;

    /// Bytes kept free on either side are as many as the block has, but no more than this: an index that runs over by
    /// the length of the block then leads nowhere.
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

    /// Address of the first word, for host and device alike; a multiple of 4096.
    pub fn address(&self) -> u64 {
        self.words().as_ptr() as u64
    }

    /// The storage, little-endian words.
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
