//! The memory that the work of a context can access.

use std::sync::{PoisonError, RwLock};

/// The device of a context, and the peer devices whose memory it may access.
#[derive(Debug, Default)]
pub(crate) struct MemoryReach {
    pub(crate) device: u32,
    peers: RwLock<Vec<u32>>,
}

impl MemoryReach {
    pub(crate) fn of(device: u32) -> Self {
        Self {
            device,
            peers: RwLock::default(),
        }
    }

    /// Returns the peer devices whose memory it may access now.
    pub(crate) fn peers(&self) -> Vec<u32> {
        self.peers
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_peers(&self, peers: Vec<u32>) {
        *self.peers.write().unwrap_or_else(PoisonError::into_inner) = peers;
    }
}
