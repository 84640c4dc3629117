//! The global memory of the emulated devices: allocations at virtual addresses.
//!
//! An allocation has storage and shadow memory, which records the initialized bytes. The storage
//! consists of `AtomicU32` words that are accessed with relaxed ordering. Blocks on several host
//! threads can therefore share it without `unsafe`.
//!
//! Device addresses are never reused, so the address of a freed allocation can always be
//! recognized. The gaps between allocations are never mapped.
//!
//! An address range can also be reserved first and be filled with adjacent allocations later, as by
//! `cuMemAddressReserve` and `cuMemMap`. Copies and fills by the host cross from one such
//! allocation to the next.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::fault::AllocationInfo;
use crate::launch::LaunchSite;
use crate::machine::device::allocation::{ShadowedAllocation, Storage};
use crate::machine::device::device_heap::Heap;
use crate::machine::device::host_block::HostBlock;
use crate::machine::device::images::bound_images::Objects;
use crate::machine::device::memory_error::MemoryError;
use crate::module::static_variables::Static;

/// The first device address. It is above every address of a process, so that a host pointer is
/// never a device pointer.
const FIRST: u64 = 0x1_0000_0000_0100;

/// The upper limit of device addresses.
const LAST: u64 = 1 << 62;

/// The size of the unmapped gap between allocations. A 32-bit index of elements with up to 16 bytes
/// does not lead from one allocation to another.
const GAP: u64 = 1 << 36;

/// The promised alignment. Bases are odd multiples of it, so that code that relies on more is
/// found.
const ALIGN: u64 = 256;

/// The number of freed allocations that are remembered. An access to an older one is reported as
/// out of bounds.
const REMEMBERED: usize = 4096;

/// The global memory of the devices of a program, which launches and host copies share.
///
/// # Example
/// ```
/// use ptx_emu::Memory;
///
/// let memory = Memory::new(1 << 20);
/// let x = memory.alloc(8)?;
/// memory.write(x, &[1, 2, 3, 4])?;
/// assert_eq!(memory.uninitialised(x, 8)?, Some(x + 4));
///
/// // The address of a freed allocation is never used again.
/// memory.free(x)?;
/// assert!(memory.read(x, &mut [0]).is_err());
/// # Ok::<(), ptx_emu::MemoryError>(())
/// ```
#[derive(Debug)]
pub struct Memory {
    capacity: u64,
    state: Mutex<Usage>,
    table: RwLock<Arc<Table>>,
    /// The addresses of the variables of each module that has run here, by module number.
    statics: Mutex<HashMap<u64, Arc<[u64]>>>,
}

/// The state that only allocations and frees change.
#[derive(Debug)]
struct Usage {
    next: u64,
    /// The number of used bytes per device.
    used: BTreeMap<u32, u64>,
}

impl Usage {
    fn of(&self, device: u32) -> u64 {
        self.used.get(&device).copied().unwrap_or(0)
    }
}

/// The live allocations, sorted by base, and the freed ones. A launch uses one snapshot of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    live: Vec<Arc<ShadowedAllocation>>,
    freed: Vec<AllocationInfo>,
    /// The heaps of the devices whose kernels have called `malloc`.
    heaps: BTreeMap<u32, Arc<Heap>>,
    /// The textures and surfaces.
    objects: Arc<Objects>,
}

/// The contents of memory that [`Memory::take_away`] removed from its address.
#[derive(Debug)]
pub struct UnmappedMemory(Arc<ShadowedAllocation>);

/// A slice of a byte range that lies in one allocation.
struct AllocationPart {
    allocation: Arc<ShadowedAllocation>,
    /// The offset of the slice in the allocation.
    offset: u64,
    /// The indices of the bytes in the range.
    range: Range<usize>,
}

impl AllocationPart {
    fn bytes(&self) -> u64 {
        self.range.len() as u64
    }
}

impl Memory {
    /// Creates an empty memory with a capacity of `capacity` bytes per device.
    ///
    /// Host memory is allocated as buffers are allocated.
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

