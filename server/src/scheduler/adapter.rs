//! Adapters on their way to the engine.

use std::sync::Arc;

use tokio::sync::oneshot;
use warpwright_engine::PreparedAdapter;

use crate::engine::EngineError;

/// An adapter to load, and the receiver of its key.
pub(crate) struct AdapterJob {
    pub(crate) adapter: Arc<PreparedAdapter>,
    pub(crate) sender: oneshot::Sender<Result<String, EngineError>>,
}
