//! Copies between two devices.

use driver_sys::CUDA_MEMCPY3D_PEER;
use ptx_gen::Access;

use crate::device::context::expect_same_driver;
use crate::error::Error;
use crate::memory::region::refuse_graph_memory;
use crate::memory::{Boxed, Element, Region, View};
use crate::stream::boxes::box_copy;
use crate::stream::queue::memcpy_params;
use crate::stream::{MemoryCopy, Stream};

impl Stream {
    /// Copies elements from another device in the order of this stream and waits.
    ///
    /// The call first waits on the host for all streams of the other device's context, because an
    /// order between streams of two contexts is not tracked.
    ///
    /// # Errors
    /// - [`Error::Transfer`] if the views differ in length.
    /// - [`Error::WrongContext`] if `to` belongs to another context than the stream, or if `from`
    ///   belongs to another driver.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if the copy fails.
    pub fn copy_from_peer<T: Element>(&self, from: &View<T>, to: &View<T>) -> Result<(), Error> {
        to.expect_len("copy", from.len())?;
        to.region().expect_in(self.context(), "a stream")?;
        self.expect_driver_of(from.region())?;
        refuse_graph_memory(from.region(), "a copy from another device")?;

        // For the other context this is a host copy: it is registered there before the wait, so
        // that work queued later and in conflict with it is refused.
        let _copy = from
            .context()
            .order()
            .host_copies(from.region(), Access::Read);
        from.context().synchronize()?;
        let theirs = from.context().raw();
        let ours = self.context().raw();
        let raw = self.raw();
        let source = from.address();
        let target = to.address();
        let bytes = to.region().bytes();
        self.transfer(
            "a copy from another device",
            to.region(),
            Access::Write,
            |driver| {
                // SAFETY: the views keep both regions alive, each in its context, and the sizes are
                // equal. `transfer` waits for the copy.
                unsafe {
                    cu_optional!(
                        driver,
                        cuMemcpyPeerAsync(target, ours, source, theirs, bytes, raw)
                    )
                }
            },
        )
    }

    /// Copies a box of `extent` columns, rows and slices from another device in the order of this
    /// stream and waits.
    ///
    /// The call first waits on the host for all streams of the other device's context.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let config = warpwright_cuda_emu::EmulatorConfig { devices: 2, ..Default::default() };
    /// # warpwright_cuda_emu::configure(config);
    /// # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
    /// let here = Context::new(&driver.device(0)?)?;
    /// let there = Context::new(&driver.device(1)?)?;
    /// let stream = Stream::new(&here)?;
    /// // Copy the middle two columns of a 3x4 matrix on the other device.
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
    /// - [`Error::Transfer`] if a box exceeds its view, its rows or its slices, or if the boxes
    ///   overlap.
    /// - [`Error::WrongContext`] if `to` belongs to another context than the stream, or if `from`
    ///   belongs to another driver.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if the copy fails.
    pub fn copy_box_from_peer<T: Element>(
        &self,
        from: Boxed<'_, T>,
        to: Boxed<'_, T>,
        extent: [usize; 3],
    ) -> Result<(), Error> {
        let copy = box_copy(from, to, extent)?;
        copy.to().expect_in(self.context(), "a stream")?;
        self.expect_driver_of(copy.from())?;
        refuse_graph_memory(copy.from(), "a copy from another device")?;
        let theirs = copy.from().context();
        let _copy = theirs.order().host_copies(copy.from(), Access::Read);
        theirs.synchronize()?;
        let params = peer_params(&copy);
        self.transfer(
            "a copy of a box from another device",
            copy.to(),
            Access::Write,
            |driver| {
                // SAFETY: the views keep both regions alive, each in its context, and `box_copy`
                // has checked the boxes. `transfer` waits for the copy.
                unsafe { cu_optional!(driver, cuMemcpy3DPeerAsync(&params, self.raw())) }
            },
        )
    }

    /// Checks that memory belongs to the stream's driver. Another driver would misread the context
    /// handle.
    fn expect_driver_of(&self, from: &Region) -> Result<(), Error> {
        let name = || format!("buffer {}", from.name());
        expect_same_driver(
            name,
            from.context().driver(),
            "a stream",
            self.context().driver(),
        )
    }
}

/// Returns the driver's parameters of a copy of a box between two contexts.
fn peer_params(copy: &MemoryCopy) -> CUDA_MEMCPY3D_PEER {
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
