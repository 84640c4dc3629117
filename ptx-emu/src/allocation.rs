//! One allocation: where it lies, its storage, and which of its bytes somebody wrote.
//!
//! The shadow holds one bit per byte: initialised or not. `prefix` counts the leading bytes that are known to be
//! initialised, so a filled allocation costs one comparison.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::fault::AllocationInfo;
use crate::host_block::{HostBlock, words_for, zeroed};

/// One allocation: storage and shadow.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) label: RwLock<String>,
    storage: Storage,
    /// One bit a byte, set when initialised.
    shadow: Box<[AtomicU32]>,
    /// Leading bytes known to be initialised.
    prefix: AtomicU64,
    /// Set when the shadow has changed since the prefix was last advanced.
    stale: AtomicBool,
    /// Whether it holds a `.const` variable.
    pub(crate) constant: bool,
    /// The device whose memory it is; none for memory of the host, which every device reaches.
    pub(crate) owner: Option<u32>,
    /// Held while a 64-bit word, which is two of storage, is updated atomically.
    pub(crate) wide: Mutex<()>,
}

#[derive(Debug)]
pub(crate) enum Storage {
    Device(Box<[AtomicU32]>),
    Host(Arc<HostBlock>),
    /// Memory of the program, whose device address is its own.
    Mapped(&'static [AtomicU32]),
}

impl Allocation {
    /// Memory that counts as initialised, without a shadow, unless the device owns it.
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

    /// Memory of a device that nobody has written; none where the host has no room for it.
    pub(crate) fn on_device(base: u64, device: u32, bytes: u64) -> Option<Self> {
        let (storage, shadow) = (
            zeroed(words_for(bytes))?,
            zeroed(words_for(bytes.div_ceil(8)))?,
        );
        let label = format!("allocation 0x{base:x}");
        Some(Self {
            shadow,
            ..Self::of(base, bytes, label, Storage::Device(storage), Some(device))
        })
    }

    /// Takes over what another allocation of the same size holds.
    pub(crate) fn take_over(&self, old: &Self) {
        let copy = |to: &[AtomicU32], from: &[AtomicU32]| {
            to.iter()
                .zip(from)
                .for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        };
        copy(self.words(), old.words());
        copy(&self.shadow, &old.shadow);
        self.prefix.store(old.prefix(), Relaxed);
        self.stale.store(true, Relaxed);
    }

    /// Marks the bytes of a part of a copy, less those of the copy that are not known.
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

    /// Base, size and label.
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

    /// The storage, little-endian words.
    pub(crate) fn words(&self) -> &[AtomicU32] {
        match &self.storage {
            Storage::Device(words) => words,
            Storage::Host(block) => block.words(),
            Storage::Mapped(words) => words,
        }
    }

    /// Leading bytes known to be initialised.
    pub(crate) fn prefix(&self) -> u64 {
        self.prefix.load(Relaxed)
    }

    /// Whether all of `bytes` bytes at `offset` are initialised.
    pub(crate) fn is_initialised(&self, offset: u64, bytes: u64) -> bool {
        self.first_uninitialised(offset, bytes).is_none()
    }

    /// Offset of the first uninitialised byte within a range.
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

    /// How many bytes of a range nobody has written.
    pub(crate) fn count_uninitialised(&self, offset: u64, bytes: u64) -> u64 {
        let end = offset + bytes;
        let (mut at, mut count) = (offset.max(self.prefix().min(end)), 0);
        while at < end {
            let next = ((at / 32 + 1) * 32).min(end);
            let within = (u64::from(u32::MAX) >> (32 - (next - at))) << (at % 32);
            let unset = !self.shadow[(at / 32) as usize].load(Relaxed);
            count += (u64::from(unset) & within).count_ones() as u64;
            at = next;
        }
        count
    }

    /// Marks bytes initialised.
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

    /// Moves the prefix over everything initialised since; called between launches.
    pub(crate) fn advance(&self) {
        if self.stale.swap(false, Relaxed) {
            let prefix = self
                .first_uninitialised(0, self.bytes)
                .unwrap_or(self.bytes);
            self.prefix.fetch_max(prefix, Relaxed);
        }
    }

    /// Marks one byte as not initialised. Bytes within the prefix stay initialised.
    fn forget(&self, offset: u64) {
        if offset >= self.prefix() {
            self.shadow[(offset / 32) as usize].fetch_and(!(1 << (offset % 32)), Relaxed);
        }
    }

    /// Marks bytes as not initialised, of memory whose prefix is never advanced.
    pub(crate) fn forget_all(&self, offset: u64, bytes: u64) {
        (offset..offset + bytes).for_each(|at| self.forget(at));
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) {
        let words = self.words();
        let head = ((4 - offset % 4) % 4).min(to.len() as u64) as usize;
        let (head, rest) = to.split_at_mut(head);
        let byte =
            |at: u64| words[(at / 4) as usize].load(Relaxed).to_le_bytes()[(at % 4) as usize];
        head.iter_mut()
            .enumerate()
            .for_each(|(i, b)| *b = byte(offset + i as u64));
        let start = offset + head.len() as u64;
        for (i, part) in rest.chunks_mut(4).enumerate() {
            let word = words[(start / 4) as usize + i].load(Relaxed).to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    /// Copies bytes in, without marking them initialised.
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

/// Stores bytes that lie within one word, leaving its other bytes as another thread may write them.
pub(crate) fn store_part(words: &[AtomicU32], offset: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let shift = 8 * (offset % 4) as u32;
    let (mut value, mut mask) = (0, 0);
    for (i, byte) in bytes.iter().enumerate() {
        value |= u32::from(*byte) << (shift + 8 * i as u32);
        mask |= 0xff << (shift + 8 * i as u32);
    }
    let merge = |old| Some(old & !mask | value);
    let _ = words[(offset / 4) as usize].fetch_update(Relaxed, Relaxed, merge);
}
