//! One allocation: its address, its storage, and shadow memory that records the initialized bytes.
//!
//! The shadow has one bit per byte. `prefix` counts the leading bytes that are known to be
//! initialized, so a check of a completely initialized allocation is one comparison.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::fault::AllocationInfo;
use crate::machine::device::host_block::{HostBlock, words_for, zeroed};

/// An allocation with its storage and shadow.
#[derive(Debug)]
pub(crate) struct ShadowedAllocation {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) label: RwLock<String>,
    storage: Storage,
    /// One bit per byte, which is set if the byte is initialized. Empty for host memory.
    shadow: Box<[AtomicU32]>,
    /// The number of leading bytes that are known to be initialized.
    prefix: AtomicU64,
    /// Whether the shadow has changed since `prefix` was last advanced.
    stale: AtomicBool,
    /// Whether the allocation is a `.const` variable.
    pub(crate) constant: bool,
    /// The device that owns the memory, or `None` for host memory, which every device can access.
    pub(crate) owner: Option<u32>,
    /// The lock for atomic updates of a 64-bit word, which consists of two words of storage.
    pub(crate) wide: Mutex<()>,
}

#[derive(Debug)]
pub(crate) enum Storage {
    Device(Box<[AtomicU32]>),
    Host(Arc<HostBlock>),
    /// Registered memory of the program, whose device address is its host address.
    Mapped(&'static [AtomicU32]),
}

impl ShadowedAllocation {
    /// Creates an allocation without a shadow. It counts as initialized unless a device owns it.
    pub(crate) fn of(
        base: u64,
        bytes: u64,
        label: String,
        storage: Storage,
        owner: Option<u32>,
    ) -> Self {
        Self {
            base,
            bytes,
            label: RwLock::new(label),
            storage,
            shadow: Box::default(),
            prefix: AtomicU64::new(if owner.is_some() { 0 } else { bytes }),
            stale: AtomicBool::new(false),
            constant: false,
            owner,
            wide: Mutex::default(),
        }
    }

    /// Creates uninitialized device memory, or returns `None` if the host has too little memory.
    pub(crate) fn on_device(base: u64, device: u32, bytes: u64) -> Option<Self> {
        let storage = zeroed(words_for(bytes))?;
        let shadow = zeroed(words_for(bytes.div_ceil(8)))?;
        let label = format!("allocation 0x{base:x}");
        Some(Self {
            shadow,
            ..Self::of(base, bytes, label, Storage::Device(storage), Some(device))
        })
    }

    /// Copies the contents and the shadow of an allocation of the same size.
    pub(crate) fn take_over(&self, old: &Self) {
        let copy = |to: &[AtomicU32], from: &[AtomicU32]| {
            for (to, from) in to.iter().zip(from) {
                to.store(from.load(Relaxed), Relaxed);
            }
        };
        copy(self.words(), old.words());
        copy(&self.shadow, &old.shadow);
        self.prefix.store(old.prefix(), Relaxed);
        self.stale.store(true, Relaxed);
    }

    /// Marks a range that a copy has written as initialized, except for the bytes in `unknown`.
    pub(crate) fn know(&self, offset: u64, part: Range<usize>, unknown: &[usize]) {
        let at = |i: usize| offset + (i - part.start) as u64;
        let mut next = part.start;
        for i in unknown {
            self.initialise(at(next), (i - next) as u64);
            self.forget(at(*i));
            next = i + 1;
        }
        self.initialise(at(next), (part.end - next) as u64);
        self.advance();
    }

    /// Returns the base, the size and the label.
    pub(crate) fn info(&self) -> AllocationInfo {
        let label = self
            .label
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        AllocationInfo {
            base: self.base,
            bytes: self.bytes,
            label,
        }
    }

    /// Returns the storage as little-endian words.
    pub(crate) fn words(&self) -> &[AtomicU32] {
        match &self.storage {
            Storage::Device(words) => words,
            Storage::Host(block) => block.words(),
            Storage::Mapped(words) => words,
        }
    }

    /// Returns the number of leading bytes that are known to be initialized.
    pub(crate) fn prefix(&self) -> u64 {
        self.prefix.load(Relaxed)
    }

    /// Returns true if all `bytes` bytes at `offset` are initialized.
    pub(crate) fn is_initialised(&self, offset: u64, bytes: u64) -> bool {
        self.first_uninitialised(offset, bytes).is_none()
    }

