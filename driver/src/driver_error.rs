//! What the driver refused.

use std::fmt;

use driver_sys::CUresult;

/// A call of the driver that failed.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let device = context.device();
/// let code = match device.attribute(sys::CUdevice_attribute(-1)) {
///     Err(Error::Driver(DriverError { call: "cuDeviceGetAttribute", code, .. })) => code,
///     other => panic!("{other:?}"),
/// };
/// assert_eq!(code, sys::CUresult::INVALID_VALUE);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct DriverError {
    /// The function's exported name.
    pub call: &'static str,
    /// The code it returned.
    pub code: CUresult,
    /// What the driver says of a code that this crate does not list.
    pub name: Option<Box<str>>,
    /// The driver's own log, where it keeps one.
    pub log: Box<str>,
    /// Set where the driver lacks the function, so that it was not called; the code is `NOT_SUPPORTED` then.
    pub absent: Option<Box<Absent>>,
}

/// A function that a driver lacks, by CUDA versions: major and minor.
///
/// It is in a [`DriverError`].
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let device = context.device();
/// match device.uuid() {
///     Err(Error::Driver(DriverError { absent: Some(absent), .. })) => {
///         println!("without it: the driver is of {:?}, and {:?} has it", absent.driver, absent.needed);
///     }
///     uuid => println!("{:?}", uuid?),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absent {
    /// The first that has it.
    pub needed: (u32, u32),
    /// What the driver serves.
    pub driver: (u32, u32),
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Absent {
            needed: (a, b),
            driver: (c, d),
        }) = self.absent.as_deref()
        {
            return write!(
                f,
                "{} came with CUDA {a}.{b}, and this driver serves CUDA {c}.{d}",
                self.call
            );
        }
        match &self.name {
            Some(name) => write!(f, "{}: {name} ({})", self.call, self.code.0)?,
            None => write!(f, "{}: {}", self.call, self.code)?,
        }
        if self.code.is_device_fault() {
            write!(
                f,
                "; asynchronous: work queued before this call failed, and the context is lost"
            )?;
        }
        if !self.log.is_empty() {
            write!(f, "\n{}", self.log)?;
        }
        Ok(())
    }
}

impl std::error::Error for DriverError {}
