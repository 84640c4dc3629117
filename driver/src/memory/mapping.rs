//! Memory without an address and addresses without memory, which are put together: buffers that grow where they are.
//!
//! Memory is mapped at one place at a time, so that no two buffers are the same bytes. It is unmapped when no view of
//! its range is left and the work that used it is done: a [`View`] keeps the whole range.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use driver_sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationProp, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use super::{Allocation, Origin, View, byte_len, or_out_of_memory};
use crate::context::expect_same;
use crate::element::Element;
use crate::lock::lock;
use crate::regions::forbid;
use crate::release::Release;
use crate::reserved::{Piece, Reserved};
use crate::{Context, Error};

/// Memory of a device without an address, of [whole pages](Self::granularity). An [`AddressRange`] gives it one.
///
/// An example is at [`AddressRange`].
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let page = PhysicalMemory::granularity(&context)?;
/// let memory = PhysicalMemory::new(&context, page)?; // whole pages
/// let mut range = AddressRange::reserve(&context, 1 << 36)?;
/// range.map(0, memory)?;
/// range.view::<u32>(0..8)?.write(&[1, 2])?;
/// let memory = range.unmap(0)?; // with what it holds
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PhysicalMemory {
    context: Context,
    /// None once a range has it.
    piece: Option<Piece>,
}

/// Addresses on a device, at which memory is mapped and unmapped. They stay the same while it lives, and they cost no
/// memory. Views of it are bounded by what is mapped, and keep it.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let page = PhysicalMemory::granularity(&context)?;
/// let mut range = AddressRange::reserve(&context, 1 << 36)?;
/// range.map(0, PhysicalMemory::new(&context, page)?)?;
/// range.map(page, PhysicalMemory::new(&context, page)?)?;
/// let words = range.view::<u32>(page - 4..page + 4)?;
/// words.write(&[1, 2])?;
/// drop(words);
/// let second = range.unmap(page)?;
/// assert!(range.view::<u32>(page - 4..page + 4).is_err());
/// range.map(5 * page, second)?; // elsewhere, with what it holds
/// assert_eq!(range.view::<u32>(5 * page..5 * page + 4)?.to_vec()?, [2]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AddressRange {
    /// All addresses. Whoever has another share of its allocation may use the memory.
    view: View<u8>,
    reserved: Arc<Reserved>,
    page: usize,
}

/// Device memory that grows without being copied: its addresses are reserved, and memory is added behind what is there.
/// Views of it and graphs stay good when it grows.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// // Room for 16 G elements, and memory for a thousand.
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
    /// `bytes` of the context's device, rounded up to whole pages, with whatever they hold.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; or what else the driver refuses: not every device has virtual memory of this sort.
    pub fn new(context: &Context, bytes: usize) -> Result<Self, Error> {
        forbid("allocating memory")?;
        let bytes = whole_pages(bytes, Self::granularity(context)?);
        let (_current, driver, properties) =
            (context.enter()?, context.driver(), properties(context));
        let handle = context.with_memory(|| {
            let mut handle = 0;
            // SAFETY: `handle` is ours to write, and the properties are lent.
            unsafe { cu_if_there!(driver, cuMemCreate(&mut handle, bytes, &properties, 0)) }
                .map(|()| handle)
        });
        let handle = handle.map_err(|error| or_out_of_memory(error, context, bytes))?;
        Ok(Self {
            context: context.clone(),
            piece: Some(Piece { handle, bytes }),
        })
    }

    /// The bytes of a page: what sizes and places are multiples of.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn granularity(context: &Context) -> Result<usize, Error> {
        let (_current, driver) = (context.enter()?, context.driver());
        let (mut bytes, properties) = (0, properties(context));
        let option = CUmemAllocationGranularity_flags::MINIMUM;
        // SAFETY: `bytes` is ours to write, and the properties are lent.
        unsafe {
            cu_if_there!(
                driver,
                cuMemGetAllocationGranularity(&mut bytes, &properties, option)
            )
        }?;
        Ok(bytes.max(1))
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.piece.map_or(0, |piece| piece.bytes)
    }
}

