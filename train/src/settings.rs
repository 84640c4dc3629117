//! The settings of a training run: adapters, optimizer, and the step on a device.

use std::ops::RangeInclusive;

use warpwright_kernels::ProductTile;
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::optimizer::adamw::AdamW;
use warpwright_kernels::train::optimizer::schedule::Schedule;
use warpwright_model::RopePairing;

use crate::{Config, Error, Projection};

/// The settings of the adapters. [`Lora::new`] has defaults for all but the rank.
#[derive(Clone, PartialEq, Debug)]
pub struct Lora {
    /// The rank of the adapters.
    pub rank: usize,
    /// The numerator of the scale `alpha / rank`.
    pub alpha: f64,
    /// The fraction of input elements that are dropped.
    pub dropout: f64,
    /// The seed of dropout.
    pub seed: u64,
    /// The projections with an adapter.
    pub targets: Vec<Projection>,
}

/// The settings of the optimizer.
///
/// The default is a constant learning rate of 2e-4, AdamW without weight decay, and gradients
/// clipped to a norm of 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Training {
    /// The schedule of learning rates.
    pub schedule: Schedule,
    /// The constants of AdamW.
    pub adamw: AdamW,
    /// The maximum norm of a step's gradients.
    pub max_norm: f64,
}

/// The type of the tensors in memory between the kernels of a step.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Precision {
    /// `f32` with simple kernels, for models of every size on every device.
    #[default]
    F32,
    /// `bf16` on the tensor cores of sm_90a. Adapters, moments, gradients and all sums are `f32`.
    Bf16,
}

/// The intermediate results that the backward pass computes again instead of keeping them (gradient
/// checkpointing: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016,
/// <https://arxiv.org/abs/1604.06174>). The results have the same bits in each case.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Recomputation {
    /// Nothing is computed again.
    #[default]
    None,
    /// The inputs of projections that are the output of a norm or of SwiGLU. All layers share one
    /// buffer for each.
    Cheap,
    /// Everything in a layer but the residual stream before it.
    Layers,
}

/// The way in which a step is launched on the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Launch {
    /// One graph per micro-batch, built node by node.
    #[default]
    Graph,
    /// One graph per micro-batch, captured from a stream by the driver.
    Capture,
    /// One launch per kernel, without a graph.
    Eager,
}

/// The tile sizes of matmuls in `bf16`. They do not change the results.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Tiles {
    /// The tile that wastes least, for each matmul. From 2,048 tokens on, wide matmuls use pairs of
    /// blocks.
    #[default]
    Fitting,
    /// A fixed tile for every matmul, so that a small model can run the kernels of a large one.
    Only(ProductTile),
}

/// The kernels that unpack frozen NF4 matrices in a `bf16` step. They do not change the results.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Unpacking {
    /// The faster way for the number of tokens: `Ahead` from 2,048 tokens on, and `Apart` below.
    #[default]
    Fitting,
    /// Idle warps of the previous matmul, in layers whose matrices are all in NF4 with an `f32`
    /// `absmax`. Other layers use separate kernels.
    Ahead,
    /// A separate kernel before each matmul.
    Apart,
}

/// The settings of a [`Trainer`](crate::Trainer). [`Settings::new`] has defaults for all but the
/// model and the adapters.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The sizes of the model.
    pub config: Config,
    /// The settings of the adapters.
    pub lora: Lora,
    /// The settings of the optimizer.
    pub training: Training,
    /// The dimensions of a head that RoPE rotates together.
    pub pairing: RopePairing,
    /// The maximum number of tokens in a micro-batch, including padding.
    pub tokens: usize,
    /// The number of tokens whose logits are in memory at the same time.
    pub head_chunk: usize,
    /// The intermediate results that the backward pass computes again.
    pub recomputation: Recomputation,
    /// The way in which a step is launched on the device.
    pub launch: Launch,
    /// The type of the tensors in memory.
    pub precision: Precision,
    /// The tiles of matmuls in `bf16`.
    pub tiles: Tiles,
    /// The kernels that unpack NF4.
    pub unpacking: Unpacking,
    /// The instruction that attention in `bf16` uses for heads of 64 and 128 dimensions. Other
    /// heads use `mma`.
    pub attention: TensorOp,
}

impl Settings {
    /// Returns the number of tokens whose logits are in memory at the same time.
    pub(crate) fn chunk(&self) -> u32 {
        self.head_chunk.min(self.tokens) as u32
    }
}

impl Default for Training {
    fn default() -> Training {
        Training {
            schedule: Schedule::constant(2e-4),
            adamw: AdamW::default(),
            max_norm: 1.0,
        }
    }
}

impl Lora {
    /// Returns adapters of this rank on all seven projections, with `alpha = 2 * rank`, no dropout
    /// and seed 0.
    pub fn new(rank: usize) -> Lora {
        Lora {
            rank,
            alpha: 2.0 * rank as f64,
            dropout: 0.0,
            seed: 0,
            targets: Projection::ALL.to_vec(),
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`Error::Setting`] for the first setting that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        Error::unless(self.rank > 0, "rank", self.rank, "at least 1")?;
        Error::unless(
            (0.0..1.0).contains(&self.dropout),
            "dropout",
            self.dropout,
            "from 0 to below 1",
        )?;

        // The device stores the scale in f32.
        let scale = self.scale() as f32;
        Error::unless(
            scale > 0.0 && scale.is_finite(),
            "alpha",
            self.alpha,
            "above 0, and finite in f32 by the rank",
        )
    }

    /// Returns the number of trainable parameters in a model with these sizes.
    pub fn trainable(&self, config: &Config) -> u64 {
        let parameters = |[n, k]: [usize; 2]| (self.rank * (n + k)) as u64;
        let per_layer: u64 = self
            .targets
            .iter()
            .map(|p| parameters(p.shape(config)))
            .sum();
        per_layer * config.layers as u64
    }

    /// Returns the factor of `B A x`, which combines the scales of LoRA and of dropout: `alpha /
    /// (rank (1 - dropout))`.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64 / (1.0 - self.dropout)
    }
}

impl Training {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`Error::Setting`] for the first setting that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        const BETA: RangeInclusive<f64> = 0.0..=1.0 - f64::EPSILON;
        let AdamW {
            beta1,
            beta2,
            eps,
            decay,
        } = self.adamw;
        Error::unless(BETA.contains(&beta1), "beta1", beta1, "from 0 to below 1")?;
        Error::unless(BETA.contains(&beta2), "beta2", beta2, "from 0 to below 1")?;
        Error::unless(eps >= 0.0, "the optimizer's eps", eps, "0 or more")?;
        Error::unless(
            decay >= 0.0 && (decay as f32).is_finite(),
            "weight decay",
            decay,
            "0 or more, and finite in f32",
        )?;
        Error::unless(
            self.max_norm as f32 > 0.0,
            "max_norm",
            self.max_norm,
            "above 0 in f32",
        )
    }
}
