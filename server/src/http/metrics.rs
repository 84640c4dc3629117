//! The metrics of this process, in the text format of Prometheus.

use std::sync::OnceLock;

use metrics::{counter, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::scheduler;

/// The limits of the buckets of durations, in seconds.
const SECONDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0,
];

/// Installs the recorder of the process, unless it is already installed. Call it before anything is
/// counted.
pub(super) fn install() {
    handle();
}

/// Returns the recorder of the process, which the first call installs.
///
/// The recorder is global, because code anywhere can count with the macros of the crate `metrics`.
fn handle() -> Option<&'static PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        let suffix = Matcher::Suffix("_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(suffix, &SECONDS);
        let installed = builder.and_then(PrometheusBuilder::install_recorder);
        installed
            .inspect(|_| scheduler::metrics::describe())
            .inspect_err(|error| tracing::error!(%error, "there are no metrics"))
            .ok()
    });
    handle.as_ref()
}

/// Returns the metrics in the text format of Prometheus.
pub fn render() -> String {
    handle().map(PrometheusHandle::render).unwrap_or_default()
}

/// Moves recorded durations into their buckets. Without a reader of the metrics, memory would grow
/// until this is called.
pub(super) fn upkeep() {
    if let Some(handle) = handle() {
        handle.run_upkeep();
    }
}

/// Counts a response.
pub(super) fn response(method: &str, route: &str, status: u16, seconds: f64) {
    // A method is any word that a client chooses, and each value of a label is kept forever.
    let method = match method {
        "GET" | "POST" | "DELETE" | "HEAD" | "OPTIONS" => method.to_owned(),
        _ => "other".to_owned(),
    };
    let labels = [
        ("method", method),
        ("route", route.to_owned()),
        ("status", status.to_string()),
    ];
    counter!("warpwright_http_responses_total", &labels).increment(1);
    histogram!("warpwright_http_response_seconds", "route" => route.to_owned()).record(seconds);
}

/// Counts a panic of a handler.
pub(super) fn panic() {
    counter!("warpwright_http_panics_total").increment(1);
}
