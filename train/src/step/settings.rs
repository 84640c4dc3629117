//! What shapes a trainer.

use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::{Pairing, ProductTile};

use crate::{Config, Lora, Training};

/// What tensors are in memory between the kernels of a step.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Precision {
    /// `f32`, by simple kernels, for models of every size on every device.
    #[default]
    F32,
    /// `bf16`, on the tensor cores of sm_90a. Adapters, moments, gradients and all sums are `f32`.
    Bf16,
}

/// What the backward computes again instead of having it kept (gradient checkpointing: Chen et al., arXiv:1604.06174). The
/// results have the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Recomputation {
    /// Nothing.
    #[default]
    None,
    /// The inputs of projections that a norm or SwiGLU makes of what is kept: one buffer each for all layers.
    Cheap,
    /// All of a layer but the residual stream before it.
    Layers,
}

/// How a step reaches the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Launch {
    /// As one hand-built graph for each micro-batch.
    #[default]
    Graph,
    /// The same, captured from a stream by the driver.
    Capture,
    /// Kernel by kernel.
    Eager,
}

/// The tiles that blocks compute of products in `bf16`. They change no bit of a result.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Tiles {
    /// Of each product the tile that wastes least; from 2,048 tokens on wide ones are of blocks in pairs.
    #[default]
    Fitting,
    /// This tile for each product whatever its size, so that a small model can show what the kernels of a large one do.
    Only(ProductTile),
}

/// What unpacks frozen matrices in NF4 in a step in `bf16`. It changes no bit of a result.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Unpacking {
    /// What is faster for so many tokens: from 2,048 on ahead, else apart.
    #[default]
    Fitting,
    /// Idle warps of the product before, in layers whose matrices are all in NF4 with `absmax` in `f32`; else apart.
    Ahead,
    /// A kernel of its own before each product.
    Apart,
}

/// The settings of a [`Trainer`](super::Trainer). [`Settings::new`] has defaults for all but the model and the adapters.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The sizes of the model.
    pub config: Config,
    /// The settings of the adapters.
    pub lora: Lora,
    /// The settings of the optimizer.
    pub training: Training,
    /// The dimensions of a head that RoPE rotates together.
    pub pairing: Pairing,
    /// The largest number of tokens in a micro-batch, with padding.
    pub tokens: usize,
    /// The number of tokens whose logits are in memory at the same time.
    pub head_chunk: usize,
    /// The intermediate results that the backward computes again.
    pub recomputation: Recomputation,
    /// The way a step is launched on the device.
    pub launch: Launch,
    /// The type of the tensors in memory.
    pub precision: Precision,
    /// The tiles of matmuls in `bf16`.
    pub tiles: Tiles,
    /// The kernels that unpack NF4.
    pub unpacking: Unpacking,
    /// The instruction that attention in `bf16` uses for heads of 64 and 128 dimensions. Other heads use `mma`.
    pub attention: TensorOp,
}

impl Settings {
    /// Tokens that have logits at once.
    pub(super) fn chunk(&self) -> u32 {
        self.head_chunk.min(self.tokens) as u32
    }
}
