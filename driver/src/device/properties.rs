//! Devices and their properties.

use std::fmt;

use driver_sys::{Api, CUdevice, CUdevice_attribute, CUuuid};

use crate::error::Error;
use crate::lifetime::driver::{Driver, trimmed};

/// A device that is present in the machine. Use [`Context::new`](crate::device::Context::new) to
/// work with it.
///
/// ```
/// # use warpwright_driver::ordering::Use;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
/// let device = driver.device(0)?;
/// assert!(device.compute_capability() >= (7, 0));
/// // Use enough blocks to keep the device busy.
/// let blocks = 4 * device.properties().multiprocessors;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device {
    driver: Driver,
    raw: CUdevice,
    ordinal: usize,
    name: String,
    capability: (u32, u32),
    memory: usize,
    properties: Properties,
}

/// The properties of a device that determine the launch shape of a kernel.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// // A persistent kernel: two blocks per multiprocessor, which share its shared memory.
/// let properties = context.device().properties();
/// let half = properties.shared_per_multiprocessor / 2 - properties.shared_reserved_per_block;
/// let shared = half.min(properties.shared_per_block);
/// let config = LaunchConfig::line(2 * properties.multiprocessors, 256).shared(shared);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Properties {
    /// The number of multiprocessors.
    pub multiprocessors: u32,
    /// The most shared memory of a block in bytes.
    ///
    /// It includes the opt-in beyond 48 KiB, which [`Launch::new`](crate::launch::Launch::new)
    /// makes.
    pub shared_per_block: u32,
    /// The shared memory of a multiprocessor in bytes.
    pub shared_per_multiprocessor: u32,
    /// The shared memory in bytes that the system reserves in each block.
    pub shared_reserved_per_block: u32,
    /// The size of the L2 cache in bytes.
    pub l2_bytes: u32,
}

impl Driver {
    /// Returns all devices in the driver's order.
    ///
    /// # Errors
    /// Returns an error if the driver does not report a device.
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        let mut count = 0;
        // SAFETY: `count` is a local variable that the driver may write.
        unsafe { cu!(self, cuDeviceGetCount(&mut count)) }?;
        (0..count.max(0))
            .map(|ordinal| Device::get(self, ordinal))
            .collect()
    }

    /// Returns the device with this number.
    ///
    /// # Errors
    /// Returns [`Error::NoDevice`] with the number of devices if there are too few.
    pub fn device(&self, ordinal: usize) -> Result<Device, Error> {
        let mut devices = self.devices()?;
        if ordinal < devices.len() {
            return Ok(devices.swap_remove(ordinal));
        }
        Err(Error::NoDevice {
            ordinal,
            count: devices.len(),
        })
    }
}

impl Device {
    pub(crate) fn get(driver: &Driver, ordinal: i32) -> Result<Self, Error> {
        let mut raw = 0;
        let mut name = [0u8; 256];
        let mut memory = 0;

        // SAFETY: each call writes one local variable. The name is written up to the length passed.
        unsafe {
            cu!(driver, cuDeviceGet(&mut raw, ordinal))?;
            cu!(
                driver,
                cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, raw)
            )?;
            cu!(driver, cuDeviceTotalMem_v2(&mut memory, raw))?;
        }
        let capability = (0, 0);
        let mut device = Self {
            driver: *driver,
            raw,
            ordinal: ordinal as usize,
            name: trimmed(&name),
            capability,
            memory,
            properties: Properties::default(),
        };
        let major = device.attribute(CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR)?;
        let minor = device.attribute(CUdevice_attribute::COMPUTE_CAPABILITY_MINOR)?;
        device.capability = (major as u32, minor as u32);
        device.properties = Properties::for_device(&device)?;
        Ok(device)
    }

    /// Returns the driver of the device.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Returns the number of the device, from 0.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the compute capability as major and minor.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.capability
    }

    /// Returns the total device memory in bytes.
    pub fn total_memory(&self) -> usize {
        self.memory
    }

    /// Returns the properties that determine the launch shape of a kernel.
    pub fn properties(&self) -> Properties {
        self.properties
    }

    /// Returns true if graphs on this device support programmatic edges. They require compute
    /// capability 9.0 and a driver for CUDA 12.3.
    pub fn has_programmatic_edges(&self) -> bool {
        let Api {
            cuGraphAddNode_v2: node,
            cuGraphAddDependencies_v2: edges,
            cuGraphGetEdges_v2: get,
            ..
        } = self.driver.api();
        self.capability.0 >= 9 && node.is_some() && edges.is_some() && get.is_some()
    }

    /// Returns the UUID of the device, which does not change across restarts.
    ///
    /// # Errors
    /// Returns an error if the driver does not report the UUID.
    pub fn uuid(&self) -> Result<[u8; 16], Error> {
        let mut uuid = CUuuid::zeroed();
        // SAFETY: `uuid` is a local variable that the driver may write.
        unsafe { cu_optional!(self.driver, cuDeviceGetUuid_v2(&mut uuid, self.raw)) }?;
        Ok(uuid.bytes)
    }

    /// Returns the value of a device attribute.
    ///
    /// # Errors
    /// Returns an error if the driver does not know the attribute.
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32, Error> {
        let mut value = 0;
        // SAFETY: `value` is a local variable that the driver may write.
        unsafe {
            cu!(
                self.driver,
                cuDeviceGetAttribute(&mut value, attribute, self.raw)
            )
        }?;
        Ok(value)
    }

    pub(crate) fn raw(&self) -> CUdevice {
        self.raw
    }
}

impl Properties {
    fn for_device(device: &Device) -> Result<Self, Error> {
        let get = |attribute| device.attribute(attribute).map(|v| v as u32);
        Ok(Self {
            multiprocessors: get(CUdevice_attribute::MULTIPROCESSOR_COUNT)?,
            shared_per_block: get(CUdevice_attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
                .max(get(CUdevice_attribute::MAX_SHARED_MEMORY_PER_BLOCK)?),
            shared_per_multiprocessor: get(
                CUdevice_attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            )?,
            shared_reserved_per_block: get(CUdevice_attribute::RESERVED_SHARED_MEMORY_PER_BLOCK)?,
            l2_bytes: get(CUdevice_attribute::L2_CACHE_SIZE)?,
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.capability;
        write!(
            f,
            "device {} ({}, compute capability {major}.{minor})",
            self.ordinal, self.name
        )
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
