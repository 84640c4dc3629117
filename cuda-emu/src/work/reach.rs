//! Where the work of a context runs, and whose memory it reaches.

use std::sync::{PoisonError, RwLock};

/// The device of a context, and the devices whose memory it was given access to.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    pub(crate) device: u32,
    peers: RwLock<Vec<u32>>,
}

impl Reach {
    pub(crate) fn of(device: u32) -> Self {
        Self {
            device,
            peers: RwLock::default(),
        }
    }

    /// The devices whose memory it reaches now, besides its own.
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
