//! Pools of device memory, from which streams allocate.

use std::ffi::c_void;
use std::sync::Arc;

use driver_sys::{
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps,
    CUmemoryPool,
};

use crate::device::Context;
use crate::error::Error;
use crate::lifetime::deferred_free::DeferredFree;

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
    /// Returns the pool that [`Stream::alloc`](crate::stream::Stream::alloc) allocates from.
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

    /// Returns the raw handle.
    pub(crate) fn raw(&self) -> CUmemoryPool {
        self.0.raw
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

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned {
            self.context.release(DeferredFree::Pool(self.raw));
        }
    }
}
