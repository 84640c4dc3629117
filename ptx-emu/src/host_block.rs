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

    pub(crate) fn new(bytes: u64) -> Option<HostBlock> {
        let len = words_for(bytes);
        let storage = zeroed(len.checked_add(Self::PAGE / 4)?)?;
        let start = (storage.as_ptr() as usize).wrapping_neg() % Self::PAGE / 4;
        Some(HostBlock { storage, start, len })
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
