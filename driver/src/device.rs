//! A device and its properties.

use std::fmt;

use driver_sys::{CUdevice, CUdevice_attribute, CUuuid};

use crate::driver::trimmed;
use crate::{Driver, Error};

/// A device, not yet in use.
#[derive(Clone)]
pub struct Device {
    driver: Driver,
    raw: CUdevice,
    ordinal: usize,
    name: String,
    capability: (u32, u32),
    memory: usize,
}

impl Device {
    pub(crate) fn get(driver: &Driver, ordinal: i32) -> Result<Self, Error> {
        let mut raw = 0;
        let mut name = [0u8; 256];
        let mut memory = 0;
        // SAFETY: each call writes one value of ours; the name is bounded by the length passed.
        unsafe {
            cu!(driver, cuDeviceGet(&mut raw, ordinal))?;
            cu!(driver, cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, raw))?;
            cu!(driver, cuDeviceTotalMem_v2(&mut memory, raw))?;
        }
        let capability = (0, 0);
        let mut device = Self {
            driver: driver.clone(),
            raw,
            ordinal: ordinal as usize,
            name: trimmed(&name),
            capability,
            memory,
        };
        let major = device.attribute(CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR)?;
        let minor = device.attribute(CUdevice_attribute::COMPUTE_CAPABILITY_MINOR)?;
        device.capability = (major as u32, minor as u32);
        Ok(device)
    }

    /// The driver it belongs to.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Its number, from 0.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its compute capability, as major and minor.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.capability
    }

    /// Its memory, in bytes.
    pub fn total_memory(&self) -> usize {
        self.memory
    }

    /// Its identity, which stays the same across restarts.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn uuid(&self) -> Result<[u8; 16], Error> {
        let mut uuid = CUuuid::zeroed();
        // SAFETY: `uuid` is ours to write.
        unsafe { cu!(self.driver, cuDeviceGetUuid_v2(&mut uuid, self.raw)) }?;
        Ok(uuid.bytes)
    }

    /// One of its properties.
    ///
    /// # Errors
    /// What the driver refuses: an attribute it does not know.
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32, Error> {
        let mut value = 0;
        // SAFETY: `value` is ours to write.
        unsafe { cu!(self.driver, cuDeviceGetAttribute(&mut value, attribute, self.raw)) }?;
        Ok(value)
    }

    pub(crate) fn raw(&self) -> CUdevice {
        self.raw
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.capability;
        write!(f, "device {} ({}, compute capability {major}.{minor})", self.ordinal, self.name)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
