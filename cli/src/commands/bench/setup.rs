//! The device of a measurement with its ceilings, and the decoders that run on it.

use warpwright_driver::Context;
use warpwright_engine::{Decoder, Error, KernelPath, Options, Sampling};
use warpwright_model::Outline;

use super::ceiling::{self, BandwidthCeiling, Ceilings, TensorCeiling};
use super::options::{BenchDevice, DecoderSettings};
use super::subject::BenchSubject;
use crate::device;
use crate::device::emulation::{self, EmulationWork};
use crate::failure::Failure;
use crate::model::options::Launch;

/// The number of tokens before the first timed round. They upload the graph and raise the clock
/// rates.
pub(super) const WARM_UP: u32 = 8;

/// The work of a measurement, to check that it fits the device.
pub(super) struct BenchWork {
    /// The largest context length.
    pub(super) ctx: u32,
    pub(super) launch: Launch,
    /// The least number of tokens of everything that is measured.
    pub(super) tokens: u64,
}

/// The ceilings that a measurement compares with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CeilingKind {
    /// Only the read ceiling, because a single token reads much and multiplies little.
    Read,
    /// The read ceiling and the tensor ceiling.
    ReadAndTensor,
}

/// The model, the device and the ceilings of a measurement.
pub(super) struct BenchSetup {
    pub(super) subject: BenchSubject,
    pub(super) context: Context,
    pub(super) settings: DecoderSettings,
    pub(super) ceiling: BandwidthCeiling,
    pub(super) tensor_ceiling: Option<TensorCeiling>,
}

impl BenchSetup {
    /// Opens the device, checks that the work fits it, and measures the ceilings.
    ///
    /// # Errors
    /// Returns an error if the device has too little memory, or if the emulator would take too
    /// long.
    pub(super) fn new(
        subject: BenchSubject,
        device: &BenchDevice,
        settings: DecoderSettings,
        work: &BenchWork,
        kind: CeilingKind,
    ) -> Result<BenchSetup, Failure> {
        let context = device::open(device.device)?;
        let options = settings.options(work.ctx, work.launch);
        Decoder::check(&context, subject.outline(), options)?;
        if !device.insist {
            let work = EmulationWork {
                tokens: work.tokens,
                ctx: options.ctx,
            };
            emulation::check(&context, subject.outline(), work)?;
        }

        BenchSetup::with_context(subject, context, settings, kind)
    }

    /// Measures the ceilings of a device that is open already.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    pub(super) fn with_context(
        subject: BenchSubject,
        context: Context,
        settings: DecoderSettings,
        kind: CeilingKind,
    ) -> Result<BenchSetup, Failure> {
        let ceiling = ceiling::measure(&context)?;
        let tensor_ceiling = match kind {
            CeilingKind::Read => None,
            CeilingKind::ReadAndTensor => ceiling::measure_products(&context)?,
        };
        Ok(BenchSetup {
            subject,
            context,
            settings,
            ceiling,
            tensor_ceiling,
        })
    }

    pub(super) fn ceilings(&self) -> Ceilings {
        let tflops = self.tensor_ceiling.as_ref().map(|ceiling| ceiling.tflops);
        Ceilings {
            gb_per_s: self.ceiling.gb_per_s,
            tflops,
        }
    }

    pub(super) fn outline(&self) -> &Outline {
        self.subject.outline()
    }

    pub(super) fn options(&self, ctx: u32, launch: Launch) -> Options {
        self.settings.options(ctx, launch)
    }

    /// Loads the model.
    ///
    /// # Errors
    /// Returns an error if loading fails, or if `--plan` has no effect.
    pub(super) fn decoder(&self, options: Options) -> Result<Decoder, Failure> {
        let decoder = sampled(self.subject.decoder(&self.context, options)?)?;
        match (self.settings.plan, decoder.path()) {
            (Some(_), KernelPath::Simple { reason }) => Err(Failure::Input(format!(
                "--plan has no effect, because overlapping kernels are not used: {reason}"
            ))),
            _ => Ok(decoder),
        }
    }
}

/// Returns the sampling of `--sample`: the default filters and a penalty.
pub(super) fn usual_sampling() -> Sampling {
    Sampling {
        repeat_penalty: 1.1,
        ..Sampling::default()
    }
}

/// Sets the sampling of a decoder that was made for sampling.
pub(super) fn sampled(mut decoder: Decoder) -> Result<Decoder, Failure> {
    match decoder.set_sampling(&usual_sampling()) {
        Err(Error::NotSampled) => {}
        result => result?,
    }
    Ok(decoder)
}

/// Returns the requested contexts, or the default ones.
///
/// # Errors
/// Returns an error if a round of `tokens` tokens does not fit into one of them.
pub(super) fn contexts(ctx: &[u32], tokens: u32, outline: &Outline) -> Result<Vec<u32>, Failure> {
    let limit = outline.config.context;
    let needed = |ctx: &u32| u64::from(*ctx) + u64::from(tokens) - 1;
    let mut contexts = ctx.to_vec();
    if contexts.is_empty() {
        // The first stays, so that a model that has too few positions is reported.
        contexts.extend(
            [128, 4096]
                .into_iter()
                .filter(|ctx| *ctx == 128 || needed(ctx) <= limit.into()),
        );
    }

    match contexts.iter().find(|ctx| needed(ctx) > limit.into()) {
        None => Ok(contexts),
        Some(ctx) => Err(Failure::Input(format!(
            "{tokens} tokens from context {ctx} on need {} positions; this model has {limit}",
            needed(ctx)
        ))),
    }
}

/// Returns the largest context.
pub(super) fn largest(contexts: &[u32]) -> u32 {
    *contexts.iter().max().expect("the list is never empty")
}
