//! The overlapped decode pipeline: kernels over weights that are packed into [tiles](crate::Tile),
//! and the kernels that pack them.
//!
//! A layer is five kernels: [`Qkv`], attention, [`Project`], [`GateUp`] and [`Project`]. [`LmHead`]
//! ends a token. Models with head norms have a sixth kernel, [`HeadNorm`], before attention. Models
//! with norms after attention and the feed-forward network have an [`AddNormed`]
//! after each [`Project`].
//!
//! A layer with a mixture of experts has three kernels instead of [`GateUp`] and the second
//! [`Project`]: [`ExpertLogits`], [`ExpertGateUp`] and [`ExpertDown`].
//!
//! Some families need more of a kernel, which is a separate kernel with further arguments:
//! [`WithLora`], [`WithBias`], [`WithExpertBiases`], [`WithSinks`] and [`Paged`].
//!
//! The rows of a matrix are whole tiles. Shorter rows are padded with zeros, and
//! [`Plan::row_len`](field@Plan::row_len) is then the length of the residual stream and of the norm.
//!
//! Each kernel is launched with programmatic dependent launch. It starts while its predecessor is
//! still running, fills its ring of weights, and then waits for the predecessor's results. The
//! weights never change, so they need no wait, and memory stays busy across the boundary between
//! two kernels. See [`stream`].
//!
//! # Batches of tokens
//!
//! Each kernel processes a batch of one to eight tokens at consecutive positions of one sequence,
//! and reads the weights once for all of them. The batch is a field of the kernel's definition.
//! Decoding uses 1. Buffers with data per token have one row per token: state, activations, angles,
//! queries and results. Keys and values of all tokens go to the same cache, each at its position,
//! before attention reads any of them.
//!
//! - The weights of a tile are unpacked once. They stay in registers while they are multiplied by
//!   one token after another. Each token has its own sums ([`stream`]), which are bit-identical to
//!   the sums in a batch of one.
//! - Shared memory holds the activations of the whole batch: 2.5 bytes each for quantized weights,
//!   3.5 with a third byte, and 4 for other weights. For example, 8 x 4,096 activations take 82 KB,
//!   but 8 x 14,336 exceed the limit of a block. The contract rejects a batch that does not fit,
//!   and the caller then launches the kernel several times with a smaller batch. Encoded
//!   activations never go through global memory, because loading them for each tile would cost
//!   twice their bytes.
//! - With a batch, a block occupies its SM alone, because shared memory is too small for two.
//! - Attention uses separate blocks for each token. They read the same keys and values.
//! - [`LmHead`] stores the argmax token of each token of a batch and does not update the state. The
//!   caller knows which tokens continue, because it assigned them: [`SplitPrompt`] for a prompt,
//!   [`PlaceDrafts`] for guesses.

pub mod add_normed;
pub mod advance;
pub mod attention;
mod batch;
mod bias;
pub mod block_float;
mod contract;
mod embed;
mod experts;
mod gate_up;
pub mod gemv;
mod head;
mod head_norm;
mod lora_a;
pub mod pack;
mod paged;
mod place_drafts;
mod project;
mod qkv;
pub(super) mod reference;
mod split_prompt;
pub(crate) mod variants;

pub use add_normed::{AddNormed, AddNormedArgs};
pub use advance::Advance;
pub use attention::{
    PipelinedAttention, PipelinedAttentionArgs, SinkArgs, WithSinks, WithSinksArgs,
};
pub use bias::{BiasArgs, BiasedProduct, WithBias, WithBiasArgs};
pub use embed::{EmbedRows, EmbedTiled, EmbedTokenArgs};
pub use experts::down::{ExpertDown, ExpertDownArgs};
pub use experts::gate_up::{
    ExpertActivation, ExpertBiasArgs, ExpertGateUp, ExpertGateUpArgs, WithExpertBiases,
    WithExpertBiasesArgs,
};
pub use experts::logits::{ExpertLogits, ExpertLogitsArgs};
pub use gate_up::{GateUp, GateUpArgs};
pub(crate) use gemv::case::Packed;
pub use gemv::choose_experts::{MAX_CHOSEN, MAX_EXPERTS};
pub use gemv::layout::{Layout, Segments};
pub use gemv::lora::{self, LoraArgs, LoraProduct, WithLora, WithLoraArgs};
pub use gemv::plan::{self, Copies, Plan};
pub use gemv::stream::{self, StreamArgs};
pub use head::{LmHead, LmHeadArgs};
pub use head_norm::{AngleSet, HeadNorm, HeadNormArgs};
pub use lora_a::{LORA_A_SHARED, LoraA, LoraAArgs, LoraANormed, LoraANormedArgs};
pub use pack::{Pack, PackArgs};
pub use paged::{CacheKernel, PageTableArgs, Paged, PagedArgs};
pub use place_drafts::{DRAFTS_HEAD, PlaceDrafts, PlaceDraftsArgs};
pub use project::{Project, ProjectArgs, ProjectOutput};
pub use qkv::{Qkv, QkvArgs, QkvOutput};
pub use split_prompt::{MAX_PROMPT_BATCH, SplitPrompt, SplitPromptArgs};
