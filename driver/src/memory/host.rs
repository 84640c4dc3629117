//! Memory of the host that the device reaches: registered, and managed.

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::Arc;

use driver_sys::{CUmemAttach_flags, CUmemhostregister_flags};
use ptx_gen::Access;

use super::transfer::{read_atomic, write_atomic};
use super::{Allocation, Origin, View, byte_len, or_out_of_memory};
use crate::callback::ProgramObject;
use crate::element::{Element, zeroed};
use crate::release::HostPointer;
use crate::{Context, Error};

/// Memory that the program has anyway, pinned where it is and seen by the device. It is a [`View`] of all of itself.
///
/// It takes the memory over; [`to_host`](Self::to_host) copies it.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
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
    /// Pins the memory of a vector, which may take longer than copying it. Of an empty one there is nothing to pin.
    ///
    /// # Errors
    /// What the driver refuses: memory that is registered already, or a device that does not support it.
    pub fn new(context: &Context, memory: Vec<T>) -> Result<Self, Error> {
        crate::regions::forbid("registering memory")?;
        let (mut memory, driver) = (memory, context.driver());
        let (pointer, bytes): (*mut c_void, _) =
            (memory.as_mut_ptr().cast(), byte_len::<T>(memory.len()));
        if bytes == 0 {
            // The driver registers no empty memory.
            let allocation =
                Allocation::new(context, 0, 0, Origin::Borrowed(ProgramObject::new(memory)));
            return Ok(Self {
                view: View::of(Arc::new(allocation)),
                host: HostPointer(pointer),
            });
        }
        let flags = CUmemhostregister_flags::PORTABLE | CUmemhostregister_flags::DEVICEMAP;
        let _current = context.enter()?;
        // SAFETY: the memory is the vector's, which the allocation keeps until it is unregistered.
        unsafe { cu_if_there!(driver, cuMemHostRegister_v2(pointer, bytes, flags)) }?;
        let host = HostPointer(pointer);
        let mut allocation = Allocation::new(
            context,
            0,
            bytes,
            Origin::Registered(ProgramObject::new(memory)),
        );
        allocation.host = Some(host);
        // SAFETY: `address` is ours to write; the pointer was registered with DEVICEMAP.
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

    /// Every element as the host sees it now.
    pub fn to_host(&self) -> Vec<T> {
        let mut to = zeroed::<T>(self.len());
        // SAFETY: both have that many bytes; the device may write the one at the same time.
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

/// Memory that the host and the device both use under one address, which the driver moves between them. It is a
/// [`View`] of all of itself.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
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
    /// `len` elements of all bits zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or what else the driver refuses.
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, Error> {
        crate::regions::forbid("allocating managed memory")?;
        let (bytes, driver) = (byte_len::<T>(len), context.driver());
        let _current = context.enter()?;
        let address = context.with_memory(|| {
            let (mut address, flags) = (0, CUmemAttach_flags::GLOBAL);
            // SAFETY: `address` is ours to write.
            unsafe { cu_if_there!(driver, cuMemAllocManaged(&mut address, bytes.max(1), flags)) }
                .map(|()| address)
        });
        let address = address.map_err(|e| or_out_of_memory(e, context, bytes))?;
        let pointer: *mut c_void = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: managed memory is the host's until work uses it, and nobody else has it yet.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        let mut allocation = Allocation::new(context, address, bytes, Origin::Device);
        allocation.host = Some(HostPointer(pointer));
        Ok(Self {
            view: View::of(Arc::new(allocation)),
        })
    }

    /// Waits for the context's streams, then reads element `index`. While work is in flight the host may not touch
    /// managed memory on every device; hence the wait.
    ///
    /// # Errors
    /// What the driver reports of earlier work.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn read(&self, index: usize) -> Result<T, Error> {
        let _copy = self
            .context()
            .order()
            .host_copies(self.region(), Access::Read);
        self.context().synchronize()?;
        let (at, mut value) = (self.at(index), zeroed::<T>(1)[0]);
        // SAFETY: `at` is an element of this memory; both have the size of an element.
        unsafe { read_atomic(at, std::ptr::from_mut(&mut value).cast(), size_of::<T>()) };
        Ok(value)
    }

    /// Waits for the context's streams, then writes element `index`.
    ///
    /// # Errors
    /// What the driver reports of earlier work.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn write_at(&self, index: usize, value: T) -> Result<(), Error> {
        let _copy = self
            .context()
            .order()
            .host_copies(self.region(), Access::Write);
        self.context().synchronize()?;
        // SAFETY: as in `read`.
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
