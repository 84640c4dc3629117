//! The properties of the pipeline that follow from the device.

use warpwright_driver::device::{Device, Properties};
use warpwright_kernels::pipeline::Copies;

use super::unsupported::Unsupported;

/// The properties of the pipeline that follow from the device.
#[derive(Clone, Copy)]
pub(super) struct KernelTarget {
    capability: (u32, u32),
    /// The instruction that copies tiles to shared memory. It also determines whether kernels
    /// overlap.
    pub(super) copies: Copies,
    /// The number of multiprocessors.
    pub(super) sms: u32,
    /// The shared memory per block, in bytes. If kernels overlap, it is half of a multiprocessor's,
    /// so that blocks of two kernels fit.
    pub(super) preferred: u32,
    /// The shared memory of a block that has its multiprocessor to itself, in bytes.
    pub(super) whole: u32,
}

impl KernelTarget {
    /// Returns the properties, or the reason why the pipeline does not support the device.
    pub(super) fn for_device(device: &Device) -> Result<KernelTarget, Unsupported> {
        let properties = device.properties();
        let capability = device.compute_capability();
        let [half, whole] = shared(&properties);
        let (copies, preferred) = match capability.0 {
            ..8 => {
                return Err(Unsupported::Capability {
                    found: capability,
                    needed: 8,
                });
            }
            8 => (Copies::Async, whole),
            9.. => (Copies::Bulk, half),
        };
        Ok(KernelTarget {
            capability,
            copies,
            sms: properties.multiprocessors,
            preferred,
            whole,
        })
    }

    /// Returns true if the kernels overlap, which needs bulk copies.
    pub(super) fn overlaps(&self) -> bool {
        self.copies == Copies::Bulk
    }

    /// Returns the reason why the kernels do not overlap, or `None` if they do.
    pub(super) fn sequential(&self) -> Option<Unsupported> {
        if self.overlaps() {
            return None;
        }
        Some(self.below(9))
    }

    /// Returns the reason that the device has less than this compute capability.
    pub(super) fn below(&self, needed: u32) -> Unsupported {
        Unsupported::Capability {
            found: self.capability,
            needed,
        }
    }
}

/// Returns the shared memory of a block if two fit on a multiprocessor, and if one has it to
/// itself. Both are multiples of 128 bytes.
fn shared(properties: &Properties) -> [u32; 2] {
    let half = properties.shared_per_multiprocessor / 2;
    let half = half.saturating_sub(properties.shared_reserved_per_block);
    let whole = properties.shared_per_block;
    [half.min(whole), whole].map(|bytes| bytes / 128 * 128)
}