impl AddressRange {
    /// Addresses for so many bytes, rounded up to whole pages. They may be more than the device has.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn reserve(context: &Context, bytes: usize) -> Result<Self, Error> {
        forbid("reserving addresses")?;
        let page = PhysicalMemory::granularity(context)?;
        let bytes = whole_pages(bytes, page);
        let (_current, driver, mut address) = (context.enter()?, context.driver(), 0);
        // SAFETY: `address` is ours to write.
        unsafe { cu_if_there!(driver, cuMemAddressReserve(&mut address, bytes, 0, 0, 0)) }?;
        let reserved = Arc::new(Reserved::new(bytes));
        let allocation =
            Allocation::new(context, address, bytes, Origin::Reserved(reserved.clone()));
        Ok(Self {
            view: View::of(Arc::new(allocation)),
            reserved,
            page,
        })
    }

    /// The same range with a name, as [`Buffer::labelled`](crate::Buffer::labelled).
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        self.view.region().allocation.set_label(label);
        self
    }

    /// Its first address.
    pub fn address(&self) -> CUdeviceptr {
        self.view.address()
    }

    /// Its size in bytes, mapped or not.
    pub fn bytes(&self) -> usize {
        self.reserved.bytes
    }

    /// Bytes of it that are mapped.
    pub fn mapped(&self) -> usize {
        lock(&self.reserved.pieces)
            .iter()
            .map(|(_, piece)| piece.bytes)
            .sum()
    }

    /// Maps memory from byte `at` of the range on, for the context's device to read and write. The range gives it back
    /// by [`unmap`](Self::unmap), or releases it when it and its views are gone.
    ///
    /// # Errors
    /// Memory of another context; a place that is not within the range, not a whole number of pages, or mapped already
    /// ([`Error::Transfer`]); or what the driver refuses. The memory is released then.
    pub fn map(&mut self, at: usize, mut memory: PhysicalMemory) -> Result<(), Error> {
        forbid("mapping memory")?;
        let context = self.view.context();
        expect_same("memory", &memory.context, "the range of addresses", context)?;
        let Some(piece) = memory.piece else {
            return Ok(());
        };
        let mut pieces = lock(&self.reserved.pieces);
        let place = free_place(&self.reserved, &pieces, at, piece.bytes, self.page)?;
        let (_current, driver, address) = (
            context.enter()?,
            context.driver(),
            self.address() + at as u64,
        );
        // SAFETY: the addresses are this range's and nothing is mapped there; the memory is mapped nowhere.
        unsafe { cu_if_there!(driver, cuMemMap(address, piece.bytes, 0, piece.handle, 0)) }?;
        let access = CUmemAccessDesc {
            location: location(context),
            flags: CUmemAccess_flags::PROT_READWRITE,
        };
        // SAFETY: the addresses were mapped just now, and the description is lent.
        let opened =
            unsafe { cu_if_there!(driver, cuMemSetAccess(address, piece.bytes, &access, 1)) };
        if let Err(error) = opened {
            // SAFETY: nobody was let use it.
            let _ = unsafe { cu_if_there!(driver, cuMemUnmap(address, piece.bytes)) };
            return Err(error.into());
        }
        memory.piece = None;
        pieces.insert(place, (at, piece));
        self.view.region().allocation.tell_label(address);
        Ok(())
    }

    /// Waits for the context's streams, then takes the memory away that was mapped at byte `at`.
    ///
    /// # Errors
    /// Nothing that begins there, or views of the range that somebody has: a [`View`], a graph, a capture
    /// ([`Error::Transfer`]); what the driver reports of earlier work, or refuses.
    pub fn unmap(&mut self, at: usize) -> Result<PhysicalMemory, Error> {
        forbid("unmapping memory")?;
        if Arc::get_mut(&mut self.view.region.allocation).is_none() {
            let problem = "somebody has a view of the range; drop views and graphs of it first";
            return Err(Error::Transfer {
                what: "unmapping",
                problem: problem.into(),
            });
        }
        let place = lock(&self.reserved.pieces).binary_search_by_key(&at, |(at, _)| *at);
        let Ok(place) = place else {
            let problem = format!("nothing that was mapped begins at byte {at}");
            return Err(Error::Transfer {
                what: "unmapping",
                problem,
            });
        };
        let context = self.view.context().clone();
        context.synchronize()?;
        let (current, driver, address) = (context.enter()?, context.driver(), self.view.address());
        let mut pieces = lock(&self.reserved.pieces);
        let (_, piece) = pieces[place];
        // SAFETY: nobody has a view, and the work that was given one is done.
        unsafe { cu_if_there!(driver, cuMemUnmap(address + at as u64, piece.bytes)) }?;
        pieces.remove(place);
        drop((pieces, current));
        Ok(PhysicalMemory {
            context,
            piece: Some(piece),
        })
    }

    /// The elements in these bytes of the range.
    ///
    /// # Errors
    /// Bytes that are not mapped ([`Error::Transfer`]); ones that are no whole number of aligned elements
    /// ([`Error::Cast`]).
    pub fn view<T: Element>(&self, bytes: Range<usize>) -> Result<View<T>, Error> {
        let mapped = self.reserved.mapped_from(bytes.start);
        match self.view.get(bytes.clone()).filter(|_| bytes.end <= mapped) {
            Some(view) => view.cast(),
            None => {
                let Range { start, end } = bytes;
                let problem = format!(
                    "bytes {start} to {end} of {}, of which not all are mapped",
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
    /// Room for at most so many elements, and memory for none.
    ///
    /// # Errors
    /// As [`AddressRange::reserve`].
    pub fn reserve(context: &Context, most: usize) -> Result<Self, Error> {
        let range = AddressRange::reserve(context, byte_len::<T>(most))?;
        Ok(Self {
            range,
            len: 0,
            elem: PhantomData,
        })
    }

    /// The same buffer with a name, as [`Buffer::labelled`](crate::Buffer::labelled).
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        Self {
            range: self.range.labelled(label),
            ..self
        }
    }

    /// Elements that it has now.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Elements that it may grow to.
    pub fn capacity(&self) -> usize {
        self.range.bytes() / size_of::<T>().max(1)
    }

    /// The addresses, and what is mapped there.
    pub fn range(&self) -> &AddressRange {
        &self.range
    }

    /// All elements that it has now. The view does not grow.
    ///
    /// # Panics
    /// Never: what it has is mapped.
    pub fn view(&self) -> View<T> {
        let bytes = self
            .range
            .view
            .get(0..byte_len::<T>(self.len))
            .expect("the length is within the range");
        bytes.cast().expect("a range begins with a page")
    }

    /// Has at least so many elements. Those that come in addition are whatever the memory holds.
    ///
    /// # Errors
    /// More than it may grow to ([`Error::Transfer`]), [`Error::OutOfMemory`], or what else the driver refuses; it is as
    /// it was then.
    pub fn grow(&mut self, len: usize) -> Result<(), Error> {
        if len > self.capacity() {
            let problem = format!(
                "{len} elements in {}, which has room for {}",
                self.range.view.region(),
                self.capacity()
            );
            return Err(Error::Transfer {
                what: "growing",
                problem,
            });
        }
        let (bytes, mapped) = (byte_len::<T>(len), self.range.mapped());
        if bytes > mapped {
            let memory = PhysicalMemory::new(self.range.view.context(), bytes - mapped)?;
            self.range.map(mapped, memory)?;
        }
        self.len = self.len.max(len);
        Ok(())
    }

    /// Has so many elements if it has more, and gives back the memory that is not needed, in the pieces in which it
    /// grew. It waits for the context's streams.
    ///
    /// # Errors
    /// As [`AddressRange::unmap`].
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

/// Where memory at this byte comes among the pieces. Refuses a byte that is not within the range, in pages, and free.
fn free_place(
    reserved: &Reserved,
    pieces: &[(usize, Piece)],
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
            "byte {at} is no multiple of {page}, where pages begin"
        ));
    }
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

/// A size in whole pages, at least one; one that no memory has stays one that no memory has.
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
    let (kind, location) = (CUmemAllocationType::PINNED, location(context));
    CUmemAllocationProp {
        r#type: kind,
        location,
        ..CUmemAllocationProp::zeroed()
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        if let Some(piece) = self.piece {
            self.context.release(Release::Physical(piece.handle));
        }
    }
}
