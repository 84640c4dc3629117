//! Buffers, and views of any memory.
//!
//! A view shares the allocation it refers to. Work that is queued with a view keeps the allocation
//! alive, so a buffer that you drop is freed only after the work that uses it.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::Arc;

use driver_sys::CUdeviceptr;
use ptx_gen::Access;

use crate::device::Context;
use crate::error::Error;
use crate::lifetime::active_captures::forbid;
use crate::lifetime::host_functions::ProgramObject;
use crate::memory::allocation::{Allocation, Origin, or_out_of_memory};
use crate::memory::element::{as_bytes, as_bytes_mut, zeroed};
use crate::memory::region::refuse_graph_memory;
use crate::memory::transfer::{clear, download, upload};
use crate::memory::{Element, Region};

/// A range of elements of an allocation. Clones refer to the same memory and keep it alive.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::from_slice(&context, &[1u32, 2, 3])?;
/// let last = x.view_range(2..3);
/// stream.fill(&last, 7)?;
/// assert_eq!(stream.read(&x)?, [1, 2, 7]);
/// let halves: View<u16> = x.cast()?;
/// assert_eq!((halves.len(), halves.address()), (6, x.address()));
/// drop(x); // the view keeps the memory alive
/// assert_eq!(stream.read(&last)?, [7]);
/// # Ok(())
/// # }
/// ```
pub struct View<T> {
    pub(super) region: Region,
    elem: PhantomData<T>,
}

/// An allocation of device memory. It dereferences to a [`View`] of all its elements.
///
/// Other crates call this type `DeviceBuffer` or `CudaSlice`.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::from_slice(&context, &[1.0, 2.0, 3.0])?.labelled("x"); // errors show the label
/// x.view_range(1..3).write(&[5.0, 6.0])?;
/// assert_eq!(x.to_vec()?, [1.0, 5.0, 6.0]);
/// # Ok(())
/// # }
/// ```
pub struct Buffer<T>(pub(crate) View<T>);

impl<T: Element> Buffer<T> {
    /// Allocates `len` elements without initializing them.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if the device has too little memory, or [`Error::Forbidden`]
    /// if a capture of this thread forbids allocation.
    pub fn uninit(context: &Context, len: usize) -> Result<Self, Error> {
        forbid("allocating memory")?;
        let bytes = byte_len::<T>(len);
        let _current = context.enter()?;
        let address = context.with_memory(|| {
            let mut address = 0;
            // An allocation of 0 bytes is an error of the driver, so an empty buffer has one byte.
            // SAFETY: `address` is a local variable that the driver may write.
            unsafe { cu!(context.driver(), cuMemAlloc_v2(&mut address, bytes.max(1))) }
                .map(|()| address)
        });
        let address = address.map_err(|e| or_out_of_memory(e, context, bytes))?;
        Ok(Self(View::whole(Arc::new(Allocation::new(
            context,
            address,
            bytes,
            Origin::Device,
        )))))
    }

    /// Allocates `len` elements and sets all bits to zero.
    ///
    /// # Errors
    /// Returns the errors of [`uninit`](Self::uninit).
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, Error> {
        let buffer = Self::uninit(context, len)?;
        if len > 0 {
            // SAFETY: the buffer owns this many bytes at the address.
            unsafe { clear(context, buffer.address(), byte_len::<T>(len)) }?;
        }
        Ok(buffer)
    }

    /// Allocates a buffer and copies `from` into it.
    ///
    /// # Errors
    /// Returns the errors of [`uninit`](Self::uninit).
    pub fn from_slice(context: &Context, from: &[T]) -> Result<Self, Error> {
        let buffer = Self::uninit(context, from.len())?;
        buffer.put(from)?;
        Ok(buffer)
    }

    /// Wraps `len` elements at `address` that were allocated elsewhere, for example by another
    /// crate in the same process.
    ///
    /// The memory is not freed. `owner` is dropped when no work can use the memory any more.
    ///
    /// # Safety
    /// - The memory must be device memory of the context with at least `len` elements, aligned for
    ///   them, until `owner` is dropped.
    /// - Other code that uses the memory must be ordered with the work of this crate.
    pub unsafe fn from_raw(
        context: &Context,
        address: CUdeviceptr,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Self {
        let origin = Origin::Borrowed(ProgramObject::new(owner));
        Self(View::whole(Arc::new(Allocation::new(
            context,
            address,
            byte_len::<T>(len),
            origin,
        ))))
    }

    /// Returns this buffer with a label, which error messages, graph plots and the emulator's
    /// faults show.
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        self.region().allocation.set_label(label);
        self
    }

    /// Returns a view of the whole buffer.
    pub fn view(&self) -> View<T> {
        self.0.clone()
    }
}

