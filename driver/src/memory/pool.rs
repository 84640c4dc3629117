//! Stream-ordered allocation, and the pools it allocates from.

use std::ffi::c_void;
use std::sync::Arc;

use driver_sys::{
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps,
    CUmemoryPool,
};
use ptx_gen::Access;

use crate::device::Context;
use crate::error::Error;
use crate::lifetime::capture_gate::unreported;
use crate::lifetime::deferred_free::DeferredFree;
use crate::memory::allocation::{Allocation, Origin, or_out_of_memory};
use crate::memory::buffer::byte_len;
use crate::memory::{Buffer, Element, View};
use crate::stream::Stream;

/// A pool of device memory, from which streams allocate and to which they return memory without a
/// wait. Clones refer to the same pool.
///
/// ```
/// # use warpwright_driver::memory::MemoryPool;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let pool = MemoryPool::new(&context)?;
/// pool.keep(64 << 20)?; // freed memory stays in the pool
/// let scratch = stream.alloc_from::<f32>(&pool, 1000)?;
/// stream.fill(&scratch, 1.0)?;
/// assert!(pool.used()? >= 4000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    raw: CUmemoryPool,
    owned: bool,
}

impl MemoryPool {
    /// Returns the pool that [`Stream::alloc`] allocates from.
    ///
    /// # Errors
    /// Returns an error if the device does not support memory pools.
    pub fn default_for(context: &Context) -> Result<Self, Error> {
        let mut raw = CUmemoryPool::NULL;
        let driver = context.driver();
        // SAFETY: `raw` is a local variable that the driver may write.
        unsafe {
            cu_optional!(
                driver,
                cuDeviceGetDefaultMemPool(&mut raw, context.device().raw())
            )
        }?;
        Ok(Self(Arc::new(Inner {
            context: context.clone(),
            raw,
            owned: false,
        })))
    }

    /// Creates a pool. It is destroyed when its handles and all memory allocated from it are
    /// dropped.
    ///
    /// # Errors
    /// Returns an error if the device does not support memory pools.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let mut raw = CUmemoryPool::NULL;
        let driver = context.driver();
        let location = CUmemLocation {
            r#type: CUmemLocationType::DEVICE,
            id: context.device().raw(),
        };
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::PINNED,
            location,
            ..CUmemPoolProps::zeroed()
        };
        let _current = context.enter()?;
        // SAFETY: `raw` is a local variable that the driver may write. The properties live until
        // the call returns.
        unsafe { cu_optional!(driver, cuMemPoolCreate(&mut raw, &properties)) }?;
        Ok(Self(Arc::new(Inner {
            context: context.clone(),
            raw,
            owned: true,
        })))
    }

    /// Returns the context of the pool.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Returns the number of bytes in use.
    ///
    /// # Errors
    /// Returns an error if the driver does not report it.
    pub fn used(&self) -> Result<u64, Error> {
        self.get(CUmemPool_attribute::USED_MEM_CURRENT)
    }

    /// Returns the number of bytes that the pool has reserved on the device, in use or not.
    ///
    /// # Errors
    /// Returns an error if the driver does not report it.
    pub fn reserved(&self) -> Result<u64, Error> {
        self.get(CUmemPool_attribute::RESERVED_MEM_CURRENT)
    }

    /// Sets the number of unused bytes that the pool keeps at a wait for a stream.
    ///
    /// The default is 0: all unused memory is returned to the device.
    ///
    /// # Errors
    /// Returns an error if the driver cannot change the setting.
    pub fn keep(&self, bytes: u64) -> Result<(), Error> {
        let mut bytes = bytes;
        let attribute = CUmemPool_attribute::RELEASE_THRESHOLD;
        let _current = self.0.context.enter()?;
        let driver = self.0.context.driver();
        let value: *mut c_void = std::ptr::from_mut(&mut bytes).cast();
        // SAFETY: the value of this attribute is a 64-bit number, which lives until the call
        // returns.
        Ok(unsafe { cu_optional!(driver, cuMemPoolSetAttribute(self.0.raw, attribute, value)) }?)
    }

    /// Returns unused memory to the device, down to `keep` reserved bytes.
    ///
    /// # Errors
    /// Returns an error if the driver cannot trim the pool.
    pub fn trim(&self, keep: usize) -> Result<(), Error> {
        let _current = self.0.context.enter()?;
        let driver = self.0.context.driver();
        // SAFETY: `self` keeps the pool alive.
        Ok(unsafe { cu_optional!(driver, cuMemPoolTrimTo(self.0.raw, keep)) }?)
    }

    fn get(&self, attribute: CUmemPool_attribute) -> Result<u64, Error> {
        let mut number = 0u64;
        let _current = self.0.context.enter()?;
        let driver = self.0.context.driver();
        let value: *mut c_void = std::ptr::from_mut(&mut number).cast();
        // SAFETY: the value of this attribute is a 64-bit number, and `number` is a local variable
        // that the driver may write.
        unsafe { cu_optional!(driver, cuMemPoolGetAttribute(self.0.raw, attribute, value)) }?;
        Ok(number)
    }
}

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
        crate::device::context::expect_same(
            "a memory pool",
            pool.context(),
            "a stream",
            self.context(),
        )?;
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
                    match pool.map(|pool| pool.0.raw) {
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

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned {
            self.context.release(DeferredFree::Pool(self.raw));
        }
    }
}
