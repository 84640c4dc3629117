//! The memory pools of each kind of memory.

use crate::state::DriverState;
use crate::state::objects::DevicePools;
use crate::state::pools::{Pool, PoolPlace};

impl DriverState {
    /// Trims the pools of a device and of the host to their thresholds, as a wait for the device
    /// does.
    pub(crate) fn release_pools(&mut self, device: u32) {
        let others =
            |pool: &Pool| matches!(pool.place, PoolPlace::Device(other) if other != device);
        for (_, pool) in self.pools.iter_mut().filter(|(_, pool)| !others(pool)) {
            pool.trim(pool.threshold);
        }
    }

    /// Returns the pools of a kind of memory.
    ///
    /// The list begins with the pools of the devices, followed by those of the host and of managed
    /// memory.
    pub(crate) fn pools_of(&mut self, place: PoolPlace) -> &mut DevicePools {
        let devices = self.primary.len();
        let number = match place {
            PoolPlace::Device(device) => device as usize,
            PoolPlace::Host => devices,
            PoolPlace::Managed => devices + 1,
        };
        &mut self.place_pools[number]
    }
}
