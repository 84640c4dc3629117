//! Allocation of memory in the order of a stream.

use std::sync::Arc;

use ptx_gen::Access;

use crate::device::context::expect_same;
use crate::error::Error;
use crate::lifetime::capture_gate::unreported;
use crate::memory::allocation::{Allocation, Origin, or_out_of_memory};
use crate::memory::buffer::byte_len;
use crate::memory::{Buffer, Element, MemoryPool, View};
use crate::stream::Stream;

impl Stream {
    /// Allocates `len` uninitialized elements in the order of this stream, without a wait.
    ///
    /// Work that is queued in this stream afterwards can use the memory. Other streams must wait
    /// for an event first. Dropping the buffer does not wait either.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
    /// # let context = Context::new(&driver.device(0)?)?;
    /// let stream = Stream::new(&context)?;
    /// let scratch = stream.alloc::<f32>(1000)?;
    /// stream.fill(&scratch, 1.0)?;
    /// assert_eq!(stream.read(&scratch)?[999], 1.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if the device has too little memory.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if the device does not support memory pools.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        self.take(len, None)
    }

    /// Allocates `len` uninitialized elements from a pool in the order of this stream, without a
    /// wait.
    ///
    /// # Errors
    /// Returns [`Error::WrongContext`] if the pool belongs to another context, and the errors of
    /// [`alloc`](Self::alloc).
    pub fn alloc_from<T: Element>(
        &self,
        pool: &MemoryPool,
        len: usize,
    ) -> Result<Buffer<T>, Error> {
        expect_same("a memory pool", pool.context(), "a stream", self.context())?;
        self.take(len, Some(pool))
    }

    fn take<T: Element>(&self, len: usize, pool: Option<&MemoryPool>) -> Result<Buffer<T>, Error> {
        let context = self.context();
        let bytes = byte_len::<T>(len);
        let raw = self.raw();
        let mut address = 0;
        let mut at = 0;
        let mut call = || {
            let submission = self.begin("taking memory")?;
            at = submission.count();
            submission.enqueue(|driver| {
                let to = &mut address;
                let bytes = bytes.max(1);
                // SAFETY: `address` is a local variable that the driver may write. The references
                // keep pool and stream alive, which are of one context.
                unsafe {
                    match pool.map(MemoryPool::raw) {
                        None => cu_optional!(driver, cuMemAllocAsync(to, bytes, raw)),
                        Some(pool) => {
                            cu_optional!(driver, cuMemAllocFromPoolAsync(to, bytes, pool, raw))
                        }
                    }
                }
            })
        };

        // Memory that was returned in the order of other streams is available only when they have
        // reached that point. A wait makes it available.
        let mut result = call();
        if matches!(&result, Err(Error::Driver(e)) if e.code == driver_sys::CUresult::OUT_OF_MEMORY)
        {
            let _ = unreported(|| context.synchronize());
            result = call();
        }

        result.map_err(|error| match error {
            Error::Driver(error) => or_out_of_memory(error, context, bytes),
            other => other,
        })?;
        let origin = Origin::Stream(self.progress().clone());
        let allocation = Allocation::new(context, address, bytes, origin);
        let buffer = Buffer(View::whole(Arc::new(allocation)));

        // The allocation counts as a write. Other streams must therefore be ordered after it.
        self.admit_as(at, std::iter::once((buffer.region(), Access::Write)))?;
        Ok(buffer)
    }
}
