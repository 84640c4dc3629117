//! Memory that two processes use.

use std::ffi::c_char;
use std::sync::Arc;

use driver_sys::{CUipcMem_flags, CUipcMemHandle};

use super::{Allocation, Buffer, Origin, View, byte_len};
use crate::element::Element;
use crate::regions::forbid;
use crate::{Context, Error};

/// What another process opens memory by: 64 bytes, to be sent there by whatever way the two have.
///
/// ```no_run
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # fn receive<const N: usize>() -> [u8; N] { [0; N] }
/// # fn send<const N: usize>(bytes: &[u8; N]) {}
/// let buffer = Buffer::<f32>::zeroed(&context, 1000)?;
/// // SAFETY: the other process only reads, and this one waits for its end before it drops the buffer.
/// let handle: MemoryHandle = unsafe { buffer.export() }?;
/// send(&handle.bytes);
///
/// // There, in another process.
/// let handle = MemoryHandle { bytes: receive() };
/// // SAFETY: the handle is the one that was sent, and the other process keeps the memory.
/// let buffer = unsafe { Buffer::<f32>::open(&context, &handle, 1000) }?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryHandle {
    /// What the driver wrote.
    pub bytes: [u8; 64],
}

impl<T: Element> Buffer<T> {
    /// A handle by which another process opens the memory, with [`open`](Self::open): on the same machine, and not in
    /// this process.
    ///
    /// ```no_run
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::load()?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// # fn send<const N: usize>(bytes: &[u8; N]) {}
    /// # fn receive<const N: usize>() -> [u8; N] { [0; N] }
    /// // Here: memory, and an event after the work that fills it.
    /// let (buffer, filled) = (Buffer::<f32>::zeroed(&context, 1000)?, Event::shared(&context)?);
    /// stream.fill(&buffer, 1.0)?;
    /// filled.record(&stream)?;
    /// // SAFETY: the other process only reads, and this one waits for its end before it drops the buffer.
    /// send(&unsafe { buffer.export() }?.bytes);
    /// send(&filled.export()?.bytes);
    ///
    /// // There, in another process.
    /// // SAFETY: the handles are those that were sent, and the other process keeps both.
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
    /// Memory of a pool or of a range of addresses; or what the driver refuses: not every device and system can.
    ///
    /// # Safety
    /// While another process has the memory open, this buffer is not dropped. What the other process does to it is ordered
    /// with this one's work, which finds there what its kernels rely on.
    pub unsafe fn export(&self) -> Result<MemoryHandle, Error> {
        let (what, region) = ("exporting memory", self.region());
        if !matches!(
            region.allocation.origin,
            Origin::Device | Origin::Borrowed(_)
        ) {
            let problem =
                format!("{region} is not memory that Buffer::uninit or its like allocated");
            return Err(Error::Transfer { what, problem });
        }
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: `handle` is ours to write, and the memory is alive.
        unsafe { cu_if_there!(driver, cuIpcGetMemHandle(&mut handle, self.address())) }?;
        Ok(MemoryHandle {
            bytes: handle.reserved.map(|byte| byte as u8),
        })
    }

    /// Memory of another process: `len` elements from its beginning on. It is closed when this and its views are gone.
    ///
    /// # Errors
    /// More elements than the memory has, where the driver tells; or what the driver refuses: a handle of this same
    /// process, or of a device that this one does not reach.
    ///
    /// # Safety
    /// The handle is what [`export`](Self::export) gave the other process, of elements of this type, and that process
    /// keeps the memory until this and its views are dropped and their work is done. It is opened once. What both do to it
    /// is ordered.
    pub unsafe fn open(
        context: &Context,
        handle: &MemoryHandle,
        len: usize,
    ) -> Result<Self, Error> {
        forbid("opening memory of another process")?;
        let (_current, driver, mut address) = (context.enter()?, context.driver(), 0);
        let handle = CUipcMemHandle {
            reserved: handle.bytes.map(|byte| byte as c_char),
        };
        let flags = CUipcMem_flags::LAZY_ENABLE_PEER_ACCESS;
        // SAFETY: `address` is ours to write; the caller vouches for the handle.
        unsafe { cu_if_there!(driver, cuIpcOpenMemHandle_v2(&mut address, handle, flags)) }?;
        let bytes = byte_len::<T>(len);
        let opened = Self(View::of(Arc::new(Allocation::new(
            context,
            address,
            bytes,
            Origin::Opened,
        ))));
        let (mut base, mut all) = (0, 0);
        if driver.api().cuMemGetAddressRange_v2.is_some() {
            // SAFETY: both numbers are ours to write.
            unsafe {
                cu_if_there!(
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
