//! The models of a server, by name.

use std::sync::Arc;

use super::served::ServedModel;
use crate::error::RequestError;

/// The models that a server has.
pub struct Models {
    single: Arc<ServedModel>,
}

impl Models {
    /// Returns a registry with one model, which answers requests for every name.
    ///
    /// Clients such as Claude Code send names of other models. With a single model there is only
    /// one that they can mean.
    pub fn single(model: Arc<ServedModel>) -> Models {
        Models { single: model }
    }

    /// Returns the model for a request that names `name`, or no model.
    ///
    /// # Errors
    /// Returns an error if there is no such model, or if it is being loaded.
    #[expect(
        clippy::unused_async,
        reason = "a registry of several models waits for the lock of its table"
    )]
    pub async fn find(&self, name: Option<&str>) -> Result<Arc<ServedModel>, RequestError> {
        let _ = name;
        Ok(self.single.clone())
    }
}
