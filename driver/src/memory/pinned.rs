//! Pinned memory of the host.

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::Arc;

use driver_sys::CUmemhostalloc_flags;

use super::transfer::{read_atomic, write_atomic};
use super::{Allocation, Origin, View, byte_len, or_out_of_memory};
use crate::element::{Element, zeroed};
use crate::release::HostPointer;
use crate::{Context, Error};

/// Host memory that the device sees at once, without a copy. It is a [`View`] of all of itself.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
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
    /// `len` elements of all bits zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or what else the driver refuses.
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, Error> {
        crate::regions::forbid("allocating pinned memory")?;
        let bytes = byte_len::<T>(len);
        let (_current, driver) = (context.enter()?, context.driver());
        let flags = CUmemhostalloc_flags::PORTABLE | CUmemhostalloc_flags::DEVICEMAP;
        let pointer = context.with_memory(|| {
            let mut pointer: *mut c_void = std::ptr::null_mut();
            // SAFETY: `pointer` is ours to write.
            unsafe { cu_if_there!(driver, cuMemHostAlloc(&mut pointer, bytes.max(1), flags)) }
                .map(|()| pointer)
        });
        let pointer = pointer.map_err(|e| or_out_of_memory(e, context, bytes))?;
        // SAFETY: the driver gave at least that many bytes, and nobody else has them.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        let host = HostPointer(pointer);
        let mut allocation = Allocation::new(context, 0, bytes, Origin::Pinned);
        allocation.host = Some(host);
        // SAFETY: `address` is ours to write; the pointer came from `cuMemHostAlloc` with DEVICEMAP.
        unsafe {
            cu_if_there!(
                driver,
                cuMemHostGetDevicePointer_v2(&mut allocation.address, pointer, 0)
            )
        }?;
        Ok(Self {
            view: View::of(Arc::new(allocation)),
            host,
        })
    }

    /// The same memory with a name, as [`Buffer::labelled`](crate::Buffer::labelled).
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        self.region().allocation.set_label(label);
        self
    }

    /// All of it.
    pub fn view(&self) -> View<T> {
        self.view.clone()
    }

    /// Element `index` as the host sees it now. A kernel may write it at the same time; each part of up to 8 bytes is
    /// old or new.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn read(&self, index: usize) -> T {
        let at = self.at(index);
        let mut value = zeroed::<T>(1)[0];
        // SAFETY: `at` is an element of this memory, which lives; both have the size of an element.
        unsafe {
            read_atomic(
                at.cast(),
                std::ptr::from_mut(&mut value).cast(),
                size_of::<T>(),
            )
        };
        value
    }

    /// Writes element `index` for the device to see.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn write(&self, index: usize, value: T) {
        // SAFETY: as in `read`.
        unsafe {
            write_atomic(
                self.at(index).cast(),
                std::ptr::from_ref(&value).cast(),
                size_of::<T>(),
            )
        };
    }

    /// Writes elements from `start` on.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn write_slice(&self, start: usize, values: &[T]) {
        values
            .iter()
            .enumerate()
            .for_each(|(i, value)| self.write(start + i, *value));
    }

    /// The elements as a slice of the host.
    ///
    /// # Safety
    /// While the slice lives nobody writes the memory: no work that does is in flight, and no thread calls
    /// [`write`](Self::write).
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: the memory is this one's, aligned by the driver, every pattern of bits is a value, and the caller
        // keeps writers away.
        unsafe { std::slice::from_raw_parts(self.host(), self.len()) }
    }

    /// The elements as a slice of the host, to be written.
    ///
    /// # Safety
    /// While the slice lives nobody else uses the memory: no work that does is in flight.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.host(), self.len()) }
    }

    /// Every element as the host sees it now.
    pub fn to_vec(&self) -> Vec<T> {
        (0..self.len()).map(|index| self.read(index)).collect()
    }

    /// Where the elements lie on the host.
    pub(crate) fn host(&self) -> *mut T {
        self.host.0.cast()
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(
            index < self.len(),
            "element {index} of pinned memory of {}",
            self.len()
        );
        // SAFETY: the index was checked.
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
