//! The global memory of one device: allocations at virtual addresses, with storage and shadow.
//!
//! Storage is words of `AtomicU32` with relaxed accesses, so blocks on several threads can share it without `unsafe`.
//! Device addresses are never reused, so the address of a freed allocation can always be recognised. The gaps between
//! allocations are never mapped.
//!
//! Memory of a device may also be put side by side in a range of addresses, piece by piece; copies and fills of the host
//! go from one piece to the next.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::allocation::{Allocation, Storage};
use crate::fault::AllocationInfo;
use crate::heap::Heap;
use crate::host_block::HostBlock;
use crate::image::Objects;
use crate::launch::LaunchSite;
use crate::memory_error::MemoryError;
use crate::statics::Static;

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

/// The live allocations, sorted by base, and those freed. A launch holds one snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    live: Vec<Arc<Allocation>>,
    freed: Vec<AllocationInfo>,
    /// The heaps of devices whose kernels have called `malloc`.
    heaps: BTreeMap<u32, Arc<Heap>>,
    /// Textures and surfaces.
    objects: Arc<Objects>,
}

/// Memory without an address, and what it holds.
#[derive(Debug)]
pub struct Taken(Arc<Allocation>);

/// What of a range of bytes lies in one allocation: from which offset in it on, and which bytes of the range.
type Part = (Arc<Allocation>, u64, Range<usize>);

impl Memory {
    /// An empty memory of `capacity` bytes for each device. Storage is taken when allocated.
    pub fn new(capacity: u64) -> Memory {
        Memory {
            capacity,
            state: Mutex::new(Usage {
                next: FIRST,
                used: BTreeMap::new(),
            }),
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
        if bytes > self.capacity.min(LAST.saturating_sub(state.next)) {
            let (used, capacity) = (state.of(0), self.capacity);
            return Err(MemoryError::OutOfMemory {
                asked: bytes,
                used,
                capacity,
            });
        }
        let base = state.next;
        state.next += (bytes + GAP).next_multiple_of(2 * ALIGN);
        Ok(base)
    }

    /// Addresses for `bytes`, a multiple of `align`, at which memory is [put](Memory::put) part by part; more of them
    /// than there is memory.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`] when no addresses are left.
    pub fn reserve_range(&self, bytes: u64, align: u64) -> Result<u64, MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (used, capacity) = (state.of(0), self.capacity);
        let base = state.next.checked_next_multiple_of(align.max(2 * ALIGN));
        let end = base
            .and_then(|base| base.checked_add(bytes))
            .filter(|end| *end <= LAST);
        let (Some(base), Some(end)) = (base, end) else {
            return Err(MemoryError::OutOfMemory {
                asked: bytes,
                used,
                capacity,
            });
        };
        state.next = (end + GAP).next_multiple_of(2 * ALIGN) + ALIGN;
        Ok(base)
    }

