//! The error of a driver call.

use std::fmt;

use driver_sys::CUresult;

/// A driver call that failed.
///
/// ```
/// # use warpwright_driver::sys;
/// # use warpwright_driver::error::DriverError;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
#[non_exhaustive]
pub struct DriverError {
    /// The exported name of the function.
    pub call: &'static str,
    /// The error code.
    pub code: CUresult,
    /// The driver's name of an error code that this crate does not list.
    pub name: Option<Box<str>>,
    /// The driver's log messages, if the driver keeps a log.
    pub log: Box<str>,
    /// Set if the driver lacks the function, so that it was not called. The code is `NOT_SUPPORTED`
    /// then.
    pub absent: Option<Box<Absent>>,
}

/// The CUDA versions, as major and minor, that explain why a driver lacks a function.
///
/// It is part of a [`DriverError`].
///
/// ```
/// # use warpwright_driver::error::DriverError;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
#[non_exhaustive]
pub struct Absent {
    /// The first CUDA version with the function.
    pub needed: (u32, u32),
    /// The CUDA version that the driver supports.
    pub driver: (u32, u32),
}

impl DriverError {
    /// Creates an error for a driver call that this crate did not make, for example one inside
    /// [`Context::run`](crate::device::Context::run).
    pub fn new(call: &'static str, code: CUresult) -> Self {
        Self {
            call,
            code,
            name: None,
            log: Box::default(),
            absent: None,
        }
    }
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
                "{} needs CUDA {a}.{b}, but this driver supports CUDA {c}.{d}",
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
