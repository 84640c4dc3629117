//! The global memory of one device: allocations at virtual addresses, with storage and shadow.
//!
//! Storage is words of `AtomicU32` with relaxed accesses, so blocks on several threads can share it without `unsafe`.
//! Device addresses are never reused, so the address of a freed allocation can always be recognised. The gaps between
//! allocations are never mapped.
//!
//! The shadow holds one bit per byte: initialised or not. `prefix` counts the leading bytes that are known to be
//! initialised, so a filled allocation costs one comparison.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::fault::AllocationInfo;

/// First device address. Far from where Linux puts code, heap and mappings, so that a host pointer is
/// never a device pointer.
const FIRST: u64 = 0x10_0000_0100;

/// Unmapped bytes kept between allocations.
const GAP: u64 = 0x1000;

/// Bases are odd multiples of this: code that relies on more than the promised alignment shows.
const ALIGN: u64 = 256;

/// Freed allocations remembered by name; older ones are reported as plain out of bounds.
const REMEMBERED: usize = 4096;

/// One device's global memory, shared by launches and host copies.
#[derive(Debug)]
pub struct Memory {
    capacity: u64,
    state: Mutex<Usage>,
    table: RwLock<Arc<Table>>,
    /// Addresses of the variables of each module that has run here, by the module's number.
    statics: Mutex<HashMap<u64, Arc<[u64]>>>,
}

/// Bookkeeping that only allocation and freeing touch.
#[derive(Debug)]
struct Usage {
    next: u64,
    used: u64,
}

/// A `.global` or `.const` variable of a module.
#[derive(Debug)]
pub(crate) struct Static {
    pub(crate) name: String,
    pub(crate) constant: bool,
    pub(crate) bytes: u64,
    /// Initial bytes; shorter than the variable when the rest is zero.
    pub(crate) init: Vec<u8>,
}

/// The live allocations, sorted by base, and those freed. A launch holds one snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    live: Vec<Arc<Allocation>>,
    freed: Vec<AllocationInfo>,
}

/// One allocation: storage and shadow.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    label: RwLock<String>,
    storage: Storage,
    /// One bit a byte, set when initialised.
    shadow: Box<[AtomicU32]>,
    /// Leading bytes known to be initialised.
    prefix: AtomicU64,
    /// Set when the shadow has changed since the prefix was last advanced.
    stale: AtomicBool,
    /// Whether it holds a `.const` variable.
    pub(crate) constant: bool,
    /// Held while a 64-bit word, which is two of storage, is updated atomically.
    pub(crate) wide: Mutex<()>,
}

#[derive(Debug)]
enum Storage {
    Device(Box<[AtomicU32]>),
    Host(Arc<HostBlock>),
}

/// Pinned host memory: its device address is the address of its storage, so host and device share it.
#[derive(Debug)]
pub struct HostBlock {
    storage: Box<[AtomicU32]>,
    start: usize,
    len: usize,
}

/// Why the host could not allocate, free or access memory.
#[derive(Clone, PartialEq, Eq)]
pub enum MemoryError {
    /// The device has no such room left.
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes in all.
        capacity: u64,
    },
    /// The address is not the base of a live allocation.
    NotAnAllocation {
        /// The address.
        address: u64,
    },
    /// The bytes do not lie within one live allocation.
    OutOfBounds {
        /// First address.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A fill pattern that is not 1, 2 or 4 bytes long, or an address that is no multiple of it.
    BadPattern {
        /// First address.
        address: u64,
        /// Length of the pattern.
        bytes: usize,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { asked, used, capacity } => {
                write!(f, "out of memory: {asked} bytes asked for, {used} of {capacity} in use")
            }
            Self::NotAnAllocation { address } => {
                write!(f, "0x{address:x} is not the base of a live allocation")
            }
            Self::OutOfBounds { address, bytes } => {
                write!(f, "{bytes} bytes at 0x{address:x} do not lie within one live allocation")
            }
            Self::BadPattern { address, bytes } => {
                write!(
                    f,
                    "cannot fill 0x{address:x} with a pattern of {bytes} bytes: it must be 1, 2 or 4, and aligned"
                )
            }
        }
    }
}

