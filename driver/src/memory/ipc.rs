//! Memory shared between processes.

use std::ffi::c_char;
use std::sync::Arc;

use driver_sys::{CUipcMem_flags, CUipcMemHandle};

use crate::device::Context;
use crate::error::Error;
use crate::lifetime::active_captures::forbid;
use crate::memory::allocation::{Allocation, Origin};
use crate::memory::buffer::byte_len;
use crate::memory::{Buffer, Element, View};

/// A handle with which another process opens device memory.
///
/// It consists of 64 bytes that you send to the other process, for example through a pipe.
///
/// ```no_run
/// # use warpwright_driver::memory::MemoryHandle;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # fn receive<const N: usize>() -> [u8; N] { [0; N] }
/// # fn send<const N: usize>(bytes: &[u8; N]) {}
/// let buffer = Buffer::<f32>::zeroed(&context, 1000)?;
/// // SAFETY: the other process only reads, and this one drops the buffer after it has ended.
/// let handle: MemoryHandle = unsafe { buffer.export() }?;
/// send(&handle.bytes);
///
/// // In the other process:
/// let handle = MemoryHandle { bytes: receive() };
/// // SAFETY: the handle was exported by the other process, which keeps the memory.
/// let buffer = unsafe { Buffer::<f32>::open(&context, &handle, 1000) }?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryHandle {
    /// The bytes of the handle, as the driver wrote them.
    pub bytes: [u8; 64],
}

impl<T: Element> Buffer<T> {
    /// Returns a handle with which another process on the same machine can [open](Self::open) the
    /// memory.
    ///
    /// ```no_run
    /// # use warpwright_driver::memory::MemoryHandle;
    /// # use warpwright_driver::ordering::EventHandle;
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::load()?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// # fn send<const N: usize>(bytes: &[u8; N]) {}
    /// # fn receive<const N: usize>() -> [u8; N] { [0; N] }
    /// // In this process: memory, and an event after the work that fills it.
    /// let buffer = Buffer::<f32>::zeroed(&context, 1000)?;
    /// let filled = Event::shared(&context)?;
    /// stream.fill(&buffer, 1.0)?;
    /// filled.record(&stream)?;
    /// // SAFETY: the other process only reads, and this one drops the buffer after it has ended.
    /// send(&unsafe { buffer.export() }?.bytes);
    /// send(&filled.export()?.bytes);
    ///
    /// // In the other process:
    /// // SAFETY: the handles were exported by the other process, which keeps both.
    /// let (buffer, filled) = unsafe {
    ///     let buffer = Buffer::<f32>::open(&context, &MemoryHandle { bytes: receive() }, 1000)?;
    ///     (buffer, Event::open(&context, &EventHandle { bytes: receive() })?)
    /// };
    /// stream.wait(&filled)?;
    /// assert_eq!(stream.read(&buffer)?, [1.0; 1000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the memory comes from a pool or an address range, or an error
    /// if the device or the system does not support sharing.
    ///
    /// # Safety
    /// - This buffer must not be dropped while another process has the memory open.
    /// - Accesses of the other process must be ordered with the work of this one.
    /// - The other process must leave contents that the kernels of this one can rely on.
    pub unsafe fn export(&self) -> Result<MemoryHandle, Error> {
        let what = "exporting memory";
        let region = self.region();
        if !matches!(
            region.allocation.origin,
            Origin::Device | Origin::Borrowed(_)
        ) {
            let problem =
                format!("{region} was not allocated by Buffer::uninit, zeroed or from_slice");
            return Err(Error::Transfer { what, problem });
        }

        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let mut handle = CUipcMemHandle { reserved: [0; 64] };

        // SAFETY: `handle` is a local variable that the driver may write. `self` keeps the memory
        // alive.
        unsafe { cu_optional!(driver, cuIpcGetMemHandle(&mut handle, self.address())) }?;
        Ok(MemoryHandle {
            bytes: handle.reserved.map(|byte| byte as u8),
        })
    }

    /// Opens memory of another process and returns its first `len` elements.
    ///
    /// The memory is closed when this buffer and its views are gone.
    ///
    /// # Errors
    /// - [`Error::Transfer`] if the memory has fewer elements, as far as the driver reports its
    ///   size.
    /// - [`Error::Driver`] if the handle comes from this process, or from a device that this one
    ///   cannot access.
    ///
    /// # Safety
    /// - The handle must come from [`export`](Self::export) in the other process, for elements of
    ///   this type.
    /// - The other process must keep the memory until this buffer and its views are dropped and
    ///   their work is complete.
    /// - The handle must be opened only once.
    /// - Accesses of both processes must be ordered.
    pub unsafe fn open(
        context: &Context,
        handle: &MemoryHandle,
        len: usize,
    ) -> Result<Self, Error> {
        forbid("opening memory of another process")?;
        let _current = context.enter()?;
        let driver = context.driver();
        let mut address = 0;
        let handle = CUipcMemHandle {
            reserved: handle.bytes.map(|byte| byte as c_char),
        };
        let flags = CUipcMem_flags::LAZY_ENABLE_PEER_ACCESS;

        // SAFETY: `address` is a local variable that the driver may write. The caller guarantees
        // that the handle comes from `export`.
        unsafe { cu_optional!(driver, cuIpcOpenMemHandle_v2(&mut address, handle, flags)) }?;
        let bytes = byte_len::<T>(len);
        let opened = Self(View::whole(Arc::new(Allocation::new(
            context,
            address,
            bytes,
            Origin::Opened,
        ))));
        let mut base = 0;
        let mut all = 0;
        if driver.api().cuMemGetAddressRange_v2.is_some() {
            // SAFETY: both numbers are local variables that the driver may write.
            unsafe {
                cu_optional!(
                    driver,
                    cuMemGetAddressRange_v2(&mut base, &mut all, address)
                )
            }?;
            let there = all.saturating_sub(address.saturating_sub(base) as usize);
            if bytes > there {
                let problem =
                    format!("{len} elements are {bytes} bytes, and the memory has {there}");
                return Err(Error::Transfer {
                    what: "opening memory",
                    problem,
                });
            }
        }

        Ok(opened)
    }
}
