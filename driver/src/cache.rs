//! The second-level cache: which memory stays in it.

use driver_sys::{
    CUaccessProperty, CUdevice_attribute, CUdeviceptr, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlimit,
};

use crate::{Context, Device, Error, Stream, View};

/// A range of memory that the second-level cache treats in its own way, for the kernels of a stream
/// ([`Stream::set_access_window`]) or of a node ([`NodeAttribute::AccessWindow`](crate::NodeAttribute::AccessWindow)). It
/// is advice, which changes no result: it names memory by address, and keeps nothing alive.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let weights = Buffer::<f32>::zeroed(&context, 1 << 20)?;
/// context.set_persisting_cache(8 << 20)?;
/// // Half of the weights stay in the cache; what else the kernels read goes through it.
/// let window = AccessWindow::persisting(&weights).share(0.5).streaming_misses();
/// stream.set_access_window(Some(&window))?;
/// // .. launches ..
/// stream.set_access_window(None)?;
/// context.reset_persisting_cache()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessWindow {
    address: CUdeviceptr,
    bytes: usize,
    /// The bits of the share.
    share: u32,
    hit: CUaccessProperty,
    miss: CUaccessProperty,
}

impl AccessWindow {
    /// Memory that stays in the part of the cache that is [set aside](Context::set_persisting_cache) for it.
    pub fn persisting<T>(view: &View<T>) -> Self {
        Self::of(view, CUaccessProperty::PERSISTING)
    }

    /// Memory that is used once, so that it goes out of the cache first.
    pub fn streaming<T>(view: &View<T>) -> Self {
        Self::of(view, CUaccessProperty::STREAMING)
    }

    fn of<T>(view: &View<T>, hit: CUaccessProperty) -> Self {
        let (address, bytes) = (view.address(), view.region().bytes());
        Self {
            address,
            bytes,
            share: 1f32.to_bits(),
            hit,
            miss: CUaccessProperty::NORMAL,
        }
    }

    /// The same for a share of the memory, from 0 to 1, that the hardware chooses by chance: what does not fit in the
    /// cache at once then keeps some of it there.
    #[must_use]
    pub fn share(self, share: f32) -> Self {
        Self {
            share: share.to_bits(),
            ..self
        }
    }

    /// The same where the rest of the memory in the window goes out of the cache first.
    #[must_use]
    pub fn streaming_misses(self) -> Self {
        Self {
            miss: CUaccessProperty::STREAMING,
            ..self
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// As the driver takes it.
    pub(crate) fn words(self) -> [u64; 4] {
        let property = |property: CUaccessProperty| u64::from(property.0 as u32);
        let share = u64::from(self.share) | property(self.hit) << 32;
        [self.address, self.bytes as u64, share, property(self.miss)]
    }

    /// As the driver gives it.
    pub(crate) fn of_words([address, bytes, share, miss]: [u64; 4]) -> Self {
        let property = |bits: u64| CUaccessProperty(bits as u32 as i32);
        let (hit, miss) = (property(share >> 32), property(miss));
        Self {
            address,
            bytes: bytes as usize,
            share: share as u32,
            hit,
            miss,
        }
    }

    /// Refuses a window that the device does not have.
    pub(crate) fn expect_on(&self, device: &Device) -> Result<(), Error> {
        let most = device
            .attribute(CUdevice_attribute::MAX_ACCESS_POLICY_WINDOW_SIZE)?
            .max(0) as usize;
        let problem = match (most, f32::from_bits(self.share)) {
            (0, _) => "the device has none".to_string(),
            (_, share) if !(0.0..=1.0).contains(&share) => {
                format!("a share of {share}; it is from 0 to 1")
            }
            _ if self.bytes > most => format!("{} bytes; the device allows {most}", self.bytes),
            _ => return Ok(()),
        };
        Err(Error::Transfer {
            what: "a window of accesses",
            problem,
        })
    }
}

impl Context {
    /// Sets so many bytes of the second-level cache aside for memory that is to [stay](AccessWindow::persisting) there.
    /// The driver rounds them, and the device has a limit.
    ///
    /// # Errors
    /// What the driver refuses: a device that cannot.
    pub fn set_persisting_cache(&self, bytes: usize) -> Result<(), Error> {
        let (_current, driver, limit) = (
            self.enter()?,
            self.driver(),
            CUlimit::PERSISTING_L2_CACHE_SIZE,
        );
        // SAFETY: the limit is a number.
        Ok(unsafe { cu_if_there!(driver, cuCtxSetLimit(limit, bytes)) }?)
    }

    /// The bytes of the second-level cache that are set aside.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn persisting_cache(&self) -> Result<usize, Error> {
        let (_current, driver, mut bytes) = (self.enter()?, self.driver(), 0);
        // SAFETY: `bytes` is ours to write.
        unsafe {
            cu_if_there!(
                driver,
                cuCtxGetLimit(&mut bytes, CUlimit::PERSISTING_L2_CACHE_SIZE)
            )
        }?;
        Ok(bytes)
    }

    /// Lets go of what stays in the cache.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn reset_persisting_cache(&self) -> Result<(), Error> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: the call takes no pointer.
        Ok(unsafe { cu_if_there!(driver, cuCtxResetPersistingL2Cache()) }?)
    }
}

impl Stream {
    /// Has the second-level cache treat a range of memory in its own way, for the kernels that this stream is given from
    /// now on; or none.
    ///
    /// # Errors
    /// A window that is larger than the device allows, or a share that is none ([`Error::Transfer`]); or what the driver
    /// refuses.
    pub fn set_access_window(&self, window: Option<&AccessWindow>) -> Result<(), Error> {
        let mut value = CUlaunchAttributeValue::zeroed();
        if let Some(window) = window {
            window.expect_on(self.context().device())?;
            value.words[..4].copy_from_slice(&window.words());
        }
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let (raw, id) = (self.raw(), CUlaunchAttributeID::ACCESS_POLICY_WINDOW);
        // SAFETY: the stream is alive, and the value is lent.
        Ok(unsafe { cu_if_there!(driver, cuStreamSetAttribute(raw, id, &value)) }?)
    }

    /// The window of this stream, if it has one.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn access_window(&self) -> Result<Option<AccessWindow>, Error> {
        let mut value = CUlaunchAttributeValue::zeroed();
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let (raw, id) = (self.raw(), CUlaunchAttributeID::ACCESS_POLICY_WINDOW);
        // SAFETY: the stream is alive, and the value is ours to write.
        unsafe { cu_if_there!(driver, cuStreamGetAttribute(raw, id, &mut value)) }?;
        let [a, b, c, d, ..] = value.words;
        Ok(Some(AccessWindow::of_words([a, b, c, d])).filter(|window| window.bytes > 0))
    }
}