impl std::error::Error for MemoryError {}

fn words_for(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(4)).unwrap_or(usize::MAX)
}

fn zeroed(words: usize) -> Option<Box<[AtomicU32]>> {
    let mut storage = Vec::new();
    storage.try_reserve_exact(words).ok()?;
    storage.resize_with(words, AtomicU32::default);
    Some(storage.into_boxed_slice())
}

impl HostBlock {
    /// Bytes by which the start is aligned, as the driver's pinned memory is.
    const PAGE: usize = 4096;

    fn new(bytes: u64) -> Option<HostBlock> {
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

impl Memory {
    /// An empty memory of `capacity` bytes. Storage is taken when allocated.
    pub fn new(capacity: u64) -> Memory {
        Memory {
            capacity,
            state: Mutex::new(Usage { next: FIRST, used: 0 }),
            table: RwLock::default(),
            statics: Mutex::default(),
        }
    }

    /// Allocates `bytes` of uninitialised device memory; the address is a multiple of 256.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn alloc(&self, bytes: u64) -> Result<u64, MemoryError> {
        self.alloc_as(bytes, false)
    }

    fn alloc_as(&self, bytes: u64, constant: bool) -> Result<u64, MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let full = MemoryError::OutOfMemory { asked: bytes, used: state.used, capacity: self.capacity };
        if bytes > self.capacity - state.used {
            return Err(full);
        }
        let storage = zeroed(words_for(bytes)).ok_or(full.clone())?;
        let shadow = zeroed(words_for(bytes.div_ceil(8))).ok_or(full)?;
        let base = state.next;
        state.next += (bytes + GAP).next_multiple_of(2 * ALIGN);
        state.used += bytes;
        self.insert(Allocation {
            base,
            bytes,
            label: RwLock::new(format!("allocation 0x{base:x}")),
            storage: Storage::Device(storage),
            shadow,
            prefix: AtomicU64::new(0),
            stale: AtomicBool::new(false),
            constant,
            wide: Mutex::default(),
        });
        Ok(base)
    }

    /// Allocates `bytes` of pinned host memory, zeroed, which counts as initialised.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`] when the host has no room. The device's capacity is not touched.
    pub fn alloc_host(&self, bytes: u64) -> Result<Arc<HostBlock>, MemoryError> {
        let full = MemoryError::OutOfMemory { asked: bytes, used: self.used(), capacity: self.capacity };
        let block = Arc::new(HostBlock::new(bytes).ok_or(full)?);
        self.insert(Allocation {
            base: block.address(),
            bytes,
            label: RwLock::new(format!("pinned 0x{:x}", block.address())),
            storage: Storage::Host(block.clone()),
            shadow: Box::default(),
            prefix: AtomicU64::new(bytes),
            stale: AtomicBool::new(false),
            constant: false,
            wide: Mutex::default(),
        });
        Ok(block)
    }

