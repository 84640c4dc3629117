//! Pinned host memory.

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::Arc;

use driver_sys::CUmemhostalloc_flags;

use crate::device::Context;
use crate::error::Error;
use crate::lifetime::deferred_free::HostPointer;
use crate::memory::allocation::{Allocation, Origin, or_out_of_memory};
use crate::memory::buffer::byte_len;
use crate::memory::element::zeroed;
use crate::memory::transfer::{read_atomic, write_atomic};
use crate::memory::{Element, View};

/// Pinned host memory that the device can access without a copy. It dereferences to a [`View`] of
/// all its elements.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let results = Pinned::<f32>::zeroed(&context, 2)?;
/// stream.fill(&results, 3.0)?;
/// stream.synchronize()?;
/// assert_eq!(results.read(1), 3.0);
/// # Ok(())
/// # }
/// ```
pub struct Pinned<T> {
    view: View<T>,
    host: HostPointer,
}

impl<T: Element> Pinned<T> {
    /// Allocates `len` elements and sets all bits to zero.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if the driver cannot pin as much memory.
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, Error> {
        crate::lifetime::active_captures::forbid("allocating pinned memory")?;
        let bytes = byte_len::<T>(len);
        let _current = context.enter()?;
        let driver = context.driver();
        let flags = CUmemhostalloc_flags::PORTABLE | CUmemhostalloc_flags::DEVICEMAP;
        let pointer = context.with_memory(|| {
            let mut pointer: *mut c_void = std::ptr::null_mut();
            // SAFETY: `pointer` is a local variable that the driver may write.
            unsafe { cu_optional!(driver, cuMemHostAlloc(&mut pointer, bytes.max(1), flags)) }
                .map(|()| pointer)
        });
        let pointer = pointer.map_err(|e| or_out_of_memory(e, context, bytes))?;

        // SAFETY: the driver has just allocated at least this many bytes, and nothing else refers
        // to them.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        let host = HostPointer(pointer);
        let mut allocation = Allocation::new(context, 0, bytes, Origin::Pinned);
        allocation.host = Some(host);

        // The allocation exists before this call. If the call fails, its destructor frees the
        // memory.
        // SAFETY: `allocation.address` is a field that the driver may write. The pointer came from
        // `cuMemHostAlloc` with DEVICEMAP.
        unsafe {
            cu_optional!(
                driver,
                cuMemHostGetDevicePointer_v2(&mut allocation.address, pointer, 0)
            )
        }?;
        Ok(Self {
            view: View::whole(Arc::new(allocation)),
            host,
        })
    }

    /// Returns this memory with a label, like
    /// [`Buffer::labelled`](crate::memory::Buffer::labelled).
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        self.region().allocation.set_label(label);
        self
    }

    /// Returns a view of all elements.
    pub fn view(&self) -> View<T> {
        self.view.clone()
    }

    /// Returns element `index`.
    ///
    /// A kernel may write it at the same time. Each chunk of up to 8 bytes is then either old or
    /// new.
    ///
    /// # Panics
    /// Panics if `index` is out of range.
    pub fn read(&self, index: usize) -> T {
        let at = self.at(index);
        let mut value = zeroed::<T>(1)[0];

        // SAFETY: `at` has checked the index, and both have the size of an element. The device may
        // write at the same time, which the atomic reads allow.
        unsafe {
            read_atomic(
                at.cast(),
                std::ptr::from_mut(&mut value).cast(),
                size_of::<T>(),
            )
        };
        value
    }

    /// Writes element `index`. Kernels may read it at the same time.
    ///
    /// # Panics
    /// Panics if `index` is out of range.
    pub fn write(&self, index: usize, value: T) {
        // SAFETY: `at` has checked the index, and both have the size of an element. The device may
        // read at the same time, which the atomic writes allow.
        unsafe {
            write_atomic(
                self.at(index).cast(),
                std::ptr::from_ref(&value).cast(),
                size_of::<T>(),
            )
        };
    }

    /// Writes elements from index `start` on.
    ///
    /// # Panics
    /// Panics if they exceed the end.
    pub fn write_slice(&self, start: usize, values: &[T]) {
        for (i, value) in values.iter().enumerate() {
            self.write(start + i, *value);
        }
    }

    /// Copies elements from index `start` on to a slice.
    ///
    /// A kernel may write them at the same time. Each chunk of up to 8 bytes is then either old or
    /// new.
    ///
    /// # Panics
    /// Panics if the elements exceed the end.
    pub fn read_slice(&self, start: usize, values: &mut [T]) {
        for (i, value) in values.iter_mut().enumerate() {
            let at = self.at(start + i);

            // SAFETY: `at` has checked the index, and both have the size of an element. The device
            // may write at the same time, which the atomic reads allow.
            unsafe { read_atomic(at.cast(), std::ptr::from_mut(value).cast(), size_of::<T>()) };
        }
    }

    /// Returns the elements as a host slice.
    ///
    /// # Safety
    /// While the slice lives:
    ///
    /// - No work that writes the memory may be queued or running.
    /// - No thread may call [`write`](Self::write).
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: this value owns the memory, which the driver has aligned. Every bit pattern is a
        // valid element. The caller guarantees that nothing writes the memory.
        unsafe { std::slice::from_raw_parts(self.host(), self.len()) }
    }

    /// Returns the elements as a mutable host slice.
    ///
    /// # Safety
    /// While the slice lives, no work that uses the memory may be queued or running.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: this value owns the memory, which the driver has aligned. Every bit pattern is a
        // valid element. The caller guarantees that nothing else uses the memory.
        unsafe { std::slice::from_raw_parts_mut(self.host(), self.len()) }
    }

    /// Returns a copy of all elements.
    pub fn to_vec(&self) -> Vec<T> {
        (0..self.len()).map(|index| self.read(index)).collect()
    }

    /// Returns the host address of the elements.
    pub(crate) fn host(&self) -> *mut T {
        self.host.0.cast()
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(
            index < self.len(),
            "element {index} of pinned memory of {}",
            self.len()
        );
        // SAFETY: the assertion keeps the result within the allocation.
        unsafe { self.host.0.cast::<T>().add(index) }
    }
}

impl<T> std::fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view.fmt(f)
    }
}

impl<T> Deref for Pinned<T> {
    type Target = View<T>;

    fn deref(&self) -> &View<T> {
        &self.view
    }
}
