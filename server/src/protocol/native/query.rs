//! The query of GET requests.

use std::sync::Arc;

use axum::extract::Query;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::RequestError;
use crate::http::state::AppState;
use crate::models::ServedModel;

/// The query `?model=NAME`. Other fields are ignored.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ModelQuery {
    /// The name of the model. A server with one model needs none.
    pub(super) model: Option<String>,
}

/// A query, or the default if it cannot be read, because a path answers with any query.
pub(super) type AnyQuery<T> = Result<Query<T>, axum::extract::rejection::QueryRejection>;

/// Returns the model that the query names.
pub(super) async fn queried_model(
    state: &AppState,
    query: AnyQuery<ModelQuery>,
) -> Result<Arc<ServedModel>, RequestError> {
    let query = query.map(|Query(query)| query).unwrap_or_default();
    state.models.find(query.model.as_deref()).await
}
