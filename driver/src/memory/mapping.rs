//! Virtual memory management: physical memory, address ranges, and buffers that grow in place.
//!
//! Each physical allocation is mapped at most once, so two buffers never share bytes. Memory is
//! unmapped when no view of its range is left and the work that used it is complete, because a
//! [`View`] keeps the whole range alive.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use driver_sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationProp, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use crate::device::Context;
use crate::device::context::expect_same;
use crate::error::Error;
use crate::lifetime::active_captures::forbid;
use crate::lifetime::deferred_free::DeferredFree;
use crate::lifetime::reserved_range::{MappedChunk, ReservedRange};
use crate::lifetime::unpoisoned_lock::lock;
use crate::memory::allocation::{Allocation, Origin, or_out_of_memory};
use crate::memory::buffer::byte_len;
use crate::memory::{Element, View};

/// Physical device memory without an address, in [whole pages](Self::granularity).
///
/// Map it into an [`AddressRange`] to use it. See there for a longer example.
///
/// ```
/// # use warpwright_driver::memory::{AddressRange, PhysicalMemory};
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let page = PhysicalMemory::granularity(&context)?;
/// let memory = PhysicalMemory::new(&context, page)?; // whole pages
/// let mut range = AddressRange::reserve(&context, 1 << 36)?;
/// range.map(0, memory)?;
/// range.view::<u32>(0..8)?.write(&[1, 2])?;
/// let memory = range.unmap(0)?; // with its contents
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PhysicalMemory {
    context: Context,
    /// The memory, or `None` after it was mapped into a range.
    piece: Option<MappedChunk>,
}

/// A range of device addresses, into which memory is mapped.
///
/// The addresses do not change while the range lives, and an unmapped range occupies no memory. A
/// view of the range must lie within mapped memory, and keeps the range alive.
///
/// ```
/// # use warpwright_driver::memory::{AddressRange, PhysicalMemory};
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let page = PhysicalMemory::granularity(&context)?;
/// let mut range = AddressRange::reserve(&context, 1 << 36)?;
/// range.map(0, PhysicalMemory::new(&context, page)?)?;
/// range.map(page, PhysicalMemory::new(&context, page)?)?;
/// let words = range.view::<u32>(page - 4..page + 4)?;
/// words.write(&[1, 2])?;
/// drop(words);
/// let second = range.unmap(page)?;
/// assert!(range.view::<u32>(page - 4..page + 4).is_err());
/// range.map(5 * page, second)?; // at another offset, with its contents
/// assert_eq!(range.view::<u32>(5 * page..5 * page + 4)?.to_vec()?, [2]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AddressRange {
    /// A view of the whole range. Another share of its allocation means that a view may use the
    /// memory.
    view: View<u8>,
    reserved: Arc<ReservedRange>,
    page: usize,
}

/// A device buffer that grows in place.
///
/// Its address range is reserved up front and memory is mapped as it grows, so existing views and
/// graphs stay valid.
///
/// ```
/// # use warpwright_driver::memory::GrowableBuffer;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// // Addresses for 16 G elements, and memory for a thousand.
/// let mut cache = GrowableBuffer::<f32>::reserve(&context, 16 << 30)?;
/// cache.grow(1000)?;
/// let first = cache.view();
/// stream.fill(&first, 1.0)?;
/// cache.grow(1_000_000)?;
/// let all = cache.view();
/// assert_eq!((all.len(), all.address()), (1_000_000, first.address()));
/// assert_eq!(stream.read(&all.view_range(0..1000))?, [1.0; 1000]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GrowableBuffer<T> {
    range: AddressRange,
    len: usize,
    elem: PhantomData<T>,
}

impl PhysicalMemory {
    /// Allocates `bytes` of physical memory on the context's device, rounded up to whole pages. The
    /// memory is not initialized.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if the device has too little memory, or an error if it does
    /// not support virtual memory management.
    pub fn new(context: &Context, bytes: usize) -> Result<Self, Error> {
        forbid("allocating memory")?;
        let bytes = whole_pages(bytes, Self::granularity(context)?);
        let _current = context.enter()?;
        let driver = context.driver();
        let properties = properties(context);
        let handle = context.with_memory(|| {
            let mut handle = 0;
            // SAFETY: `handle` is a local variable that the driver may write. The properties live
            // until the call returns.
            unsafe { cu_optional!(driver, cuMemCreate(&mut handle, bytes, &properties, 0)) }
                .map(|()| handle)
        });
        let handle = handle.map_err(|error| or_out_of_memory(error, context, bytes))?;
        Ok(Self {
            context: context.clone(),
            piece: Some(MappedChunk { handle, bytes }),
        })
    }