    /// Frees the allocation, of either kind, whose base is `address`. Launches in flight keep its storage.
    ///
    /// # Errors
    /// [`MemoryError::NotAnAllocation`].
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::make_mut(&mut slot);
        let at = table
            .live
            .binary_search_by_key(&address, |a| a.base)
            .map_err(|_| MemoryError::NotAnAllocation { address })?;
        let gone = table.live.remove(at);
        match gone.storage {
            Storage::Device(_) => {
                state.used -= gone.bytes;
                table.remember(gone.info());
            }
            // The host may hand the same address out again, so it is not remembered.
            Storage::Host(_) => {}
        }
        Ok(())
    }

    /// Names the allocation that holds `address`, for faults. Does nothing when there is none.
    pub fn set_label(&self, address: u64, label: &str) {
        if let Some(a) = self.table().find(address) {
            *a.label.write().unwrap_or_else(PoisonError::into_inner) = label.to_string();
        }
    }

    /// Copies bytes to the host, initialised or not (see [`Memory::uninitialised`]).
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), MemoryError> {
        let (a, offset) = self.range(address, to.len() as u64)?;
        a.read(offset, to);
        Ok(())
    }

    /// Copies bytes from the host and marks them initialised.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryError> {
        let (a, offset) = self.range(address, from.len() as u64)?;
        a.write(offset, from);
        a.initialise(offset, from.len() as u64);
        a.advance();
        Ok(())
    }

    /// Writes `count` copies of `pattern` (1, 2 or 4 bytes) and marks them initialised.
    ///
    /// # Errors
    /// [`MemoryError::BadPattern`], [`MemoryError::OutOfBounds`].
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), MemoryError> {
        let bytes = pattern.len() as u64;
        if !matches!(bytes, 1 | 2 | 4) || !address.is_multiple_of(bytes) {
            return Err(MemoryError::BadPattern { address, bytes: pattern.len() });
        }
        let total = bytes.checked_mul(count).ok_or(MemoryError::OutOfBounds { address, bytes: u64::MAX })?;
        let (a, offset) = self.range(address, total)?;
        let chunk = pattern.repeat(4096 / pattern.len());
        for at in (0..total).step_by(4096) {
            a.write(offset + at, &chunk[..(total - at).min(4096) as usize]);
        }
        a.initialise(offset, total);
        a.advance();
        Ok(())
    }

    /// Copies `bytes` within the device, with what is known of their initialisation. Ranges may overlap.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), MemoryError> {
        let (source, source_offset) = self.range(from, bytes)?;
        let (target, target_offset) = self.range(to, bytes)?;
        let mut data = vec![0; bytes as usize];
        source.read(source_offset, &mut data);
        let known: Vec<bool> = match source.first_uninitialised(source_offset, bytes) {
            None => Vec::new(),
            Some(_) => (0..bytes).map(|i| source.is_initialised(source_offset + i, 1)).collect(),
        };
        target.write(target_offset, &data);
        if known.is_empty() {
            target.initialise(target_offset, bytes);
        }
        for (i, known) in known.into_iter().enumerate() {
            target.set(target_offset + i as u64, known);
        }
        target.advance();
        Ok(())
    }

    /// The first of `bytes` bytes that nobody has written, if any.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn uninitialised(&self, address: u64, bytes: u64) -> Result<Option<u64>, MemoryError> {
        let (a, offset) = self.range(address, bytes)?;
        Ok(a.first_uninitialised(offset, bytes).map(|at| a.base + at))
    }

    /// Bytes of device memory in use.
    pub fn used(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).used
    }

    /// Bytes of device memory in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The live allocation that holds `address`.
    pub fn find(&self, address: u64) -> Option<AllocationInfo> {
        self.table().find(address).map(|a| a.info())
    }

    /// Addresses of a module's variables, which are allocated and initialised the first time.
    pub(crate) fn statics(&self, module: u64, variables: &[Static]) -> Result<Arc<[u64]>, MemoryError> {
        let mut known = self.statics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(addresses) = known.get(&module) {
            return Ok(addresses.clone());
        }
        let addresses: Arc<[u64]> =
            variables.iter().map(|v| self.alloc_static(v)).collect::<Result<_, _>>()?;
        known.insert(module, addresses.clone());
        Ok(addresses)
    }

    /// A variable's bytes are zero where no initialiser says otherwise.
    fn alloc_static(&self, v: &Static) -> Result<u64, MemoryError> {
        let address = self.alloc_as(v.bytes, v.constant)?;
        self.set_label(address, &v.name);
        self.fill(address, &[0], v.bytes)?;
        self.write(address, &v.init)?;
        Ok(address)
    }

    /// Frees the variables of a module.
    pub(crate) fn forget_statics(&self, module: u64) {
        let mut known = self.statics.lock().unwrap_or_else(PoisonError::into_inner);
        for address in known.remove(&module).iter().flat_map(|a| a.iter()) {
            // Each was allocated by `alloc_static`; the user may have freed it against the rules.
            let _ = self.free(*address);
        }
    }

    /// A snapshot of the allocations.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn insert(&self, new: Allocation) {
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::make_mut(&mut slot);
        let at = table.live.partition_point(|a| a.base < new.base);
        table.live.insert(at, Arc::new(new));
    }

    fn range(&self, address: u64, bytes: u64) -> Result<(Arc<Allocation>, u64), MemoryError> {
        let error = MemoryError::OutOfBounds { address, bytes };
        let a = self.table().find(address).cloned().ok_or(error.clone())?;
        let offset = address - a.base;
        if bytes > a.bytes - offset { Err(error) } else { Ok((a, offset)) }
    }
}