    /// Allocates `bytes` uninitialized bytes on device 0 and returns their address, a multiple of
    /// 256.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfMemory`] if the capacity of the device or the host memory is
    /// exhausted.
    pub fn alloc(&self, bytes: u64) -> Result<u64, MemoryError> {
        self.alloc_on(0, bytes)
    }

    /// Allocates `bytes` uninitialized bytes on a device and returns their address, a multiple of
    /// 256.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfMemory`] if the capacity of the device or the host memory is
    /// exhausted.
    pub fn alloc_on(&self, device: u32, bytes: u64) -> Result<u64, MemoryError> {
        self.alloc_as(device, bytes, false)
    }

    /// Reserves an address for `bytes` bytes without allocating memory there.
    ///
    /// Pass the address to [`alloc_at`](Memory::alloc_at) to allocate the memory.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfMemory`] if `bytes` exceeds the capacity or no addresses are
    /// left.
    pub fn reserve(&self, bytes: u64) -> Result<u64, MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > self.capacity.min(LAST.saturating_sub(state.next)) {
            let used = state.of(0);
            let capacity = self.capacity;
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

    /// Reserves an address range of `bytes` bytes and returns its start, a multiple of `align`.
    ///
    /// The range may be larger than the memory of a device. Use [`put`](Memory::put) to map memory
    /// in it.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfMemory`] if no addresses are left.
    pub fn reserve_range(&self, bytes: u64, align: u64) -> Result<u64, MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used = state.of(0);
        let capacity = self.capacity;
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

    /// Counts `bytes` bytes of a device as used, without giving them an address.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfMemory`] if the device has less free capacity.
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

    /// Returns `bytes` bytes to the free capacity of a device, after [`hold`](Memory::hold).
    pub fn give(&self, device: u32, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used = state.of(device).saturating_sub(bytes);
        state.used.insert(device, used);
    }

    /// Maps memory at an address of a [reserved range](Memory::reserve_range).
    ///
    /// The memory must have been counted by [`hold`](Memory::hold). It is uninitialized, or has the
    /// contents of `held`. Copies and fills may cross from one mapping to an adjacent one.
    ///
    /// # Errors
    /// - [`MemoryError::OutOfMemory`] if the host has too little memory.
    /// - [`MemoryError::OutOfBounds`] if the address is mapped already.
    pub fn put(
        &self,
        base: u64,
        device: u32,
        bytes: u64,
        held: Option<&UnmappedMemory>,
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
        let new = ShadowedAllocation::on_device(base, device, bytes).ok_or(full)?;
        if let Some(UnmappedMemory(old)) = held {
            new.take_over(old);
        }

        self.insert(new);
        Ok(())
    }

    /// Unmaps the allocation at `base` and returns its contents. It still counts as used.
    ///
    /// # Errors
    /// Returns [`MemoryError::NotAnAllocation`] if no allocation begins at `base`.
    pub fn take_away(&self, base: u64) -> Result<UnmappedMemory, MemoryError> {
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut slot).remove(base).map(UnmappedMemory)
    }

    fn alloc_as(&self, device: u32, bytes: u64, constant: bool) -> Result<u64, MemoryError> {
        let base = self.reserve(bytes)?;
        self.insert_device(base, device, bytes, constant)?;
        Ok(base)
    }

    /// Allocates `bytes` uninitialized bytes of a device at an address from
    /// [`reserve`](Memory::reserve).
    ///
    /// # Errors
    /// - [`MemoryError::OutOfMemory`] if the capacity of the device or the host memory is
    ///   exhausted.
    /// - [`MemoryError::OutOfBounds`] if the address is mapped already.
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

