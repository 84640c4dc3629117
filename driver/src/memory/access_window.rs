//! Access windows: hints about which memory the L2 cache should keep.

use driver_sys::{CUaccessProperty, CUdevice_attribute, CUdeviceptr, CUlimit};

use crate::device::{Context, Device};
use crate::error::Error;
use crate::memory::View;

/// A range of memory with its own policy in the L2 cache.
///
/// Set it for the kernels of a stream with
/// [`Stream::set_access_window`](crate::stream::Stream::set_access_window), or for a graph node
/// with [`NodeAttribute::AccessWindow`](crate::graph::NodeAttribute::AccessWindow). A window is a
/// hint and changes no result. It refers to memory by address and does not keep the memory alive.
///
/// ```
/// # use warpwright_driver::memory::AccessWindow;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let weights = Buffer::<f32>::zeroed(&context, 1 << 20)?;
/// context.set_persisting_cache(8 << 20)?;
/// // Keep half of the weights in the cache. Other memory is evicted first.
/// let window = AccessWindow::persisting(&weights).share(0.5).streaming_misses();
/// stream.set_access_window(Some(&window))?;
/// // ... launches ...
/// stream.set_access_window(None)?;
/// context.reset_persisting_cache()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessWindow {
    address: CUdeviceptr,
    bytes: usize,
    /// The bits of the fraction of accesses that use the hit policy, as an `f32`.
    share: u32,
    hit: CUaccessProperty,
    miss: CUaccessProperty,
}

impl AccessWindow {
    /// Returns a window whose memory stays in the part of the cache that is [set
    /// aside](Context::set_persisting_cache) for persisting accesses.
    pub fn persisting<T>(view: &View<T>) -> Self {
        Self::new(view, CUaccessProperty::PERSISTING)
    }

    /// Returns a window whose memory is evicted first, for data that is used once.
    pub fn streaming<T>(view: &View<T>) -> Self {
        Self::new(view, CUaccessProperty::STREAMING)
    }

    fn new<T>(view: &View<T>, hit: CUaccessProperty) -> Self {
        let address = view.address();
        let bytes = view.region().bytes();
        Self {
            address,
            bytes,
            share: 1f32.to_bits(),
            hit,
            miss: CUaccessProperty::NORMAL,
        }
    }

    /// Applies the policy only to a random fraction of the accesses, from 0 to 1.
    ///
    /// If the memory does not fit in the cache, a fraction keeps part of it there instead of
    /// evicting all of it in turn.
    #[must_use]
    pub fn share(self, share: f32) -> Self {
        Self {
            share: share.to_bits(),
            ..self
        }
    }

    /// Lets accesses outside the chosen fraction be evicted first.
    #[must_use]
    pub fn streaming_misses(self) -> Self {
        Self {
            miss: CUaccessProperty::STREAMING,
            ..self
        }
    }

    /// Returns the size of the window in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the words of the driver's `CUaccessPolicyWindow`.
    pub(crate) fn words(self) -> [u64; 4] {
        let property = |property: CUaccessProperty| u64::from(property.0 as u32);
        let share = u64::from(self.share) | property(self.hit) << 32;
        [self.address, self.bytes as u64, share, property(self.miss)]
    }

    /// Returns the window from the words of the driver's `CUaccessPolicyWindow`.
    pub(crate) fn from_words([address, bytes, share, miss]: [u64; 4]) -> Self {
        let property = |bits: u64| CUaccessProperty(bits as u32 as i32);
        let hit = property(share >> 32);
        let miss = property(miss);
        Self {
            address,
            bytes: bytes as usize,
            share: share as u32,
            hit,
            miss,
        }
    }

    /// Checks that the device supports the window.
    pub(crate) fn expect_on(&self, device: &Device) -> Result<(), Error> {
        let most = device
            .attribute(CUdevice_attribute::MAX_ACCESS_POLICY_WINDOW_SIZE)?
            .max(0) as usize;
        let problem = match (most, f32::from_bits(self.share)) {
            (0, _) => "the device does not support access windows".to_string(),
            (_, share) if !(0.0..=1.0).contains(&share) => {
                format!("invalid share {share}: expected a value from 0 to 1")
            }
            _ if self.bytes > most => format!("{} bytes; the device allows {most}", self.bytes),
            _ => return Ok(()),
        };
        Err(Error::Transfer {
            what: "access window",
            problem,
        })
    }
}

impl Context {
    /// Sets aside part of the L2 cache for [persisting](AccessWindow::persisting) accesses.
    ///
    /// The driver rounds the size and limits it to the device's maximum.
    ///
    /// # Errors
    /// Returns an error if the device does not support persisting accesses.
    pub fn set_persisting_cache(&self, bytes: usize) -> Result<(), Error> {
        let _current = self.enter()?;
        let driver = self.driver();
        let limit = CUlimit::PERSISTING_L2_CACHE_SIZE;
        // SAFETY: the call takes no pointer.
        Ok(unsafe { cu_optional!(driver, cuCtxSetLimit(limit, bytes)) }?)
    }

    /// Returns the bytes of the L2 cache that are set aside for persisting accesses.
    ///
    /// # Errors
    /// Returns an error if the driver does not report them.
    pub fn persisting_cache(&self) -> Result<usize, Error> {
        let _current = self.enter()?;
        let driver = self.driver();
        let mut bytes = 0;

        // SAFETY: `bytes` is a local variable that the driver may write.
        unsafe {
            cu_optional!(
                driver,
                cuCtxGetLimit(&mut bytes, CUlimit::PERSISTING_L2_CACHE_SIZE)
            )
        }?;
        Ok(bytes)
    }

    /// Turns all persisting cache lines into normal ones.
    ///
    /// # Errors
    /// Returns an error if the device does not support persisting accesses.
    pub fn reset_persisting_cache(&self) -> Result<(), Error> {
        let _current = self.enter()?;
        let driver = self.driver();
        // SAFETY: the call takes no pointer.
        Ok(unsafe { cu_optional!(driver, cuCtxResetPersistingL2Cache()) }?)
    }
}
