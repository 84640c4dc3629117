//! Two devices: whether one reaches the memory of the other, and copies between them.

use driver_sys::CUDA_MEMCPY3D_PEER;
use ptx_gen::Access;

use crate::boxes::{Boxed, box_copy};
use crate::element::Element;
use crate::memory::refuse_memory;
use crate::queue::{Copy, memcpy_params};
use crate::{Context, Device, Error, Stream, View};

impl Device {
    /// Whether kernels of this device can be let read and write the other's memory.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn can_reach(&self, other: &Self) -> Result<bool, Error> {
        let mut can = 0;
        // SAFETY: `can` is ours to write.
        unsafe { cu_if_there!(self.driver(), cuDeviceCanAccessPeer(&mut can, self.raw(), other.raw())) }?;
        Ok(can != 0)
    }
}

impl Context {
    /// Lets kernels of this context read and write the other's memory, and copies go straight from device to device.
    /// It may be said more than once.
    ///
    /// # Errors
    /// What the driver refuses: devices that do not reach each other ([`Device::can_reach`]).
    pub fn reach(&self, other: &Self) -> Result<(), Error> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: both contexts are alive.
        match unsafe { cu_if_there!(driver, cuCtxEnablePeerAccess(other.raw(), 0)) } {
            Err(error) if error.code == driver_sys::CUresult::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            other => Ok(other?),
        }
    }
}

impl Stream {
    /// Copies elements from another device, in the order of this stream. What the other device's streams do with them
    /// must be done: this waits for them on the host.
    ///
    /// # Errors
    /// Views of different length, a destination of another context than the stream's, [`Error::Capturing`], or what
    /// the driver refuses.
    pub fn copy_from_peer<T: Element>(&self, from: &View<T>, to: &View<T>) -> Result<(), Error> {
        to.expect_len("copy", from.len())?;
        to.region().expect_in(self.context(), "a stream")?;
        refuse_memory(from.region(), "a copy from another device")?;
        let _copy = from.context().order().host_copies(from.region(), Access::Read);
        from.context().synchronize()?;
        let (theirs, ours, raw) = (from.context().raw(), self.context().raw(), self.raw());
        let (source, target, bytes) = (from.address(), to.address(), to.region().bytes());
        self.transfer("a copy from another device", to.region(), Access::Write, |driver| {
            // SAFETY: both regions are alive and of that size, each in its context, until the wait is over.
            unsafe { cu_if_there!(driver, cuMemcpyPeerAsync(target, ours, source, theirs, bytes, raw)) }
        })
    }

    /// Copies a box of elements from another device, so many columns, rows and slices, in the order of this stream. As
    /// with [`copy_from_peer`](Self::copy_from_peer), this waits on the host for what the other device's streams do.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let config = warpwright_cuda_emu::EmulatorConfig { devices: 2, ..Default::default() };
    /// # warpwright_cuda_emu::configure(config);
    /// # let driver = Driver::of(warpwright_cuda_emu::library())?;
    /// let (here, there) = (Context::new(&driver.device(0)?)?, Context::new(&driver.device(1)?)?);
    /// let stream = Stream::new(&here)?;
    /// // The middle two columns of the other device's matrix of three rows of four.
    /// let matrix = Buffer::from_slice(&there, &[0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23])?;
    /// let columns = Buffer::<i32>::zeroed(&here, 6)?;
    /// let from = Boxed::rows(&matrix, 4).at([1, 0, 0]);
    /// stream.copy_box_from_peer(from, Boxed::rows(&columns, 2), [2, 3, 1])?;
    /// assert_eq!(stream.read(&columns)?, [1, 2, 11, 12, 21, 22]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A box that reaches beyond its view, its rows or its slices; boxes that overlap; a destination of another context
    /// than the stream's; [`Error::Capturing`]; or what the driver refuses.
    pub fn copy_box_from_peer<T: Element>(
        &self,
        from: Boxed<'_, T>,
        to: Boxed<'_, T>,
        extent: [usize; 3],
    ) -> Result<(), Error> {
        let copy = box_copy(from, to, extent)?;
        copy.to().expect_in(self.context(), "a stream")?;
        refuse_memory(copy.from(), "a copy from another device")?;
        let theirs = copy.from().context();
        let _copy = theirs.order().host_copies(copy.from(), Access::Read);
        theirs.synchronize()?;
        let params = peer_params(&copy);
        self.transfer("a copy of a box from another device", copy.to(), Access::Write, |driver| {
            // SAFETY: both boxes are alive and within their regions, each in its context, until the wait is over.
            unsafe { cu_if_there!(driver, cuMemcpy3DPeerAsync(&params, self.raw())) }
        })
    }
}

/// A copy of a box, as the driver wants it between two contexts.
fn peer_params(copy: &Copy) -> CUDA_MEMCPY3D_PEER {
    let p = memcpy_params(copy);
    CUDA_MEMCPY3D_PEER {
        srcMemoryType: p.srcMemoryType,
        srcHost: p.srcHost,
        srcDevice: p.srcDevice,
        srcContext: copy.from().context().raw(),
        srcPitch: p.srcPitch,
        srcHeight: p.srcHeight,
        dstMemoryType: p.dstMemoryType,
        dstHost: p.dstHost,
        dstDevice: p.dstDevice,
        dstContext: copy.to().context().raw(),
        dstPitch: p.dstPitch,
        dstHeight: p.dstHeight,
        WidthInBytes: p.WidthInBytes,
        Height: p.Height,
        Depth: p.Depth,
        ..CUDA_MEMCPY3D_PEER::zeroed()
    }
}