        let mut new = ShadowedAllocation::on_device(base, device, bytes).ok_or(full)?;
        new.constant = constant;
        state.used.insert(device, used + bytes);
        self.insert(new);
        Ok(())
    }

    /// Allocates `bytes` bytes of pinned host memory, which are zeroed and count as initialized.
    ///
    /// The memory does not count towards the capacity of a device.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfMemory`] if the host has too little memory.
    pub fn alloc_host(&self, bytes: u64) -> Result<Arc<HostBlock>, MemoryError> {
        let full = MemoryError::OutOfMemory {
            asked: bytes,
            used: self.used(),
            capacity: self.capacity,
        };
        let block = Arc::new(HostBlock::new(bytes).ok_or(full)?);
        let base = block.address();
        let storage = Storage::Host(block.clone());
        self.insert(ShadowedAllocation::of(
            base,
            bytes,
            format!("pinned 0x{base:x}"),
            storage,
            None,
        ));
        Ok(block)
    }

    /// Registers memory of the program, so that every device can access it at its host address.
    ///
    /// The memory counts as initialized. [`free`](Memory::free) ends the registration.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfBounds`] if the memory overlaps an allocation.
    pub fn map(&self, words: &'static [AtomicU32]) -> Result<u64, MemoryError> {
        let base = words.as_ptr() as u64;
        let bytes = 4 * words.len() as u64;
        let overlaps =
            |a: &Arc<ShadowedAllocation>| a.base < base + bytes && base < a.base + a.bytes;
        if self.table().live.iter().any(overlaps) {
            return Err(MemoryError::OutOfBounds {
                address: base,
                bytes,
            });
        }

        let label = format!("registered 0x{base:x}");
        self.insert(ShadowedAllocation::of(
            base,
            bytes,
            label,
            Storage::Mapped(words),
            None,
        ));
        Ok(base)
    }

    /// Frees the device or host allocation with the base `address`. Running launches keep its
    /// storage.
    ///
    /// # Errors
    /// Returns [`MemoryError::NotAnAllocation`] if no allocation begins at `address`.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let gone = Arc::make_mut(&mut slot).remove(address)?;
        // The host may return the same address again, so a freed host address is not remembered.
        if let Some(device) = gone.owner {
            let used = state.of(device).saturating_sub(gone.bytes);
            state.used.insert(device, used);
        }
        Ok(())
    }

    /// Names the allocation that contains `address`. Faults print the name. Does nothing if there
    /// is no such allocation.
    pub fn set_label(&self, address: u64, label: &str) {
        if let Some(a) = self.table().find(address) {
            *a.label.write().unwrap_or_else(PoisonError::into_inner) = label.to_string();
        }
    }

    /// Changes the textures and surfaces. Running launches keep their snapshot.
    pub(crate) fn change_objects<T>(&self, change: impl FnOnce(&mut Objects) -> T) -> T {
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut Arc::make_mut(&mut slot).objects))
    }

    /// Copies bytes to the host. Uninitialized bytes are copied too, see
    /// [`uninitialised`](Memory::uninitialised).
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfBounds`] if the bytes are not all allocated.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), MemoryError> {
        for part in self.parts(address, to.len() as u64)? {
            part.allocation.read(part.offset, &mut to[part.range]);
        }
        Ok(())
    }

    /// Copies bytes from the host and marks them initialized.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfBounds`] if the bytes are not all allocated.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryError> {
        for part in self.parts(address, from.len() as u64)? {
            part.allocation.initialise(part.offset, part.bytes());
            part.allocation.write(part.offset, &from[part.range]);
            part.allocation.advance();
        }
        Ok(())
    }

    /// Writes `count` copies of `pattern` and marks them initialized.
    ///
    /// The pattern has 1, 2 or 4 bytes, and `address` must be a multiple of its length.
    ///
    /// # Errors
    /// - [`MemoryError::BadPattern`] if the length of the pattern or the address is invalid.
    /// - [`MemoryError::OutOfBounds`] if the bytes are not all allocated.
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

        // One chunk is written repeatedly, so that a large fill needs no buffer of its size.
        let chunk = pattern.repeat(4096 / pattern.len());
        for part in self.parts(address, total)? {
            let a = &part.allocation;
            let total = part.bytes();
            for at in (0..total).step_by(4096) {
                a.write(part.offset + at, &chunk[..(total - at).min(4096) as usize]);
            }
            a.initialise(part.offset, total);
            a.advance();
        }

        Ok(())
    }

    /// Copies `bytes` bytes within the memory of the devices. The ranges may overlap.
    ///
    /// The destination is initialized where the source is.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfBounds`] if the bytes of a range are not all allocated.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), MemoryError> {
        let sources = self.parts(from, bytes)?;
        let targets = self.parts(to, bytes)?;

        // The ranges may overlap, so the bytes are read completely before any is written.
        let mut data = vec![0; bytes as usize];
        let mut unknown = Vec::new();
        for part in sources {
            let a = &part.allocation;
            // Most sources are initialized completely, which is faster to find out than the state
            // of each byte.
            if a.first_uninitialised(part.offset, part.bytes()).is_some() {
                let at = |i: &usize| part.offset + (i - part.range.start) as u64;
                unknown.extend(part.range.clone().filter(|i| !a.is_initialised(at(i), 1)));
            }
            a.read(part.offset, &mut data[part.range]);
        }

        for part in targets {
            let a = &part.allocation;
            a.write(part.offset, &data[part.range.clone()]);
            let known = unknown.partition_point(|i| *i < part.range.start)
                ..unknown.partition_point(|i| *i < part.range.end);
            a.know(part.offset, part.range, &unknown[known]);
        }

        Ok(())
    }

    /// Returns the address of the first uninitialized byte among `bytes` bytes.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfBounds`] if the bytes are not all allocated.
    pub fn uninitialised(&self, address: u64, bytes: u64) -> Result<Option<u64>, MemoryError> {
        let parts = self.parts(address, bytes)?;
        let first = |part: &AllocationPart| {
            let a = &part.allocation;
            a.first_uninitialised(part.offset, part.bytes())
                .map(|at| a.base + at)
        };
        Ok(parts.iter().find_map(first))
    }

    /// Returns the number of uninitialized bytes in a range.
    pub(crate) fn count_uninitialised(&self, address: u64, bytes: u64) -> Result<u64, MemoryError> {
        let parts = self.parts(address, bytes)?;
        Ok(parts
            .iter()
            .map(|part| {
                let a = &part.allocation;
                a.count_uninitialised(part.offset, part.bytes())
            })
            .sum())
    }

    /// Returns the error that the host has too little memory for `asked` bytes.
    pub(crate) fn full(&self, asked: u64) -> MemoryError {
        MemoryError::OutOfMemory {
            asked,
            used: self.used(),
            capacity: self.capacity,
        }
    }

    /// Returns the number of bytes of device 0 that are allocated or [held](Memory::hold).
    pub fn used(&self) -> u64 {
        self.used_on(0)
    }

    /// Returns the number of bytes of a device that are allocated or [held](Memory::hold).
    pub fn used_on(&self, device: u32) -> u64 {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .of(device)
    }

    /// Returns the device whose memory contains `address`, or `None` for host memory and unmapped
    /// addresses.
    pub fn owner(&self, address: u64) -> Option<u32> {
        self.table().find(address)?.owner
    }

    /// Returns the capacity of each device in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the live allocation that contains `address`, or `None` if no memory is mapped there.
    pub fn find(&self, address: u64) -> Option<AllocationInfo> {
        self.table().find(address).map(|a| a.info())
    }

    /// Returns the addresses of a module's variables, which the first call allocates and
    /// initializes.
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

        // An initial value may be the address of a later variable, so all are allocated first.
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

    /// Creates the heap of a device if it has none.
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

    /// Allocates a variable. Bytes without an initial value are zero.
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
            // A program may have freed a variable although it must not, so an error is expected
            // here.
            let _ = self.free(*address);
        }
    }

    /// Returns a snapshot of the allocations.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns a snapshot of the allocations that a launch may access: host memory and the memory
    /// of the devices that it reaches.
    pub(crate) fn table_of(&self, place: &LaunchSite<'_>) -> Arc<Table> {
        let table = self.table();
        let reaches =
            |a: &Arc<ShadowedAllocation>| a.owner.is_none_or(|owner| place.reaches(owner));

        // With one device, or with peers enabled, every allocation is reachable and no copy is
        // needed.
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

    fn insert(&self, new: ShadowedAllocation) {
        let mut slot = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::make_mut(&mut slot);
        let at = table.live.partition_point(|a| a.base < new.base);
        table.live.insert(at, Arc::new(new));
    }

    /// Returns the base and the size of the region around `address` that one copy can cover.
    ///
    /// This is one allocation, or all adjacent mappings in a [reserved
    /// range](Memory::reserve_range).
    pub fn run(&self, address: u64) -> Option<(u64, u64)> {
        let table = self.table();
        let found = table.find(address)?;
        let mut start = found.base;
        let mut end = found.base + found.bytes;
        let at = table.live.partition_point(|a| a.base <= address);

        // Host memory that happens to be adjacent was allocated separately, so it is another
        // region.
        let of_device = |a: &&Arc<ShadowedAllocation>| found.owner.is_some() && a.owner.is_some();
        for before in table.live[..at - 1].iter().rev().filter(of_device) {
            if before.base + before.bytes == start {
                start = before.base
            } else {
                break;
            }
        }

        for after in table.live[at..].iter().filter(of_device) {
            if after.base == end {
                end += after.bytes
            } else {
                break;
            }
        }

        Some((start, end - start))
    }

    /// Splits a byte range into slices that lie in one allocation each. Only device memory can be
    /// adjacent.
    fn parts(&self, address: u64, bytes: u64) -> Result<Vec<AllocationPart>, MemoryError> {
        let error = MemoryError::OutOfBounds { address, bytes };
        let table = self.table();
        let mut parts = Vec::new();
        let mut at = 0;
        loop {
            let next = table
                .find(address.wrapping_add(at))
                .filter(|a| at == 0 || a.owner.is_some());
            let a = next.ok_or(error.clone())?;
            let offset = address + at - a.base;
            let end = (at + a.bytes - offset).min(bytes);
            parts.push(AllocationPart {
                allocation: a.clone(),
                offset,
                range: at as usize..end as usize,
            });
            if end == bytes {
                return Ok(parts);
            }

            // An empty allocation makes no progress, and host memory does not continue in the next
            // allocation.
            if end == at || a.owner.is_none() {
                return Err(error);
            }

            at = end;
        }
    }
}