impl Table {
    /// The live allocations, sorted by base.
    pub(crate) fn live(&self) -> &[Arc<Allocation>] {
        &self.live
    }

    /// The live allocation that holds `address`; an empty one holds its base.
    pub(crate) fn find(&self, address: u64) -> Option<&Arc<Allocation>> {
        let at = self.live.partition_point(|a| a.base <= address).checked_sub(1)?;
        let a = &self.live[at];
        (address - a.base < a.bytes.max(1)).then_some(a)
    }

    /// The freed allocation that held `address`.
    pub(crate) fn find_freed(&self, address: u64) -> Option<&AllocationInfo> {
        self.freed.iter().rev().find(|a| (a.base..a.base + a.bytes).contains(&address))
    }

    /// The live allocation nearest to `address`, when it is near enough to be what was meant.
    pub(crate) fn nearest(&self, address: u64) -> Option<&Arc<Allocation>> {
        let distance = |a: &&Arc<Allocation>| match address {
            _ if address < a.base => a.base - address,
            _ => address.saturating_sub(a.base + a.bytes),
        };
        let next = self.live.partition_point(|a| a.base <= address);
        let around = &self.live[next.saturating_sub(1)..self.live.len().min(next + 1)];
        around.iter().min_by_key(distance).filter(|a| distance(a) <= 1 << 24)
    }

    fn remember(&mut self, gone: AllocationInfo) {
        if self.freed.len() == REMEMBERED {
            self.freed.remove(0);
        }
        self.freed.push(gone);
    }
}

impl Allocation {
    /// Base, size and label.
    pub(crate) fn info(&self) -> AllocationInfo {
        let label = self.label.read().unwrap_or_else(PoisonError::into_inner).clone();
        AllocationInfo { base: self.base, bytes: self.bytes, label }
    }

    /// The storage, little-endian words.
    pub(crate) fn words(&self) -> &[AtomicU32] {
        match &self.storage {
            Storage::Device(words) => words,
            Storage::Host(block) => block.words(),
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
            let prefix = self.first_uninitialised(0, self.bytes).unwrap_or(self.bytes);
            self.prefix.fetch_max(prefix, Relaxed);
        }
    }

    /// Marks one byte initialised or not. Bytes within the prefix stay initialised.
    fn set(&self, offset: u64, initialised: bool) {
        if initialised {
            self.initialise(offset, 1);
        } else if offset >= self.prefix() {
            self.shadow[(offset / 32) as usize].fetch_and(!(1 << (offset % 32)), Relaxed);
        }
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) {
        let words = self.words();
        let head = ((4 - offset % 4) % 4).min(to.len() as u64) as usize;
        let (head, rest) = to.split_at_mut(head);
        let byte = |at: u64| words[(at / 4) as usize].load(Relaxed).to_le_bytes()[(at % 4) as usize];
        head.iter_mut().enumerate().for_each(|(i, b)| *b = byte(offset + i as u64));
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