impl<T> View<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.region.bytes / size_of::<T>().max(1)
    }

    /// Returns true if the view has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the device address.
    pub fn address(&self) -> CUdeviceptr {
        self.region.address()
    }

    /// Returns the context of the memory.
    pub fn context(&self) -> &Context {
        &self.region.allocation.context
    }

    /// Returns the bytes of the view without the element type in its Rust type.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns a view of a range of elements.
    ///
    /// # Panics
    /// Panics if the range is not within the view, like indexing a slice.
    pub fn view_range(&self, range: Range<usize>) -> Self {
        let Range { start, end } = range;
        self.get(range).unwrap_or_else(|| {
            panic!(
                "elements {start}..{end} of {}, which has {}",
                self.region,
                self.len()
            )
        })
    }

    /// Returns a view of a range of elements, or `None` if the range is not within the view.
    pub fn get(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }

        let start = self.region.start + range.start * size_of::<T>();
        let bytes = range.len() * size_of::<T>();
        Some(Self {
            region: Region {
                start,
                bytes,
                ..self.region.clone()
            },
            elem: PhantomData,
        })
    }

    pub(crate) fn expect_len(&self, what: &'static str, got: usize) -> Result<(), Error> {
        if got == self.len() {
            Ok(())
        } else {
            Err(wrong_len(what, got, &self.region, self.len()))
        }
    }
}

#[cold]
fn wrong_len(what: &'static str, got: usize, region: &Region, len: usize) -> Error {
    Error::Transfer {
        what,
        problem: format!("{got} elements for {region}, which has {len}"),
    }
}

impl<T: Element> View<T> {
    /// Returns a view of memory that a node of a graph allocates.
    pub(crate) fn from_graph(
        context: &Context,
        address: CUdeviceptr,
        len: usize,
        graph: u64,
        node: usize,
    ) -> Self {
        let origin = Origin::Graph(graph, node);
        Self::whole(Arc::new(Allocation::new(
            context,
            address,
            byte_len::<T>(len),
            origin,
        )))
    }

    pub(crate) fn whole(allocation: Arc<Allocation>) -> Self {
        let bytes = allocation.bytes;
        Self {
            region: Region {
                allocation,
                start: 0,
                bytes,
                elem: &T::TYPE,
            },
            elem: PhantomData,
        }
    }

    /// Returns a view of the same bytes as elements of another type.
    ///
    /// # Errors
    /// Returns [`Error::Cast`] if the size is not a multiple of the new element size, or if the
    /// address is not aligned for it.
    pub fn cast<U: Element>(&self) -> Result<View<U>, Error> {
        let size = size_of::<U>().max(1);
        if !self.region.bytes.is_multiple_of(size)
            || !self.address().is_multiple_of(U::TYPE.align() as u64)
        {
            let what = self.region.to_string();
            let bytes = self.region.bytes;
            return Err(Error::Cast {
                what,
                bytes,
                address: self.address(),
                to: U::TYPE.name(),
            });
        }
        Ok(View {
            region: Region {
                elem: &U::TYPE,
                ..self.region.clone()
            },
            elem: PhantomData,
        })
    }

    /// Waits for all streams of the context, then copies the elements to the host.
    ///
    /// [`Stream::read`](crate::stream::Stream::read) waits for one stream only. During the copy,
    /// work of other threads that would write the elements returns [`Error::HostCopy`].
    ///
    /// # Errors
    /// Returns an error if the copy fails or earlier work has faulted.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        refuse_graph_memory(&self.region, "reading")?;

        // Registered before the wait. Work that other threads queue after the wait would otherwise
        // run during the copy.
        let _copy = self
            .context()
            .order()
            .host_copies(&self.region, Access::Read);
        self.context().synchronize()?;
        let mut to = zeroed::<T>(self.len());
        if !as_bytes(&to).is_empty() {
            // SAFETY: the view keeps this many bytes at the address alive.
            unsafe { download(self.context(), as_bytes_mut(&mut to), self.address()) }?;
        }

        Ok(to)
    }

    /// Waits for all streams of the context, then copies the elements from the host.
    ///
    /// [`Stream::write`](crate::stream::Stream::write) waits for one stream only. During the copy,
    /// work of other threads that would use the elements returns [`Error::HostCopy`].
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the lengths differ, or an error if the copy fails.
    pub fn write(&self, from: &[T]) -> Result<(), Error> {
        refuse_graph_memory(&self.region, "writing")?;
        // Registered before the wait, as in `to_vec`.
        let _copy = self
            .context()
            .order()
            .host_copies(&self.region, Access::Write);
        self.context().synchronize()?;
        self.put(from)
    }

    fn put(&self, from: &[T]) -> Result<(), Error> {
        self.expect_len("write", from.len())?;
        if as_bytes(from).is_empty() {
            return Ok(());
        }
        // SAFETY: the view keeps the memory alive, and the lengths are equal.
        unsafe { upload(self.context(), self.address(), as_bytes(from)) }
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self {
            region: self.region.clone(),
            elem: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.region, f)
    }
}

impl<T> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.region, f)
    }
}

impl<T> Deref for Buffer<T> {
    type Target = View<T>;

    fn deref(&self) -> &View<T> {
        &self.0
    }
}

/// Returns the size of `len` elements in bytes. On overflow it returns the largest number, for
/// which every allocation fails.
pub(crate) fn byte_len<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}