    /// Returns the page size in bytes, of which sizes and offsets must be multiples.
    ///
    /// # Errors
    /// Returns an error if the device does not support virtual memory management.
    pub fn granularity(context: &Context) -> Result<usize, Error> {
        let _current = context.enter()?;
        let driver = context.driver();
        let mut bytes = 0;
        let properties = properties(context);
        let option = CUmemAllocationGranularity_flags::MINIMUM;

        // SAFETY: `bytes` is a local variable that the driver may write. The properties live until
        // the call returns.
        unsafe {
            cu_optional!(
                driver,
                cuMemGetAllocationGranularity(&mut bytes, &properties, option)
            )
        }?;
        Ok(bytes.max(1))
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.piece.map_or(0, |piece| piece.bytes)
    }
}

impl AddressRange {
    /// Reserves addresses for `bytes` bytes, rounded up to whole pages. They may exceed the
    /// device's memory.
    ///
    /// # Errors
    /// Returns an error if the driver cannot reserve the addresses.
    pub fn reserve(context: &Context, bytes: usize) -> Result<Self, Error> {
        forbid("reserving addresses")?;
        let page = PhysicalMemory::granularity(context)?;
        let bytes = whole_pages(bytes, page);
        let _current = context.enter()?;
        let driver = context.driver();
        let mut address = 0;

        // SAFETY: `address` is a local variable that the driver may write.
        unsafe { cu_optional!(driver, cuMemAddressReserve(&mut address, bytes, 0, 0, 0)) }?;
        let reserved = Arc::new(ReservedRange::new(bytes));
        let allocation =
            Allocation::new(context, address, bytes, Origin::Reserved(reserved.clone()));
        Ok(Self {
            view: View::whole(Arc::new(allocation)),
            reserved,
            page,
        })
    }

