//! `GET /metrics`: the counters of the server, in the text format of Prometheus.
//!
//! The names with the prefix `llamacpp:` are those of llama.cpp's server, summed over all models, so
//! that its dashboards work. The others have a label with the model.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use metrics::{counter, gauge};

use crate::http::metrics::render;
use crate::http::state::AppState;
use crate::scheduler::SchedulerStatus;

/// Returns the metrics.
#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = 200, description = "The metrics, in the text format of Prometheus"))
)]
pub(super) async fn metrics(State(state): State<AppState>) -> Response {
    let models = state.models.loaded();
    let statuses: Vec<SchedulerStatus> = models
        .iter()
        .map(|model| model.scheduler.status())
        .collect();
    for (model, status) in models.iter().zip(&statuses) {
        of_model(&model.name, status);
    }
    of_server(&statuses);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], render()).into_response()
}

/// Sets the metrics of a model.
fn of_model(name: &str, status: &SchedulerStatus) {
    let label = [("model", name.to_owned())];
    gauge!("warpwright_sequences", &label).set(status.sequences.len() as f64);
    gauge!("warpwright_waiting_requests", &label).set(status.waiting as f64);
    gauge!("warpwright_device_lost", &label).set(f64::from(u8::from(status.lost.is_some())));
    for (state, pages) in [
        ("used", status.pages.used),
        ("kept", status.pages.kept),
        ("free", status.pages.free),
    ] {
        let labels = [("model", name.to_owned()), ("state", state.to_owned())];
        gauge!("warpwright_pages", &labels).set(f64::from(pages));
    }
}

/// Sets llama.cpp's metrics.
fn of_server(statuses: &[SchedulerStatus]) {
    let sum = |value: fn(&SchedulerStatus) -> u64| statuses.iter().map(value).sum::<u64>();
    let prompt = sum(|status| status.prompt_tokens);
    let cached = sum(|status| status.cached_tokens);
    let processing = sum(|status| status.sequences.len() as u64);
    let deferred = sum(|status| status.waiting as u64);
    counter!("llamacpp:prompt_tokens_total").absolute(prompt.saturating_sub(cached));
    counter!("llamacpp:prompt_tokens_cache_total").absolute(cached);
    counter!("llamacpp:tokens_predicted_total").absolute(sum(|status| status.generated_tokens));
    gauge!("llamacpp:requests_processing").set(processing as f64);
    gauge!("llamacpp:requests_deferred").set(deferred as f64);

    // The share of all prompt tokens that the cache had.
    let ratio = if prompt == 0 {
        0.0
    } else {
        cached as f64 / prompt as f64
    };
    gauge!("llamacpp:prompt_cache_hit_ratio").set(ratio);
}
