//! Host memory that the device can access: registered and managed memory.

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::Arc;

use driver_sys::{CUmemAttach_flags, CUmemhostregister_flags};
use ptx_gen::Access;

use crate::device::Context;
use crate::error::Error;
use crate::lifetime::deferred_free::HostPointer;
use crate::lifetime::host_functions::ProgramObject;
use crate::memory::allocation::{Allocation, Origin, or_out_of_memory};
use crate::memory::buffer::byte_len;
use crate::memory::element::zeroed;
use crate::memory::transfer::{read_atomic, write_atomic};
use crate::memory::{Element, View};

/// A vector of the program that is pinned in place, so that the device can access it. It
/// dereferences to a [`View`] of all its elements.
///
/// It takes ownership of the vector. [`to_host`](Self::to_host) returns a copy of it.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let table = Registered::new(&context, vec![1.0f32; 1000])?;
/// stream.fill(&table, 2.0)?;
/// stream.synchronize()?;
/// assert_eq!(table.to_host(), [2.0; 1000]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Registered<T> {
    view: View<T>,
    host: HostPointer,
}

impl<T: Element> Registered<T> {
    /// Pins the memory of a vector, which may take longer than copying it. An empty vector is not
    /// pinned.
    ///
    /// # Errors
    /// Returns an error if the memory is already registered, or if the device does not support host
    /// registration.
    pub fn new(context: &Context, memory: Vec<T>) -> Result<Self, Error> {
        crate::lifetime::active_captures::forbid("registering memory")?;
        let mut memory = memory;
        let driver = context.driver();
        let pointer: *mut c_void = memory.as_mut_ptr().cast();
        let bytes = byte_len::<T>(memory.len());
        if bytes == 0 {
            // The driver returns an error for empty memory.
            let allocation =
                Allocation::new(context, 0, 0, Origin::Borrowed(ProgramObject::new(memory)));
            return Ok(Self {
                view: View::whole(Arc::new(allocation)),
                host: HostPointer(pointer),
            });
        }

        let flags = CUmemhostregister_flags::PORTABLE | CUmemhostregister_flags::DEVICEMAP;
        let _current = context.enter()?;

        // SAFETY: the memory belongs to the vector, which the allocation below owns until the
        // memory is unregistered.
        unsafe { cu_optional!(driver, cuMemHostRegister_v2(pointer, bytes, flags)) }?;
        let host = HostPointer(pointer);
        let mut allocation = Allocation::new(
            context,
            0,
            bytes,
            Origin::Registered(ProgramObject::new(memory)),
        );
        allocation.host = Some(host);

        // The allocation exists before this call. If the call fails, its destructor unregisters the
        // memory.
        // SAFETY: `allocation.address` is a field that the driver may write. The pointer was
        // registered with DEVICEMAP.
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

    /// Returns a copy of all elements.
    ///
    /// Work that runs at the same time may write them. Each chunk of up to 8 bytes is then either
    /// old or new.
    pub fn to_host(&self) -> Vec<T> {
        let mut to = zeroed::<T>(self.len());
        // SAFETY: both have this many bytes. The device may write the registered memory at the same
        // time, which the atomic reads allow.
        unsafe {
            read_atomic(
                self.host.0.cast(),
                to.as_mut_ptr().cast(),
                byte_len::<T>(self.len()),
            )
        };
        to
    }
}

/// Memory that the host and the device access under one address. The driver migrates it between
/// them. It dereferences to a [`View`] of all its elements.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let counts = Managed::<u32>::zeroed(&context, 4)?;
/// counts.write_at(2, 5)?;
/// stream.fill(&counts.view_range(0..1), 1)?;
/// assert_eq!((counts.read(0)?, counts.read(2)?), (1, 5));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Managed<T> {
    view: View<T>,
}

impl<T: Element> Managed<T> {
    /// Allocates `len` elements and sets all bits to zero.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if there is too little memory, or an error if the device does
    /// not support managed memory.
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, Error> {
        crate::lifetime::active_captures::forbid("allocating managed memory")?;
        let bytes = byte_len::<T>(len);
        let driver = context.driver();
        let _current = context.enter()?;
        let address = context.with_memory(|| {
            let mut address = 0;
            let flags = CUmemAttach_flags::GLOBAL;
            // SAFETY: `address` is a local variable that the driver may write.
            unsafe { cu_optional!(driver, cuMemAllocManaged(&mut address, bytes.max(1), flags)) }
                .map(|()| address)
        });
        let address = address.map_err(|e| or_out_of_memory(e, context, bytes))?;
        let pointer: *mut c_void = std::ptr::with_exposed_provenance_mut(address as usize);

        // SAFETY: the allocation is new. The host may access managed memory until work uses it.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        let mut allocation = Allocation::new(context, address, bytes, Origin::Device);
        allocation.host = Some(HostPointer(pointer));
        Ok(Self {
            view: View::whole(Arc::new(allocation)),
        })
    }

    /// Waits for all streams of the context, then returns element `index`.
    ///
    /// The wait is needed because some devices do not allow the host to access managed memory while
    /// work is running.
    ///
    /// # Errors
    /// Returns an error if earlier work has failed.
    ///
    /// # Panics
    /// Panics if `index` is out of range.
    pub fn read(&self, index: usize) -> Result<T, Error> {
        let _copy = self
            .context()
            .order()
            .host_copies(self.region(), Access::Read);
        self.context().synchronize()?;
        let at = self.at(index);
        let mut value = zeroed::<T>(1)[0];

        // SAFETY: `at` has checked the index, and both have the size of an element. The wait and
        // `_copy` keep work of the device away.
        unsafe { read_atomic(at, std::ptr::from_mut(&mut value).cast(), size_of::<T>()) };
        Ok(value)
    }

    /// Waits for all streams of the context, then writes element `index`.
    ///
    /// # Errors
    /// Returns an error if earlier work has failed.
    ///
    /// # Panics
    /// Panics if `index` is out of range.
    pub fn write_at(&self, index: usize, value: T) -> Result<(), Error> {
        let _copy = self
            .context()
            .order()
            .host_copies(self.region(), Access::Write);
        self.context().synchronize()?;

        // SAFETY: `at` has checked the index, and both have the size of an element. The wait and
        // `_copy` keep work of the device away.
        unsafe {
            write_atomic(
                self.at(index),
                std::ptr::from_ref(&value).cast(),
                size_of::<T>(),
            )
        };
        Ok(())
    }

    fn at(&self, index: usize) -> *mut u8 {
        assert!(
            index < self.len(),
            "element {index} of managed memory of {}",
            self.len()
        );
        let start: *mut c_void =
            std::ptr::with_exposed_provenance_mut(self.view.address() as usize);
        start.cast::<u8>().wrapping_add(index * size_of::<T>())
    }
}

impl<T> Deref for Registered<T> {
    type Target = View<T>;

    fn deref(&self) -> &View<T> {
        &self.view
    }
}

impl<T> Deref for Managed<T> {
    type Target = View<T>;

    fn deref(&self) -> &View<T> {
        &self.view
    }
}
