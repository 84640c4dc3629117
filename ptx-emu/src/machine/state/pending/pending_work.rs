//! The asynchronous work of a block that has not completed.

use crate::machine::state::pending::pending_copies::PendingCopies;
use crate::machine::state::pending::pending_stores::BulkStores;
use crate::machine::state::pending::pending_wgmma::ClusterWgmmas;

/// The asynchronous work of a block that has not completed.
#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    /// Copies to shared memory.
    pub(crate) copies: PendingCopies,
    /// Bulk copies from shared memory.
    pub(crate) stores: BulkStores,
    /// Matmuls of warpgroups.
    pub(crate) products: ClusterWgmmas,
    /// The addresses of tensor maps in global memory that the block has changed and not fenced
    /// since.
    pub(crate) changed_maps: Vec<u64>,
}

impl PendingWork {
    /// Begins a block of `warps` warps.
    pub(crate) fn start(&mut self, warps: usize) {
        self.copies.start(warps);
        self.stores.start();
        self.products.start(warps);
        self.changed_maps.clear();
    }
}
