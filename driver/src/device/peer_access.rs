//! Access of one device to the memory of another.

use crate::device::context::expect_same_driver;
use crate::device::{Context, Device};
use crate::error::Error;

impl Device {
    /// Returns true if kernels of this device can access the memory of `other` after
    /// [`Context::reach`].
    ///
    /// # Errors
    /// Returns [`Error::WrongContext`] if `other` belongs to another driver, or an error if the
    /// driver cannot tell.
    pub fn can_reach(&self, other: &Self) -> Result<bool, Error> {
        expect_same_driver(
            || other.to_string(),
            other.driver(),
            "the device",
            self.driver(),
        )?;
        let mut can = 0;

        // SAFETY: `can` is a local variable that the driver may write.
        unsafe {
            cu_optional!(
                self.driver(),
                cuDeviceCanAccessPeer(&mut can, self.raw(), other.raw())
            )
        }?;
        Ok(can != 0)
    }
}

impl Context {
    /// Allows kernels of this context to access the memory of `other`. Copies then go directly from
    /// device to device.
    ///
    /// A second call for the same context has no effect.
    ///
    /// # Errors
    /// Returns [`Error::WrongContext`] if `other` belongs to another driver, or an error if the
    /// devices cannot access each other (see [`Device::can_reach`]).
    pub fn reach(&self, other: &Self) -> Result<(), Error> {
        expect_same_driver(
            || other.to_string(),
            other.driver(),
            "the context",
            self.driver(),
        )?;
        let _current = self.enter()?;
        let driver = self.driver();

        // SAFETY: the references keep both contexts alive.
        match unsafe { cu_optional!(driver, cuCtxEnablePeerAccess(other.raw(), 0)) } {
            Err(error) if error.code == driver_sys::CUresult::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            other => Ok(other?),
        }
    }
}
