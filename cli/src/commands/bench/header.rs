//! The conditions of a measurement, at the beginning of each report.

use std::io::Write;
use std::time::SystemTime;

use serde::Serialize;
use warpwright_driver::Context;
use warpwright_engine::{Decoder, Loading};

use super::ceiling::{BandwidthCeiling, TensorCeiling};
use super::setup::BenchSetup;
use super::subject::BenchSubject;
use crate::device;
use crate::failure::Failure;

/// The conditions of the measurement.
#[derive(Serialize)]
pub(super) struct BenchHeader {
    warpwright: &'static str,
    date: String,
    pub(super) device: DeviceFacts,
    pub(super) model: String,
    random_weights: bool,
    /// The verb for the work of the kernels.
    #[serde(skip)]
    verb: &'static str,
    /// The kernels that were used.
    path: String,
    /// The value of `--plan`.
    plan: Option<String>,
    /// The times of loading a file.
    loading: Option<LoadingTimes>,
    pub(super) read_ceiling: BandwidthCeiling,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor_ceiling: Option<TensorCeiling>,
}

/// The device of the measurement.
#[derive(Serialize)]
pub(super) struct DeviceFacts {
    pub(super) name: String,
    emulator: bool,
    compute_capability: String,
    memory_bytes: usize,
    driver: String,
    cuda: String,
}

/// The times from the start of loading until each part was ready, in seconds.
#[derive(Serialize)]
struct LoadingTimes {
    #[serde(skip)]
    loading: Loading,
    bytes: u64,
    weights_s: f64,
    kernels_s: f64,
    graphs_s: f64,
    gb_per_s: f64,
}

impl BenchHeader {
    pub(super) fn new(setup: &BenchSetup, decoder: &Decoder) -> BenchHeader {
        BenchHeader::of(setup, decoder.path().to_string(), Some(*decoder.loading()))
    }

    pub(super) fn of_batch(setup: &BenchSetup) -> BenchHeader {
        BenchHeader::of(
            setup,
            "products on tensor cores, attention over pages".into(),
            None,
        )
    }

    pub(super) fn of_training(setup: &BenchSetup, path: String) -> BenchHeader {
        BenchHeader {
            verb: "trained",
            ..BenchHeader::of(setup, path, None)
        }
    }

    fn of(setup: &BenchSetup, path: String, loading: Option<Loading>) -> BenchHeader {
        let (model, random_weights) = match &setup.subject {
            BenchSubject::File(model) => (model.files.path().display().to_string(), false),
            BenchSubject::Random { name, .. } => (name.clone(), true),
        };
        BenchHeader {
            warpwright: env!("CARGO_PKG_VERSION"),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            device: DeviceFacts::of(&setup.context),
            model,
            random_weights,
            verb: "decoded",
            path,
            plan: setup.settings.plan.map(|plan| plan.to_string()),
            loading: loading.filter(|_| !random_weights).map(LoadingTimes::from),
            read_ceiling: setup.ceiling.clone(),
            tensor_ceiling: setup.tensor_ceiling.clone(),
        }
    }

    /// Prints the conditions. `work` names the measurement.
    pub(super) fn print(&self, out: &mut impl Write, work: &str) -> Result<(), Failure> {
        let d = &self.device;
        let c = &self.read_ceiling;
        writeln!(
            out,
            "{}, {}, CUDA {}, {}",
            d.name, d.driver, d.cuda, self.date
        )?;
        if d.emulator {
            writeln!(
                out,
                "The times are the emulator's: they say nothing about a GPU."
            )?;
        }

        let weights = if self.random_weights {
            ", random weights"
        } else {
            ""
        };
        writeln!(out, "{}{weights}, {work}", self.model)?;
        let plan = self
            .plan
            .as_ref()
            .map(|plan| format!(", plan {plan}"))
            .unwrap_or_default();
        writeln!(out, "{} by {}{plan}", self.verb, self.path)?;
        if let Some(LoadingTimes { loading, .. }) = &self.loading {
            writeln!(out, "{loading}")?;
        }

        let mebibytes = c.bytes >> 20;
        writeln!(
            out,
            "read ceiling: {:.1} GB/s ({mebibytes} MiB, {}, {} blocks)",
            c.gb_per_s, c.kernel, c.blocks
        )?;
        if let Some(TensorCeiling {
            tflops,
            kernel,
            blocks,
        }) = &self.tensor_ceiling
        {
            writeln!(
                out,
                "tensor ceiling: {tflops:.1} TFLOPS ({kernel}, {blocks} blocks)"
            )?;
        }

        writeln!(out)?;
        Ok(())
    }
}

impl DeviceFacts {
    fn of(context: &Context) -> DeviceFacts {
        let device = context.device();
        let (major, minor) = device.compute_capability();
        let (cuda, point) = device.driver().version();
        DeviceFacts {
            name: device.name().to_owned(),
            emulator: device::is_emulator(context),
            compute_capability: format!("{major}.{minor}"),
            memory_bytes: device.total_memory(),
            driver: device.driver().origin().to_owned(),
            cuda: format!("{cuda}.{point}"),
        }
    }
}

impl From<Loading> for LoadingTimes {
    fn from(loading: Loading) -> LoadingTimes {
        LoadingTimes {
            loading,
            bytes: loading.bytes,
            weights_s: loading.weights.as_secs_f64(),
            kernels_s: loading.kernels.as_secs_f64(),
            graphs_s: loading.graphs.as_secs_f64(),
            gb_per_s: loading.rate() / 1e9,
        }
    }
}
