//! Memory in the order of a stream, and the pools it comes from.

use std::ffi::c_void;
use std::sync::Arc;

use driver_sys::{
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps,
    CUmemoryPool,
};
use ptx_gen::Access;

use super::{Allocation, Buffer, Origin, View, byte_len, or_out_of_memory};
use crate::element::Element;
use crate::gate::untold;
use crate::release::Release;
use crate::{Context, Error, Stream};

/// A pool of device memory, from which streams take memory and give it back without a wait. Clones share it.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let pool = MemoryPool::new(&context)?;
/// pool.keep(64 << 20)?; // what is given back stays in the pool
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
    /// The pool that [`Stream::alloc`] takes from.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn default_of(context: &Context) -> Result<Self, Error> {
        let (mut raw, driver) = (CUmemoryPool::NULL, context.driver());
        // SAFETY: `raw` is ours to write.
        unsafe {
            cu_if_there!(
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

    /// A pool of one's own. It is destroyed when it and all memory taken from it are dropped.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let (mut raw, driver) = (CUmemoryPool::NULL, context.driver());
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
        // SAFETY: `raw` is ours to write, and the properties are lent.
        unsafe { cu_if_there!(driver, cuMemPoolCreate(&mut raw, &properties)) }?;
        Ok(Self(Arc::new(Inner {
            context: context.clone(),
            raw,
            owned: true,
        })))
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Bytes that are in use.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn used(&self) -> Result<u64, Error> {
        self.get(CUmemPool_attribute::USED_MEM_CURRENT)
    }

    /// Bytes that the pool has of the device, in use or not.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn reserved(&self) -> Result<u64, Error> {
        self.get(CUmemPool_attribute::RESERVED_MEM_CURRENT)
    }

    /// Bytes that the pool keeps when streams are waited for. At first 0: what is not used goes back to the device.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn keep(&self, bytes: u64) -> Result<(), Error> {
        let (mut bytes, attribute) = (bytes, CUmemPool_attribute::RELEASE_THRESHOLD);
        let (_current, driver) = (self.0.context.enter()?, self.0.context.driver());
        let value: *mut c_void = std::ptr::from_mut(&mut bytes).cast();
        // SAFETY: the attribute is a 64-bit number.
        Ok(unsafe { cu_if_there!(driver, cuMemPoolSetAttribute(self.0.raw, attribute, value)) }?)
    }

    /// Gives back what is not used, down to so many bytes.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn trim(&self, keep: usize) -> Result<(), Error> {
        let (_current, driver) = (self.0.context.enter()?, self.0.context.driver());
        // SAFETY: the pool is alive.
        Ok(unsafe { cu_if_there!(driver, cuMemPoolTrimTo(self.0.raw, keep)) }?)
    }

    fn get(&self, attribute: CUmemPool_attribute) -> Result<u64, Error> {
        let mut number = 0u64;
        let (_current, driver) = (self.0.context.enter()?, self.0.context.driver());
        let value: *mut c_void = std::ptr::from_mut(&mut number).cast();
        // SAFETY: the attribute is a 64-bit number, which is ours to write.
        unsafe { cu_if_there!(driver, cuMemPoolGetAttribute(self.0.raw, attribute, value)) }?;
        Ok(number)
    }
}

impl Stream {
    /// `len` elements with whatever the memory holds, taken in the order of this stream: without a wait, and there
    /// for the work that comes after in this stream. Other streams wait for an event first. Dropping it gives it back
    /// without a wait, too.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let driver = Driver::of(warpwright_cuda_emu::library())?;
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
    /// [`Error::OutOfMemory`], [`Error::Capturing`], or what else the driver refuses.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        self.take(len, None)
    }

    /// The same from a pool.
    ///
    /// # Errors
    /// A pool of another context; else as [`alloc`](Self::alloc).
    pub fn alloc_from<T: Element>(
        &self,
        pool: &MemoryPool,
        len: usize,
    ) -> Result<Buffer<T>, Error> {
        crate::context::expect_same("a memory pool", pool.context(), "a stream", self.context())?;
        self.take(len, Some(pool))
    }

    fn take<T: Element>(&self, len: usize, pool: Option<&MemoryPool>) -> Result<Buffer<T>, Error> {
        let (context, bytes, raw) = (self.context(), byte_len::<T>(len), self.raw());
        let (mut address, mut at) = (0, 0);
        let mut call = || {
            let turn = self.begin("taking memory")?;
            at = turn.count();
            turn.enqueue(|driver| {
                let (to, bytes) = (&mut address, bytes.max(1));
                // SAFETY: `address` is ours to write; pool and stream are alive and of one context.
                unsafe {
                    match pool.map(|pool| pool.0.raw) {
                        None => cu_if_there!(driver, cuMemAllocAsync(to, bytes, raw)),
                        Some(pool) => {
                            cu_if_there!(driver, cuMemAllocFromPoolAsync(to, bytes, pool, raw))
                        }
                    }
                }
            })
        };
        let mut result = call();
        if matches!(&result, Err(Error::Driver(e)) if e.code == driver_sys::CUresult::OUT_OF_MEMORY)
        {
            let _ = untold(|| context.synchronize());
            result = call();
        }
        result.map_err(|error| match error {
            Error::Driver(error) => or_out_of_memory(error, context, bytes),
            other => other,
        })?;
        let origin = Origin::Stream(self.timeline().clone());
        let allocation = Allocation::new(context, address, bytes, origin);
        let buffer = Buffer(View::of(Arc::new(allocation)));
        // For other streams, the memory begins with this.
        self.admit_as(at, std::iter::once((buffer.region(), Access::Write)))?;
        Ok(buffer)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned {
            self.context.release(Release::Pool(self.raw));
        }
    }
}