    /// Returns this range with a label, like [`Buffer::labelled`](crate::memory::Buffer::labelled).
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        self.view.region().allocation.set_label(label);
        self
    }

    /// Returns the first address.
    pub fn address(&self) -> CUdeviceptr {
        self.view.address()
    }

    /// Returns the size in bytes, whether mapped or not.
    pub fn bytes(&self) -> usize {
        self.reserved.bytes
    }

    /// Returns the number of mapped bytes.
    pub fn mapped(&self) -> usize {
        lock(&self.reserved.pieces)
            .iter()
            .map(|(_, piece)| piece.bytes)
            .sum()
    }

    /// Maps memory at byte `at` of the range, with read and write access for the context's device.
    ///
    /// Use [`unmap`](Self::unmap) to get the memory back. Otherwise it is released when the range
    /// and its views are gone.
    ///
    /// # Errors
    /// In all cases the memory is released.
    ///
    /// - [`Error::WrongContext`] if the memory belongs to another context.
    /// - [`Error::Transfer`] if the bytes are not within the range, not at a page boundary, or
    ///   mapped already.
    /// - [`Error::Driver`] if the driver cannot map the memory.
    pub fn map(&mut self, at: usize, mut memory: PhysicalMemory) -> Result<(), Error> {
        forbid("mapping memory")?;
        let context = self.view.context();
        expect_same("memory", &memory.context, "the range of addresses", context)?;
        let Some(piece) = memory.piece else {
            return Ok(());
        };

        let mut pieces = lock(&self.reserved.pieces);
        let place = free_place(&self.reserved, &pieces, at, piece.bytes, self.page)?;
        let _current = context.enter()?;
        let driver = context.driver();
        let address = self.address() + at as u64;

        // SAFETY: `free_place` has checked that the addresses are within this range and unmapped.
        // The memory is not mapped elsewhere, because `memory` was moved here with its handle.
        unsafe { cu_optional!(driver, cuMemMap(address, piece.bytes, 0, piece.handle, 0)) }?;
        let access = CUmemAccessDesc {
            location: location(context),
            flags: CUmemAccess_flags::PROT_READWRITE,
        };

        // SAFETY: the addresses were mapped just above. The description lives until the call
        // returns.
        let opened =
            unsafe { cu_optional!(driver, cuMemSetAccess(address, piece.bytes, &access, 1)) };
        if let Err(error) = opened {
            // SAFETY: the addresses were mapped just above, and no view of them exists yet.
            let _ = unsafe { cu_optional!(driver, cuMemUnmap(address, piece.bytes)) };
            return Err(error.into());
        }

        // From here on the range owns the memory. Before, an error drops `memory`, which releases
        // it.
        memory.piece = None;
        pieces.insert(place, (at, piece));
        self.view.region().allocation.tell_label(address);
        Ok(())
    }

    /// Waits for all streams of the context, then unmaps the memory at byte `at` and returns it.
    ///
    /// # Errors
    /// - [`Error::Transfer`] if no mapped memory begins at `at`.
    /// - [`Error::Transfer`] if a [`View`] of the range exists, or a graph or a capture uses one.
    /// - [`Error::Driver`] if earlier work has failed, or the driver cannot unmap the memory.
    pub fn unmap(&mut self, at: usize) -> Result<PhysicalMemory, Error> {
        forbid("unmapping memory")?;
        if Arc::get_mut(&mut self.view.region.allocation).is_none() {
            let problem = "a view of the range exists; drop views and graphs of it first";
            return Err(Error::Transfer {
                what: "unmapping",
                problem: problem.into(),
            });
        }

        let place = lock(&self.reserved.pieces).binary_search_by_key(&at, |(at, _)| *at);
        let Ok(place) = place else {
            let problem = format!("no mapped memory begins at byte {at}");
            return Err(Error::Transfer {
                what: "unmapping",
                problem,
            });
        };

        // Without a view no new work can use the range, so this wait covers all work that does.
        let context = self.view.context().clone();
        context.synchronize()?;
        let current = context.enter()?;
        let driver = context.driver();
        let address = self.view.address();
        let mut pieces = lock(&self.reserved.pieces);
        let (_, piece) = pieces[place];

        // SAFETY: no view exists, and the wait above shows that all work with one is complete.
        unsafe { cu_optional!(driver, cuMemUnmap(address + at as u64, piece.bytes)) }?;
        pieces.remove(place);
        drop((pieces, current));
        Ok(PhysicalMemory {
            context,
            piece: Some(piece),
        })
    }

    /// Returns a view of these bytes of the range.
    ///
    /// # Errors
    /// - [`Error::Transfer`] if not all of the bytes are mapped.
    /// - [`Error::Cast`] if they are not a whole number of aligned elements.
    pub fn view<T: Element>(&self, bytes: Range<usize>) -> Result<View<T>, Error> {
        let mapped = self.reserved.mapped_from(bytes.start);
        match self.view.get(bytes.clone()).filter(|_| bytes.end <= mapped) {
            Some(view) => view.cast(),
            None => {
                let Range { start, end } = bytes;
                let problem = format!(
                    "bytes {start} to {end} of {} are not all mapped",
                    self.view.region()
                );
                Err(Error::Transfer {
                    what: "a view",
                    problem,
                })
            }
        }
    }
}

impl<T: Element> GrowableBuffer<T> {
    /// Creates an empty buffer that can grow to `most` elements.
    ///
    /// # Errors
    /// Returns the errors of [`AddressRange::reserve`].
    pub fn reserve(context: &Context, most: usize) -> Result<Self, Error> {
        let range = AddressRange::reserve(context, byte_len::<T>(most))?;
        Ok(Self {
            range,
            len: 0,
            elem: PhantomData,
        })
    }

