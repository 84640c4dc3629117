//! The settings of a trainer.

use warpwright_kernels::ProductTile;
use warpwright_kernels::train::flash::TensorOp;
use warpwright_model::RopePairing;

use crate::{Config, Lora, Training};

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

/// The settings of a [`Trainer`](super::Trainer). [`Settings::new`] has defaults for all but the
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
    pub(super) fn chunk(&self) -> u32 {
        self.head_chunk.min(self.tokens) as u32
    }
}
