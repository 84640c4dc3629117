//! The global memory of one device: allocations at virtual addresses, with storage and shadow.
//!
//! Storage is words of `AtomicU32` with relaxed accesses, so blocks on several threads can share it without `unsafe`.
//! Device addresses are never reused, so the address of a freed allocation can always be recognised. The gaps between
//! allocations are never mapped.
//!
//! The shadow holds one bit per byte: initialised or not. `prefix` counts the leading bytes that are known to be
//! initialised, so a filled allocation costs one comparison.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::fault::AllocationInfo;
use crate::host_block::{HostBlock, words_for, zeroed};
use crate::launch::LaunchSite;
use crate::memory_error::MemoryError;

/// First device address. Above every address that a process has, so that a host pointer is never a device pointer.
const FIRST: u64 = 0x1_0000_0000_0100;

/// No device address is above this.
const LAST: u64 = 1 << 62;

/// Unmapped bytes kept between allocations: no 32-bit index of elements of up to 16 bytes leads from one to another.
const GAP: u64 = 1 << 36;

/// Bases are odd multiples of this: code that relies on more than the promised alignment shows.
const ALIGN: u64 = 256;

/// Freed allocations remembered by name; older ones are reported as plain out of bounds.
const REMEMBERED: usize = 4096;

/// The global memory of the devices of a program, shared by launches and host copies.
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
    /// Bytes in use of each device's memory.
    used: BTreeMap<u32, u64>,
}

impl Usage {
    fn of(&self, device: u32) -> u64 {
        self.used.get(&device).copied().unwrap_or(0)
    }
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
    /// The device whose memory it is; none for memory of the host, which every device reaches.
    owner: Option<u32>,
    /// Held while a 64-bit word, which is two of storage, is updated atomically.
    pub(crate) wide: Mutex<()>,
}

#[derive(Debug)]
enum Storage {
    Device(Box<[AtomicU32]>),
    Host(Arc<HostBlock>),
    /// Memory of the program, whose device address is its own.
    Mapped(&'static [AtomicU32]),
}

impl Memory {
    /// An empty memory of `capacity` bytes for each device. Storage is taken when allocated.
    pub fn new(capacity: u64) -> Memory {
        Memory {
            capacity,
            state: Mutex::new(Usage { next: FIRST, used: BTreeMap::new() }),
            table: RwLock::default(),
            statics: Mutex::default(),
        }
    }

    /// Allocates `bytes` of uninitialised memory of device 0; the address is a multiple of 256.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn alloc(&self, bytes: u64) -> Result<u64, MemoryError> {
        self.alloc_on(0, bytes)
    }

