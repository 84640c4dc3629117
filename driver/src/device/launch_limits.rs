//! The largest grids and blocks of a device.

use driver_sys::CUdevice_attribute;

use crate::device::Device;
use crate::error::Error;

/// The launch limits of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchLimits {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) threads: u32,
}

impl LaunchLimits {
    /// Reads the limits of a device.
    pub(crate) fn for_device(device: &Device) -> Result<Self, Error> {
        let get = |attribute| device.attribute(attribute).map(|v| v as u32);
        Ok(Self {
            grid: [
                get(CUdevice_attribute::MAX_GRID_DIM_X)?,
                get(CUdevice_attribute::MAX_GRID_DIM_Y)?,
                get(CUdevice_attribute::MAX_GRID_DIM_Z)?,
            ],
            block: [
                get(CUdevice_attribute::MAX_BLOCK_DIM_X)?,
                get(CUdevice_attribute::MAX_BLOCK_DIM_Y)?,
                get(CUdevice_attribute::MAX_BLOCK_DIM_Z)?,
            ],
            threads: get(CUdevice_attribute::MAX_THREADS_PER_BLOCK)?,
        })
    }
}