impl Table {
    /// Returns the live allocations, sorted by base.
    pub(crate) fn live(&self) -> &[Arc<ShadowedAllocation>] {
        &self.live
    }

    /// Returns the textures and surfaces.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the live allocation that contains `address`. An empty allocation contains its base.
    pub(crate) fn find(&self, address: u64) -> Option<&Arc<ShadowedAllocation>> {
        let at = self
            .live
            .partition_point(|a| a.base <= address)
            .checked_sub(1)?;
        let a = &self.live[at];
        (address - a.base < a.bytes.max(1)).then_some(a)
    }

    /// Returns the memory that a kernel may access at `address`: an allocation, or the arena of a
    /// heap.
    pub(crate) fn reach(&self, address: u64) -> Option<&ShadowedAllocation> {
        match self.find(address) {
            Some(a) => Some(a),
            None => self.heaps.values().find_map(|heap| heap.holds(address)),
        }
    }

    /// Returns the heap whose address range contains `address`.
    pub(crate) fn heap_at(&self, address: u64) -> Option<&Heap> {
        self.heaps
            .values()
            .find(|heap| heap.holds(address).is_some())
            .map(|heap| &**heap)
    }

    /// Returns the heap of a device.
    pub(crate) fn heap(&self, device: u32) -> Option<&Heap> {
        self.heaps.get(&device).map(|heap| &**heap)
    }

    /// Returns the freed allocation that contained `address`.
    pub(crate) fn find_freed(&self, address: u64) -> Option<&AllocationInfo> {
        self.freed
            .iter()
            .rev()
            .find(|a| (a.base..a.base + a.bytes).contains(&address))
    }

    /// Returns the live allocation nearest to `address`, if it is close enough to be the intended
    /// one.
    pub(crate) fn nearest(&self, address: u64) -> Option<&Arc<ShadowedAllocation>> {
        let distance = |a: &&Arc<ShadowedAllocation>| match address {
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

    /// Removes an allocation. Device allocations are remembered for faults.
    fn remove(&mut self, address: u64) -> Result<Arc<ShadowedAllocation>, MemoryError> {
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