    /// Returns the offset of the first uninitialized byte in a range.
    pub(crate) fn first_uninitialised(&self, offset: u64, bytes: u64) -> Option<u64> {
        let end = offset + bytes;
        let mut at = offset.max(self.prefix().min(end));
        while at < end {
            let unset = !self.shadow[(at / 32) as usize].load(Relaxed) >> (at % 32);
            match unset.trailing_zeros() as u64 {
                32 => at = (at / 32 + 1) * 32,
                skip => return Some(at + skip).filter(|&found| found < end),
            }
        }

        None
    }

    /// Returns the number of uninitialized bytes in a range.
    pub(crate) fn count_uninitialised(&self, offset: u64, bytes: u64) -> u64 {
        let end = offset + bytes;
        let mut at = offset.max(self.prefix().min(end));
        let mut count = 0;
        while at < end {
            let next = ((at / 32 + 1) * 32).min(end);
            let within = (u64::from(u32::MAX) >> (32 - (next - at))) << (at % 32);
            let unset = !self.shadow[(at / 32) as usize].load(Relaxed);
            count += (u64::from(unset) & within).count_ones() as u64;
            at = next;
        }

        count
    }

    /// Marks bytes as initialized.
    pub(crate) fn initialise(&self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        if end <= self.prefix() || bytes == 0 {
            return;
        }

        let mut at = offset;
        while at < end {
            let count = (32 - at % 32).min(end - at);
            let bits = (u32::MAX >> (32 - count)) << (at % 32);
            let word = &self.shadow[(at / 32) as usize];
            if word.load(Relaxed) & bits != bits {
                word.fetch_or(bits, Relaxed);
            }
            at += count;
        }

        self.stale.store(true, Relaxed);
    }

    /// Extends the prefix over the bytes that were initialized since the last call. Called between
    /// launches.
    pub(crate) fn advance(&self) {
        if self.stale.swap(false, Relaxed) {
            let prefix = self
                .first_uninitialised(0, self.bytes)
                .unwrap_or(self.bytes);
            self.prefix.fetch_max(prefix, Relaxed);
        }
    }

    /// Marks one byte as uninitialized. A byte within the prefix stays initialized.
    fn forget(&self, offset: u64) {
        if offset >= self.prefix() {
            self.shadow[(offset / 32) as usize].fetch_and(!(1 << (offset % 32)), Relaxed);
        }
    }

    /// Marks bytes as uninitialized, in memory whose prefix is never advanced.
    pub(crate) fn forget_all(&self, offset: u64, bytes: u64) {
        for at in offset..offset + bytes {
            self.forget(at);
        }
    }

    /// Copies bytes out of the allocation.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) {
        let words = self.words();

        // The head reaches up to the first whole word, from which on words are copied.
        let head = ((4 - offset % 4) % 4).min(to.len() as u64) as usize;
        let (head, rest) = to.split_at_mut(head);
        let byte =
            |at: u64| words[(at / 4) as usize].load(Relaxed).to_le_bytes()[(at % 4) as usize];
        for (i, b) in head.iter_mut().enumerate() {
            *b = byte(offset + i as u64);
        }

        let start = offset + head.len() as u64;
        for (i, part) in rest.chunks_mut(4).enumerate() {
            let word = words[(start / 4) as usize + i].load(Relaxed).to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    /// Copies bytes into the allocation without marking them as initialized.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) {
        let words = self.words();
        let head = ((4 - offset % 4) % 4).min(from.len() as u64) as usize;
        let (head, rest) = from.split_at(head);
        let start = offset + head.len() as u64;
        store_part(words, offset, head);
        let (whole, tail) = rest.as_chunks::<4>();
        for (i, part) in whole.iter().enumerate() {
            words[(start / 4) as usize + i].store(u32::from_le_bytes(*part), Relaxed);
        }

        store_part(words, start + 4 * whole.len() as u64, tail);
    }
}

/// Stores bytes within one word and preserves its other bytes, which another thread may be writing.
pub(crate) fn store_part(words: &[AtomicU32], offset: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }

    let shift = 8 * (offset % 4) as u32;
    let mut value = 0;
    let mut mask = 0;
    for (i, byte) in bytes.iter().enumerate() {
        value |= u32::from(*byte) << (shift + 8 * i as u32);
        mask |= 0xff << (shift + 8 * i as u32);
    }

    let merge = |old| Some(old & !mask | value);
    let _ = words[(offset / 4) as usize].fetch_update(Relaxed, Relaxed, merge);
}