    /// Returns this buffer with a label, like
    /// [`Buffer::labelled`](crate::memory::Buffer::labelled).
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        Self {
            range: self.range.labelled(label),
            ..self
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the largest number of elements to which the buffer can grow.
    pub fn capacity(&self) -> usize {
        self.range.bytes() / size_of::<T>().max(1)
    }

    /// Returns the address range of the buffer.
    pub fn range(&self) -> &AddressRange {
        &self.range
    }

    /// Returns a view of all present elements. The view does not grow with the buffer.
    ///
    /// # Panics
    /// Does not panic, because all present elements are mapped.
    pub fn view(&self) -> View<T> {
        let bytes = self
            .range
            .view
            .get(0..byte_len::<T>(self.len))
            .expect("the length is within the range");
        bytes.cast().expect("a range begins with a page")
    }

    /// Grows the buffer to at least `len` elements. New elements are not initialized.
    ///
    /// # Errors
    /// The buffer is unchanged after an error.
    ///
    /// - [`Error::Transfer`] if `len` exceeds the [capacity](Self::capacity).
    /// - [`Error::OutOfMemory`] if the device has too little memory.
    /// - [`Error::Driver`] if the driver cannot map the memory.
    pub fn grow(&mut self, len: usize) -> Result<(), Error> {
        if len > self.capacity() {
            let problem = format!(
                "{len} elements exceed the capacity of {}, which is {}",
                self.range.view.region(),
                self.capacity()
            );
            return Err(Error::Transfer {
                what: "growing",
                problem,
            });
        }

        let bytes = byte_len::<T>(len);
        let mapped = self.range.mapped();
        if bytes > mapped {
            let memory = PhysicalMemory::new(self.range.view.context(), bytes - mapped)?;
            self.range.map(mapped, memory)?;
        }

        self.len = self.len.max(len);
        Ok(())
    }

    /// Shrinks the buffer to at most `len` elements, and waits for all streams of the context.
    ///
    /// Memory is released in the chunks in which the buffer grew. A chunk that is still partly used
    /// stays.
    ///
    /// # Errors
    /// Returns the errors of [`AddressRange::unmap`].
    pub fn shrink(&mut self, len: usize) -> Result<(), Error> {
        let bytes = byte_len::<T>(len.min(self.len));
        while let Some(last) = self.range.reserved.last().filter(|last| *last >= bytes) {
            drop(self.range.unmap(last)?);
            self.len = self.len.min(last / size_of::<T>().max(1));
        }
        self.len = self.len.min(len);
        Ok(())
    }
}

/// Returns the index at which a chunk must be inserted to keep the list sorted.
///
/// # Errors
/// Returns an error if the bytes are not within the range, not at a page boundary, or mapped
/// already.
fn free_place(
    reserved: &ReservedRange,
    pieces: &[(usize, MappedChunk)],
    at: usize,
    bytes: usize,
    page: usize,
) -> Result<usize, Error> {
    let refuse = |problem: String| {
        Err(Error::Transfer {
            what: "mapping",
            problem,
        })
    };
    let Some(end) = at.checked_add(bytes).filter(|end| *end <= reserved.bytes) else {
        return refuse(format!(
            "{bytes} bytes at byte {at} of a range of {}",
            reserved.bytes
        ));
    };

    if !at.is_multiple_of(page) {
        return refuse(format!(
            "byte {at} is not a multiple of the page size {page}"
        ));
    }

    // The chunks are sorted and disjoint, so only the last one that begins before `end` can
    // overlap.
    let place = pieces.partition_point(|(other, _)| *other < end);
    match pieces[..place]
        .last()
        .filter(|(other, piece)| other + piece.bytes > at)
    {
        Some((other, piece)) => refuse(format!(
            "{bytes} bytes at byte {at}, where {} are mapped from byte {other} on",
            piece.bytes
        )),
        None => Ok(place),
    }
}

/// Rounds a size up to whole pages, at least one. On overflow it returns a size for which every
/// allocation fails.
fn whole_pages(bytes: usize, page: usize) -> usize {
    bytes
        .max(1)
        .checked_next_multiple_of(page)
        .unwrap_or(usize::MAX / page * page)
}

fn location(context: &Context) -> CUmemLocation {
    CUmemLocation {
        r#type: CUmemLocationType::DEVICE,
        id: context.device().raw(),
    }
}

fn properties(context: &Context) -> CUmemAllocationProp {
    let kind = CUmemAllocationType::PINNED;
    let location = location(context);
    CUmemAllocationProp {
        r#type: kind,
        location,
        ..CUmemAllocationProp::zeroed()
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        if let Some(piece) = self.piece {
            self.context.release(DeferredFree::Physical(piece.handle));
        }
    }
}
