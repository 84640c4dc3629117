//! Adapters in the layout of the device, which can be made on another thread than the batch's.

use std::sync::Arc;

use warpwright_model::Adapter;

use super::identity::AdapterId;
use crate::Error;
use crate::chunked::lora::pool::{HostAdapter, LoraShapes};

/// Prepares adapters for a [`Batch`](crate::Batch): see
/// [`Batch::adapter_preparer`](crate::Batch::adapter_preparer).
///
/// It uses no device, and other threads can use it while the batch computes.
#[derive(Clone)]
pub struct AdapterPreparer {
    shapes: Arc<LoraShapes>,
}

/// An adapter that is ready to be copied to the device: see
/// [`Batch::load_prepared`](crate::Batch::load_prepared).
pub struct PreparedAdapter {
    id: AdapterId,
    host: HostAdapter,
}

impl AdapterPreparer {
    pub(crate) fn new(shapes: LoraShapes) -> AdapterPreparer {
        AdapterPreparer {
            shapes: Arc::new(shapes),
        }
    }

    /// Checks an adapter, finds its identity and brings its values into the layout of the device.
    ///
    /// # Errors
    /// Returns [`Error::AdapterLayers`], [`Error::AdapterShape`] or [`Error::AdapterExperts`] if the adapter does not fit the
    /// model.
    pub fn prepare(&self, adapter: &Adapter) -> Result<PreparedAdapter, Error> {
        Ok(PreparedAdapter {
            host: self.shapes.prepare(adapter)?,
            id: AdapterId::new(adapter),
        })
    }

    pub(crate) fn shapes(&self) -> &LoraShapes {
        &self.shapes
    }
}

impl PreparedAdapter {
    /// Returns the identity of the adapter.
    pub fn id(&self) -> AdapterId {
        self.id
    }

    pub(crate) fn host(&self) -> &HostAdapter {
        &self.host
    }
}
