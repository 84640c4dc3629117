//! The pools of the places that memory comes from.

use crate::state::State;
use crate::state::objects::DevicePools;
use crate::state::pools::{Pool, PoolPlace};

impl State {
    /// What somebody who has waited for the work of a device finds: pools hold no more than their threshold.
    pub(crate) fn release_pools(&mut self, device: u32) {
        let others =
            |pool: &Pool| matches!(pool.place, PoolPlace::Device(other) if other != device);
        for (_, pool) in self.pools.iter_mut().filter(|(_, pool)| !others(pool)) {
            pool.trim(pool.threshold);
        }
    }

    /// The pools of a place: those of the devices stand first, then those of the host, then the managed ones.
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