    /// Counts `bytes` of a device's memory as used, without an address.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`].
    pub fn hold(&self, device: u32, bytes: u64) -> Result<(), MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used = state.of(device);
        if bytes > self.capacity - used {
            return Err(MemoryError::OutOfMemory {
                asked: bytes,
                used,
                capacity: self.capacity,
            });
        }
        state.used.insert(device, used + bytes);
        Ok(())
    }

    /// Gives back what [`hold`](Memory::hold) counted.
    pub fn give(&self, device: u32, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used = state.of(device).saturating_sub(bytes);
        state.used.insert(device, used);
    }

    /// Puts memory that is [held](Memory::hold) at an address of a [range](Memory::reserve_range): fresh memory, or with
    /// what it held when it was [taken away](Memory::take_away). Copies and fills go over from one to the next.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`] when the host has no room; [`MemoryError::OutOfBounds`] when something lies there.
    pub fn put(
        &self,
        base: u64,
        device: u32,
        bytes: u64,
        held: Option<&Taken>,
    ) -> Result<(), MemoryError> {
        if self.find(base).is_some() {
            return Err(MemoryError::OutOfBounds {
                address: base,
                bytes,
            });
        }
        let full = MemoryError::OutOfMemory {
            asked: bytes,
            used: self.used_on(device),
            capacity: self.capacity,
        };
        let new = Allocation::on_device(base, device, bytes).ok_or(full)?;
        if let Some(Taken(old)) = held {
            new.take_over(old);
        }
        self.insert(new);
        Ok(())
    }

    /// Takes memory away from its address, with what it holds. It stays counted.
    ///
    /// # Errors
    /// [`MemoryError::NotAnAllocation`].
    pub fn take_away(&self, base: u64) -> Result<Taken, MemoryError> {
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut slot).remove(base).map(Taken)
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
        if self.find(base).is_some() || base.checked_add(bytes).is_none() {
            return Err(MemoryError::OutOfBounds {
                address: base,
                bytes,
            });
        }
        self.insert_device(base, device, bytes, false)
    }

    fn insert_device(
        &self,
        base: u64,
        device: u32,
        bytes: u64,
        constant: bool,
    ) -> Result<(), MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used = state.of(device);
        let full = MemoryError::OutOfMemory {
            asked: bytes,
            used,
            capacity: self.capacity,
        };
        if bytes > self.capacity - used {
            return Err(full);
        }
        let mut new = Allocation::on_device(base, device, bytes).ok_or(full)?;
        new.constant = constant;
        state.used.insert(device, used + bytes);
        self.insert(new);
        Ok(())
    }

    /// Allocates `bytes` of pinned host memory, zeroed, which counts as initialised.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`] when the host has no room. The device's capacity is not touched.
    pub fn alloc_host(&self, bytes: u64) -> Result<Arc<HostBlock>, MemoryError> {
        let full = MemoryError::OutOfMemory {
            asked: bytes,
            used: self.used(),
            capacity: self.capacity,
        };
        let block = Arc::new(HostBlock::new(bytes).ok_or(full)?);
        let base = block.address();
        let storage = Storage::Host(block.clone());
        self.insert(Allocation::of(
            base,
            bytes,
            format!("pinned 0x{base:x}"),
            storage,
            None,
        ));
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
            return Err(MemoryError::OutOfBounds {
                address: base,
                bytes,
            });
        }
        let label = format!("registered 0x{base:x}");
        self.insert(Allocation::of(
            base,
            bytes,
            label,
            Storage::Mapped(words),
            None,
        ));
        Ok(base)
    }

    /// Frees the allocation, of either kind, whose base is `address`. Launches in flight keep its storage.
    ///
    /// # Errors
    /// [`MemoryError::NotAnAllocation`].
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let gone = Arc::make_mut(&mut slot).remove(address)?;
        // The host may hand the same address out again, so an address of the host is not remembered.
        if let Some(device) = gone.owner {
            let used = state.of(device).saturating_sub(gone.bytes);
            state.used.insert(device, used);
        }
        Ok(())
    }

    /// Names the allocation that holds `address`, for faults. Does nothing when there is none.
    pub fn set_label(&self, address: u64, label: &str) {
        if let Some(a) = self.table().find(address) {
            *a.label.write().unwrap_or_else(PoisonError::into_inner) = label.to_string();
        }
    }

    /// Changes the textures and surfaces; launches in flight keep theirs.
    pub(crate) fn change_objects<T>(&self, change: impl FnOnce(&mut Objects) -> T) -> T {
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut Arc::make_mut(&mut slot).objects))
    }

    /// Copies bytes to the host, initialised or not (see [`Memory::uninitialised`]).
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), MemoryError> {
        for (a, offset, part) in self.parts(address, to.len() as u64)? {
            a.read(offset, &mut to[part]);
        }
        Ok(())
    }

    /// Copies bytes from the host and marks them initialised.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryError> {
        for (a, offset, part) in self.parts(address, from.len() as u64)? {
            a.initialise(offset, part.len() as u64);
            a.write(offset, &from[part]);
            a.advance();
        }
        Ok(())
    }

    /// Writes `count` copies of `pattern` (1, 2 or 4 bytes) and marks them initialised.
    ///
    /// # Errors
    /// [`MemoryError::BadPattern`], [`MemoryError::OutOfBounds`].
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), MemoryError> {
        let bytes = pattern.len() as u64;
        if !matches!(bytes, 1 | 2 | 4) || !address.is_multiple_of(bytes) {
            return Err(MemoryError::BadPattern {
                address,
                bytes: pattern.len(),
            });
        }
        let total = bytes.checked_mul(count).ok_or(MemoryError::OutOfBounds {
            address,
            bytes: u64::MAX,
        })?;
        let chunk = pattern.repeat(4096 / pattern.len());
        for (a, offset, part) in self.parts(address, total)? {
            let total = part.len() as u64;
            for at in (0..total).step_by(4096) {
                a.write(offset + at, &chunk[..(total - at).min(4096) as usize]);
            }
            a.initialise(offset, total);
            a.advance();
        }
        Ok(())
    }

    /// Copies `bytes` within the device, with what is known of their initialisation. Ranges may overlap.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), MemoryError> {
        let (sources, targets) = (self.parts(from, bytes)?, self.parts(to, bytes)?);
        let mut data = vec![0; bytes as usize];
        let mut unknown = Vec::new();
        for (a, offset, part) in sources {
            let first = a.first_uninitialised(offset, part.len() as u64);
            let at = |i: &usize| offset + (i - part.start) as u64;
            unknown.extend(
                part.clone()
                    .filter(|i| first.is_some() && !a.is_initialised(at(i), 1)),
            );
            a.read(offset, &mut data[part]);
        }
        for (a, offset, part) in targets {
            a.write(offset, &data[part.clone()]);
            let known = unknown.partition_point(|i| *i < part.start)
                ..unknown.partition_point(|i| *i < part.end);
            a.know(offset, part, &unknown[known]);
        }
        Ok(())
    }

    /// The first of `bytes` bytes that nobody has written, if any.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn uninitialised(&self, address: u64, bytes: u64) -> Result<Option<u64>, MemoryError> {
        let parts = self.parts(address, bytes)?;
        let first = |(a, offset, part): &Part| {
            a.first_uninitialised(*offset, part.len() as u64)
                .map(|at| a.base + at)
        };
        Ok(parts.iter().find_map(first))
    }

    /// How many bytes of a range nobody has written.
    pub(crate) fn count_uninitialised(&self, address: u64, bytes: u64) -> Result<u64, MemoryError> {
        let parts = self.parts(address, bytes)?;
        Ok(parts
            .iter()
            .map(|(a, offset, part)| a.count_uninitialised(*offset, part.len() as u64))
            .sum())
    }

    /// What is said where the host has no room for so many bytes.
    pub(crate) fn full(&self, asked: u64) -> MemoryError {
        MemoryError::OutOfMemory {
            asked,
            used: self.used(),
            capacity: self.capacity,
        }
    }

    /// Bytes in use of the memory of device 0.
    pub fn used(&self) -> u64 {
        self.used_on(0)
    }

    /// Bytes in use of the memory of a device.
    pub fn used_on(&self, device: u32) -> u64 {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .of(device)
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
        let addresses: Arc<[u64]> = variables
            .iter()
            .map(|v| self.alloc_static(device, v))
            .collect::<Result<_, _>>()?;
        known.insert(module, addresses.clone());
        for (v, address) in variables.iter().zip(addresses.iter()) {
            for r in &v.addresses {
                self.write(
                    address + r.offset,
                    &r.value(&addresses).to_le_bytes()[..r.bytes as usize],
                )?;
            }
        }
        Ok(addresses)
    }

    /// Makes sure that a device has a heap.
    pub(crate) fn need_heap(&self, device: u32) -> Result<(), MemoryError> {
        if self.table().heaps.contains_key(&device) {
            return Ok(());
        }
        let full = MemoryError::OutOfMemory {
            asked: Heap::room(),
            used: self.used_on(device),
            capacity: self.capacity,
        };
        let base = self.reserve_range(Heap::room(), 2 * ALIGN)? + ALIGN;
        let heap = Arc::new(Heap::new(base, device).ok_or(full)?);
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut slot).heaps.entry(device).or_insert(heap);
        Ok(())
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
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A snapshot of the allocations that a launch may touch: those of the host and of the devices it reaches.
    pub(crate) fn table_of(&self, place: &LaunchSite<'_>) -> Arc<Table> {
        let table = self.table();
        let reaches = |a: &Arc<Allocation>| a.owner.is_none_or(|owner| place.reaches(owner));
        if table.live.iter().all(reaches) {
            return table;
        }
        let live = table.live.iter().filter(|a| reaches(a)).cloned().collect();
        let heaps = table
            .heaps
            .iter()
            .filter(|(owner, _)| place.reaches(**owner));
        let heaps = heaps.map(|(owner, heap)| (*owner, heap.clone())).collect();
        Arc::new(Table {
            live,
            freed: table.freed.clone(),
            heaps,
            objects: table.objects.clone(),
        })
    }

    fn insert(&self, new: Allocation) {
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::make_mut(&mut slot);
        let at = table.live.partition_point(|a| a.base < new.base);
        table.live.insert(at, Arc::new(new));
    }

    /// The base and the bytes of what can be copied as one around an address: an allocation, or all that was put side by
    /// side in a range.
    pub fn run(&self, address: u64) -> Option<(u64, u64)> {
        let table = self.table();
        let found = table.find(address)?;
        let (mut start, mut end) = (found.base, found.base + found.bytes);
        let at = table.live.partition_point(|a| a.base <= address);
        let of_device = |a: &&Arc<Allocation>| found.owner.is_some() && a.owner.is_some();
        for before in table.live[..at - 1].iter().rev().filter(of_device) {
            match before.base + before.bytes == start {
                true => start = before.base,
                false => break,
            }
        }
        for after in table.live[at..].iter().filter(of_device) {
            match after.base == end {
                true => end += after.bytes,
                false => break,
            }
        }
        Some((start, end - start))
    }

    /// The allocations of a range of bytes, each with the offset in it and the bytes of the range that it has. Only
    /// memory of devices lies side by side, in ranges.
    fn parts(&self, address: u64, bytes: u64) -> Result<Vec<Part>, MemoryError> {
        let (error, table) = (MemoryError::OutOfBounds { address, bytes }, self.table());
        let (mut parts, mut at) = (Vec::new(), 0);
        loop {
            let next = table
                .find(address.wrapping_add(at))
                .filter(|a| at == 0 || a.owner.is_some());
            let a = next.ok_or(error.clone())?;
            let offset = address + at - a.base;
            let end = (at + a.bytes - offset).min(bytes);
            parts.push((a.clone(), offset, at as usize..end as usize));
            if end == bytes {
                return Ok(parts);
            }
            if end == at || a.owner.is_none() {
                return Err(error);
            }
            at = end;
        }
    }
}