    /// Allocates `bytes` of uninitialised memory of a device; the address is a multiple of 256.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn alloc_on(&self, device: u32, bytes: u64) -> Result<u64, MemoryError> {
        self.alloc_as(device, bytes, false)
    }

    /// An address for `bytes` of memory, which [`Memory::alloc_at`] allocates; nothing lies there until then.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn reserve(&self, bytes: u64) -> Result<u64, MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > self.capacity || state.next > LAST - self.capacity {
            return Err(MemoryError::OutOfMemory {
                asked: bytes,
                used: state.of(0),
                capacity: self.capacity,
            });
        }
        let base = state.next;
        state.next += (bytes + GAP).next_multiple_of(2 * ALIGN);
        Ok(base)
    }

    fn alloc_as(&self, device: u32, bytes: u64, constant: bool) -> Result<u64, MemoryError> {
        let base = self.reserve(bytes)?;
        self.insert_device(base, device, bytes, constant)?;
        Ok(base)
    }

    /// Allocates `bytes` of uninitialised memory of a device at an address that was [reserved](Memory::reserve) for
    /// them, and at which nothing lies now.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`], [`MemoryError::OutOfBounds`] when something lies there.
    pub fn alloc_at(&self, base: u64, device: u32, bytes: u64) -> Result<(), MemoryError> {
        if self.find(base).is_some() {
            return Err(MemoryError::OutOfBounds { address: base, bytes });
        }
        self.insert_device(base, device, bytes, false)
    }

    fn insert_device(&self, base: u64, device: u32, bytes: u64, constant: bool) -> Result<(), MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used = state.of(device);
        let full = MemoryError::OutOfMemory { asked: bytes, used, capacity: self.capacity };
        if bytes > self.capacity - used {
            return Err(full);
        }
        let storage = zeroed(words_for(bytes)).ok_or(full.clone())?;
        let shadow = zeroed(words_for(bytes.div_ceil(8))).ok_or(full)?;
        state.used.insert(device, used + bytes);
        self.insert(Allocation {
            shadow,
            constant,
            ..Allocation::of(
                base,
                bytes,
                format!("allocation 0x{base:x}"),
                Storage::Device(storage),
                Some(device),
            )
        });
        Ok(())
    }

    /// Allocates `bytes` of pinned host memory, zeroed, which counts as initialised.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`] when the host has no room. The device's capacity is not touched.
    pub fn alloc_host(&self, bytes: u64) -> Result<Arc<HostBlock>, MemoryError> {
        let full = MemoryError::OutOfMemory { asked: bytes, used: self.used(), capacity: self.capacity };
        let block = Arc::new(HostBlock::new(bytes).ok_or(full)?);
        let base = block.address();
        let storage = Storage::Host(block.clone());
        self.insert(Allocation::of(base, bytes, format!("pinned 0x{base:x}"), storage, None));
        Ok(block)
    }

    /// Lets every device reach memory of the program at its own address, until it is [freed](Memory::free). It counts
    /// as initialised.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] when some of it is known already.
    pub fn map(&self, words: &'static [AtomicU32]) -> Result<u64, MemoryError> {
        let (base, bytes) = (words.as_ptr() as u64, 4 * words.len() as u64);
        let overlaps = |a: &Arc<Allocation>| a.base < base + bytes && base < a.base + a.bytes;
        if self.table().live.iter().any(overlaps) {
            return Err(MemoryError::OutOfBounds { address: base, bytes });
        }
        let label = format!("registered 0x{base:x}");
        self.insert(Allocation::of(base, bytes, label, Storage::Mapped(words), None));
        Ok(base)
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
        // The host may hand the same address out again, so an address of the host is not remembered.
        if let Some(device) = gone.owner {
            let used = state.of(device) - gone.bytes;
            state.used.insert(device, used);
            table.remember(gone.info());
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

    /// Bytes in use of the memory of device 0.
    pub fn used(&self) -> u64 {
        self.used_on(0)
    }

    /// Bytes in use of the memory of a device.
    pub fn used_on(&self, device: u32) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).of(device)
    }

    /// The device whose memory holds `address`; none where it is memory of the host, or nothing.
    pub fn owner(&self, address: u64) -> Option<u32> {
        self.table().find(address)?.owner
    }

    /// Bytes of memory that each device has.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The live allocation that holds `address`.
    pub fn find(&self, address: u64) -> Option<AllocationInfo> {
        self.table().find(address).map(|a| a.info())
    }

    /// Addresses of a module's variables, which are allocated and initialised the first time.
    pub(crate) fn statics(
        &self,
        device: u32,
        module: u64,
        variables: &[Static],
    ) -> Result<Arc<[u64]>, MemoryError> {
        let mut known = self.statics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(addresses) = known.get(&module) {
            return Ok(addresses.clone());
        }
        let addresses: Arc<[u64]> =
            variables.iter().map(|v| self.alloc_static(device, v)).collect::<Result<_, _>>()?;
        known.insert(module, addresses.clone());
        Ok(addresses)
    }

    /// A variable's bytes are zero where no initialiser says otherwise.
    fn alloc_static(&self, device: u32, v: &Static) -> Result<u64, MemoryError> {
        let address = self.alloc_as(device, v.bytes, v.constant)?;
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

    /// A snapshot of the allocations that a launch may touch: those of the host and of the devices it reaches.
    pub(crate) fn table_of(&self, place: &LaunchSite<'_>) -> Arc<Table> {
        let table = self.table();
        let reaches = |a: &Arc<Allocation>| a.owner.is_none_or(|owner| place.reaches(owner));
        if table.live.iter().all(reaches) {
            return table;
        }
        let live = table.live.iter().filter(|a| reaches(a)).cloned().collect();
        Arc::new(Table { live, freed: table.freed.clone() })
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
        around.iter().min_by_key(distance).filter(|a| distance(a) <= GAP / 2)
    }

    fn remember(&mut self, gone: AllocationInfo) {
        if self.freed.len() == REMEMBERED {
            self.freed.remove(0);
        }
        self.freed.push(gone);
    }
}

impl Allocation {
    /// Memory that counts as initialised, without a shadow, unless the device owns it.
    fn of(base: u64, bytes: u64, label: String, storage: Storage, owner: Option<u32>) -> Self {
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
