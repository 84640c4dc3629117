//! Two devices: whether one reaches the memory of the other, and copies between them.

use ptx_gen::Access;

use crate::element::Element;
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
        let _copy = from.context().order().host_copies(from.region(), Access::Read);
        from.context().synchronize()?;
        let (theirs, ours, raw) = (from.context().raw(), self.context().raw(), self.raw());
        let (source, target, bytes) = (from.address(), to.address(), to.region().bytes());
        self.transfer("a copy from another device", to.region(), Access::Write, |driver| {
            // SAFETY: both regions are alive and of that size, each in its context, until the wait is over.
            unsafe { cu_if_there!(driver, cuMemcpyPeerAsync(target, ours, source, theirs, bytes, raw)) }
        })
    }
}