impl Table {
    /// The live allocations, sorted by base.
    pub(crate) fn live(&self) -> &[Arc<Allocation>] {
        &self.live
    }

    /// The textures and surfaces.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The live allocation that holds `address`; an empty one holds its base.
    pub(crate) fn find(&self, address: u64) -> Option<&Arc<Allocation>> {
        let at = self
            .live
            .partition_point(|a| a.base <= address)
            .checked_sub(1)?;
        let a = &self.live[at];
        (address - a.base < a.bytes.max(1)).then_some(a)
    }

    /// What a kernel may touch at `address`: an allocation, or the memory of a heap.
    pub(crate) fn reach(&self, address: u64) -> Option<&Allocation> {
        match self.find(address) {
            Some(a) => Some(a),
            None => self.heaps.values().find_map(|heap| heap.holds(address)),
        }
    }

    /// The heap in whose range an address lies.
    pub(crate) fn heap_at(&self, address: u64) -> Option<&Heap> {
        self.heaps
            .values()
            .find(|heap| heap.holds(address).is_some())
            .map(|heap| &**heap)
    }

    /// The heap of a device.
    pub(crate) fn heap(&self, device: u32) -> Option<&Heap> {
        self.heaps.get(&device).map(|heap| &**heap)
    }

    /// The freed allocation that held `address`.
    pub(crate) fn find_freed(&self, address: u64) -> Option<&AllocationInfo> {
        self.freed
            .iter()
            .rev()
            .find(|a| (a.base..a.base + a.bytes).contains(&address))
    }

    /// The live allocation nearest to `address`, when it is near enough to be what was meant.
    pub(crate) fn nearest(&self, address: u64) -> Option<&Arc<Allocation>> {
        let distance = |a: &&Arc<Allocation>| match address {
            _ if address < a.base => a.base - address,
            _ => address.saturating_sub(a.base + a.bytes),
        };
        let next = self.live.partition_point(|a| a.base <= address);
        let around = &self.live[next.saturating_sub(1)..self.live.len().min(next + 1)];
        around
            .iter()
            .min_by_key(distance)
            .filter(|a| distance(a) <= GAP / 2)
    }

    /// Removes an allocation; one of a device is remembered.
    fn remove(&mut self, address: u64) -> Result<Arc<Allocation>, MemoryError> {
        let at = self.live.binary_search_by_key(&address, |a| a.base);
        let gone = self
            .live
            .remove(at.map_err(|_| MemoryError::NotAnAllocation { address })?);
        if gone.owner.is_some() {
            self.remember(gone.info());
        }
        Ok(gone)
    }

    fn remember(&mut self, gone: AllocationInfo) {
        if self.freed.len() == REMEMBERED {
            self.freed.remove(0);
        }
        self.freed.push(gone);
    }
}
