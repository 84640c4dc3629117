//! What the device decides of the pipeline.

use warpwright_driver::{Device, Properties};
use warpwright_kernels::pipeline::Copies;

use super::unsupported::Unsupported;

/// What the device decides.
#[derive(Clone, Copy)]
pub(super) struct Target {
    capability: (u32, u32),
    /// How tiles come to shared memory, and so whether kernels overlap.
    pub(super) copies: Copies,
    pub(super) sms: u32,
    /// Shared memory per block, in bytes: half an SM's if kernels overlap, so that blocks of two kernels fit.
    pub(super) preferred: u32,
    /// The same of a block that has its SM for itself.
    pub(super) whole: u32,
}

impl Target {
    pub(super) fn of(device: &Device) -> Result<Target, Unsupported> {
        let (properties, capability) = (device.properties(), device.compute_capability());
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
        Ok(Target {
            capability,
            copies,
            sms: properties.multiprocessors,
            preferred,
            whole,
        })
    }

    pub(super) fn overlaps(&self) -> bool {
        self.copies == Copies::Bulk
    }

    pub(super) fn sequential(&self) -> Option<Unsupported> {
        (!self.overlaps()).then_some(Unsupported::Capability {
            found: self.capability,
            needed: 9,
        })
    }
}

/// Shared memory of a block of which two fit an SM, and of one that has it for itself.
fn shared(properties: &Properties) -> [u32; 2] {
    let half = properties.shared_per_multiprocessor / 2;
    let half = half.saturating_sub(properties.shared_reserved_per_block);
    let whole = properties.shared_per_block;
    [half.min(whole), whole].map(|bytes| bytes / 128 * 128)
}
