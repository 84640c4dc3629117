//! The kernels that decode language models, written in [`ptx_gen`].
//!
//! Each file is one kernel: its formula, its arguments, its launch contract, its program, and a naive CPU reference,
//! which is the specification. [`ALL`] lists every shipped variant; snapshots, `ptxas`, the emulator, `check` and
//! benchmarks walk it.
//!
//! The simple kernels read weights as a GGUF file stores them, row by row, and run on sm_75 and newer. The kernels of
//! the overlapped pipeline ([`tiled`]) read packed tiles and run on sm_80 and newer. Activations and sums are `f32`.
//! No kernel assumes a size that its contract does not check.

#![forbid(unsafe_code)]

pub mod advance;
pub mod argmax;
pub mod attention;
mod cache;
pub mod case;
mod contract;
pub mod embed;
pub mod format;
mod fragment;
pub mod gemv;
pub mod read;
pub mod reduce;
pub mod rms_norm;
pub mod rope;
pub mod state;
pub mod swiglu;
pub mod tiled;

pub use advance::Advance;
pub use argmax::{ArgmaxBlocks, ArgmaxFinal};
pub use attention::{Attention, AttentionCombine};
pub use case::{Case, Comparison, Random, Variant, compare};
pub use embed::Embed;
pub use format::Format;
pub use gemv::{Gemv, GemvAdd, GemvBias, Team};
pub use read::Read;
pub use rms_norm::RmsNorm;
pub use rope::{Pairing, Rope};
pub use swiglu::SwiGlu;
pub use tiled::{EmbedRows, EmbedTiled, Pack, RowOrder, Tile};

/// Every shipped variant, in the order of a forward pass, followed by the packing and the measuring kernels.
pub static ALL: &[&dyn Variant] = &[
    &Embed { format: Format::F32 },
    &Embed { format: Format::F16 },
    &Embed { format: Format::BF16 },
    &Embed { format: Format::Q4_0 },
    &Embed { format: Format::Q4_1 },
    &Embed { format: Format::Q5_0 },
    &Embed { format: Format::Q5_1 },
    &Embed { format: Format::Q8_0 },
    &Embed { format: Format::Q4_K },
    &Embed { format: Format::Q5_K },
    &Embed { format: Format::Q6_K },
    &EmbedTiled { format: Format::F16, overlap: true, batch: 1 },
    &EmbedTiled { format: Format::BF16, overlap: true, batch: 1 },
    &EmbedTiled { format: Format::Q4_0, overlap: true, batch: 1 },
    &EmbedTiled { format: Format::Q8_0, overlap: true, batch: 1 },
    &EmbedTiled { format: Format::Q4_K, overlap: true, batch: 1 },
    &EmbedTiled { format: Format::Q5_K, overlap: true, batch: 1 },
    &EmbedTiled { format: Format::Q6_K, overlap: true, batch: 1 },
    &EmbedRows { format: Format::F32, overlap: true, batch: 1 },
    &EmbedRows { format: Format::F16, overlap: true, batch: 1 },
    &EmbedRows { format: Format::BF16, overlap: true, batch: 1 },
    &EmbedRows { format: Format::Q4_0, overlap: true, batch: 1 },
    &EmbedRows { format: Format::Q4_1, overlap: true, batch: 1 },
    &EmbedRows { format: Format::Q5_0, overlap: true, batch: 1 },
    &EmbedRows { format: Format::Q5_1, overlap: true, batch: 1 },
    &EmbedRows { format: Format::Q8_0, overlap: true, batch: 1 },
    &EmbedRows { format: Format::Q4_K, overlap: true, batch: 1 },
    &EmbedRows { format: Format::Q5_K, overlap: true, batch: 1 },
    &EmbedRows { format: Format::Q6_K, overlap: true, batch: 1 },
    &EmbedTiled { format: Format::Q6_K, overlap: false, batch: 1 },
    &EmbedRows { format: Format::Q4_K, overlap: false, batch: 1 },
    &EmbedTiled { format: Format::Q6_K, overlap: true, batch: 8 },
    &EmbedRows { format: Format::Q4_K, overlap: true, batch: 8 },
    &RmsNorm { threads: 256 },
    &RmsNorm { threads: 1024 },
    &Gemv { format: Format::F32, team: Team::Warp },
    &Gemv { format: Format::F32, team: Team::Block },
    &Gemv { format: Format::F16, team: Team::Warp },
    &Gemv { format: Format::F16, team: Team::Block },
    &Gemv { format: Format::BF16, team: Team::Warp },
    &Gemv { format: Format::BF16, team: Team::Block },
    &Gemv { format: Format::Q4_0, team: Team::Warp },
    &Gemv { format: Format::Q4_0, team: Team::Block },
    &Gemv { format: Format::Q4_1, team: Team::Warp },
    &Gemv { format: Format::Q4_1, team: Team::Block },
    &Gemv { format: Format::Q5_0, team: Team::Warp },
    &Gemv { format: Format::Q5_0, team: Team::Block },
    &Gemv { format: Format::Q5_1, team: Team::Warp },
    &Gemv { format: Format::Q5_1, team: Team::Block },
    &Gemv { format: Format::Q8_0, team: Team::Warp },
    &Gemv { format: Format::Q8_0, team: Team::Block },
    &Gemv { format: Format::Q4_K, team: Team::Warp },
    &Gemv { format: Format::Q4_K, team: Team::Block },
    &Gemv { format: Format::Q5_K, team: Team::Warp },
    &Gemv { format: Format::Q5_K, team: Team::Block },
    &Gemv { format: Format::Q6_K, team: Team::Warp },
    &Gemv { format: Format::Q6_K, team: Team::Block },
    &GemvBias { format: Format::F32, team: Team::Warp },
    &GemvBias { format: Format::F32, team: Team::Block },
    &GemvBias { format: Format::F16, team: Team::Warp },
    &GemvBias { format: Format::F16, team: Team::Block },
    &GemvBias { format: Format::BF16, team: Team::Warp },
    &GemvBias { format: Format::BF16, team: Team::Block },
    &GemvBias { format: Format::Q4_0, team: Team::Warp },
    &GemvBias { format: Format::Q4_0, team: Team::Block },
    &GemvBias { format: Format::Q4_1, team: Team::Warp },
    &GemvBias { format: Format::Q4_1, team: Team::Block },
    &GemvBias { format: Format::Q5_0, team: Team::Warp },
    &GemvBias { format: Format::Q5_0, team: Team::Block },
    &GemvBias { format: Format::Q5_1, team: Team::Warp },
    &GemvBias { format: Format::Q5_1, team: Team::Block },
    &GemvBias { format: Format::Q8_0, team: Team::Warp },
    &GemvBias { format: Format::Q8_0, team: Team::Block },
    &GemvBias { format: Format::Q4_K, team: Team::Warp },
    &GemvBias { format: Format::Q4_K, team: Team::Block },
    &GemvBias { format: Format::Q5_K, team: Team::Warp },
    &GemvBias { format: Format::Q5_K, team: Team::Block },
    &GemvBias { format: Format::Q6_K, team: Team::Warp },
    &GemvBias { format: Format::Q6_K, team: Team::Block },
    &GemvAdd { format: Format::F32, team: Team::Warp },
    &GemvAdd { format: Format::F32, team: Team::Block },
    &GemvAdd { format: Format::F16, team: Team::Warp },
    &GemvAdd { format: Format::F16, team: Team::Block },
    &GemvAdd { format: Format::BF16, team: Team::Warp },
    &GemvAdd { format: Format::BF16, team: Team::Block },
    &GemvAdd { format: Format::Q4_0, team: Team::Warp },
    &GemvAdd { format: Format::Q4_0, team: Team::Block },
    &GemvAdd { format: Format::Q4_1, team: Team::Warp },
    &GemvAdd { format: Format::Q4_1, team: Team::Block },
    &GemvAdd { format: Format::Q5_0, team: Team::Warp },
    &GemvAdd { format: Format::Q5_0, team: Team::Block },
    &GemvAdd { format: Format::Q5_1, team: Team::Warp },
    &GemvAdd { format: Format::Q5_1, team: Team::Block },
    &GemvAdd { format: Format::Q8_0, team: Team::Warp },
    &GemvAdd { format: Format::Q8_0, team: Team::Block },
    &GemvAdd { format: Format::Q4_K, team: Team::Warp },
    &GemvAdd { format: Format::Q4_K, team: Team::Block },
    &GemvAdd { format: Format::Q5_K, team: Team::Warp },
    &GemvAdd { format: Format::Q5_K, team: Team::Block },
    &GemvAdd { format: Format::Q6_K, team: Team::Warp },
    &GemvAdd { format: Format::Q6_K, team: Team::Block },
    &Rope { pairing: Pairing::Interleaved },
    &Rope { pairing: Pairing::HalfSplit },
    &Attention { head_dim: 64, queries: 1 },
    &Attention { head_dim: 64, queries: 2 },
    &Attention { head_dim: 64, queries: 3 },
    &Attention { head_dim: 64, queries: 4 },
    &Attention { head_dim: 64, queries: 7 },
    &Attention { head_dim: 64, queries: 8 },
    &Attention { head_dim: 80, queries: 1 },
    &Attention { head_dim: 96, queries: 1 },
    &Attention { head_dim: 128, queries: 1 },
    &Attention { head_dim: 128, queries: 2 },
    &Attention { head_dim: 128, queries: 3 },
    &Attention { head_dim: 128, queries: 4 },
    &Attention { head_dim: 128, queries: 5 },
    &Attention { head_dim: 128, queries: 6 },
    &Attention { head_dim: 128, queries: 7 },
    &Attention { head_dim: 128, queries: 8 },
    &Attention { head_dim: 256, queries: 1 },
    &Attention { head_dim: 256, queries: 2 },
    &Attention { head_dim: 256, queries: 4 },
    &Attention { head_dim: 256, queries: 8 },
    &AttentionCombine { head_dim: 64 },
    &AttentionCombine { head_dim: 80 },
    &AttentionCombine { head_dim: 96 },
    &AttentionCombine { head_dim: 128 },
    &AttentionCombine { head_dim: 256 },
    &tiled::Qkv::with_default_plan([Format::Q4_K; 3], Pairing::Interleaved, false),
    &tiled::Qkv::with_default_plan([Format::Q4_K, Format::Q4_K, Format::Q6_K], Pairing::HalfSplit, true),
    &tiled::Qkv::with_default_plan([Format::Q8_0; 3], Pairing::HalfSplit, false),
    &tiled::Qkv::with_default_plan([Format::BF16; 3], Pairing::Interleaved, true),
    &tiled::Qkv::with_default_plan([Format::F16; 3], Pairing::HalfSplit, false),
    &tiled::Qkv::with_default_plan([Format::Q4_0; 3], Pairing::Interleaved, false),
    &tiled::Qkv::with_default_plan([Format::Q5_K, Format::Q5_K, Format::Q6_K], Pairing::HalfSplit, true),
    &tiled::Qkv {
        plan: tiled::Plan::DEFAULT_ASYNC,
        ..tiled::Qkv::with_default_plan([Format::Q4_K, Format::Q4_K, Format::Q6_K], Pairing::HalfSplit, true)
    },
    &tiled::Qkv {
        plan: tiled::Plan::HALF_SHORT_ROWS,
        ..tiled::Qkv::with_default_plan([Format::BF16; 3], Pairing::HalfSplit, true)
    },
    &tiled::Qkv {
        plan: tiled::Plan::HALF,
        ..tiled::Qkv::with_default_plan([Format::BF16; 3], Pairing::Interleaved, false)
    },
    &tiled::Qkv {
        finish: tiled::Finish::Raw,
        ..tiled::Qkv::with_default_plan([Format::Q4_K, Format::Q4_K, Format::Q6_K], Pairing::HalfSplit, false)
    },
    &tiled::Qkv {
        finish: tiled::Finish::Raw,
        ..tiled::Qkv::with_default_plan([Format::BF16; 3], Pairing::HalfSplit, true)
    },
    &tiled::Qkv {
        plan: tiled::Plan::DEFAULT.with_batch(8),
        ..tiled::Qkv::with_default_plan([Format::Q4_K, Format::Q4_K, Format::Q6_K], Pairing::HalfSplit, true)
    },
    &tiled::Qkv {
        plan: tiled::Plan::HALF.with_batch(8),
        ..tiled::Qkv::with_default_plan([Format::BF16; 3], Pairing::Interleaved, false)
    },
    &tiled::Qkv {
        finish: tiled::Finish::Raw,
        plan: tiled::Plan::DEFAULT.with_batch(8),
        ..tiled::Qkv::with_default_plan([Format::Q5_K; 3], Pairing::HalfSplit, false)
    },
    &tiled::HeadNorm { overlap: true, batch: 1 },
    &tiled::HeadNorm { overlap: false, batch: 1 },
    &tiled::HeadNorm { overlap: true, batch: 8 },
    &tiled::PipelinedAttention::new(64, 1),
    &tiled::PipelinedAttention::new(64, 2),
    &tiled::PipelinedAttention::new(64, 3),
    &tiled::PipelinedAttention::new(64, 4),
    &tiled::PipelinedAttention::new(64, 7),
    &tiled::PipelinedAttention::new(64, 8),
    &tiled::PipelinedAttention::new(80, 1),
    &tiled::PipelinedAttention::new(96, 1),
    &tiled::PipelinedAttention::new(128, 1),
    &tiled::PipelinedAttention::new(128, 2),
    &tiled::PipelinedAttention::new(128, 3),
    &tiled::PipelinedAttention::new(128, 4),
    &tiled::PipelinedAttention::new(128, 5),
    &tiled::PipelinedAttention::new(128, 6),
    &tiled::PipelinedAttention::new(128, 7),
    &tiled::PipelinedAttention::new(128, 8),
    &tiled::PipelinedAttention::new(128, 9),
    &tiled::PipelinedAttention::new(128, 16),
    &tiled::PipelinedAttention::new(256, 1),
    &tiled::PipelinedAttention::new(256, 2),
    &tiled::PipelinedAttention::new(256, 4),
    &tiled::PipelinedAttention::new(256, 8),
    &tiled::PipelinedAttention::new(64, 7).with_batch(8),
    &tiled::PipelinedAttention::new(128, 1).with_batch(3),
    &tiled::PipelinedAttention::new(128, 4).with_batch(8),
    &tiled::PipelinedAttention::new(128, 9).with_batch(2),
    &tiled::PipelinedAttention::without_overlap(64, 1),
    &tiled::PipelinedAttention::without_overlap(128, 4),
    &tiled::PipelinedAttention::without_overlap(256, 9),
    &tiled::PipelinedAttention::without_overlap(128, 4).with_batch(8),
    &tiled::Project { format: Format::Q4_0, plan: tiled::Plan::THROTTLED },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::THROTTLED },
    &tiled::Project { format: Format::Q5_K, plan: tiled::Plan::THROTTLED },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::DEFAULT },
    &tiled::Project { format: Format::Q8_0, plan: tiled::Plan::DEFAULT },
    &tiled::Project { format: Format::F16, plan: tiled::Plan::HALF },
    &tiled::Project { format: Format::BF16, plan: tiled::Plan::HALF },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::TWELVE_WARPS_THROTTLED },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::TWELVE_WARPS },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::THROTTLED },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::TWELVE_WARPS_THROTTLED },
    &tiled::Project { format: Format::BF16, plan: tiled::Plan::HALF_SHORT_ROWS },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::DEFAULT_ASYNC },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::DEFAULT.with_batch(8) },
    &tiled::Project { format: Format::Q4_0, plan: tiled::Plan::DEFAULT.with_batch(4) },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::DEFAULT.with_batch(8) },
    &tiled::Project { format: Format::F16, plan: tiled::Plan::HALF.with_batch(4) },
    &tiled::Project { format: Format::BF16, plan: tiled::Plan::HALF_SHORT_ROWS.with_batch(8) },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::DEFAULT_ASYNC.with_batch(4) },
    &tiled::GateUp { format: Format::Q4_0, plan: tiled::Plan::THROTTLED },
    &tiled::GateUp { format: Format::Q4_K, plan: tiled::Plan::THROTTLED },
    &tiled::GateUp { format: Format::Q5_K, plan: tiled::Plan::THROTTLED },
    &tiled::GateUp { format: Format::Q6_K, plan: tiled::Plan::DEFAULT },
    &tiled::GateUp { format: Format::Q8_0, plan: tiled::Plan::DEFAULT },
    &tiled::GateUp { format: Format::F16, plan: tiled::Plan::HALF },
    &tiled::GateUp { format: Format::BF16, plan: tiled::Plan::HALF },
    &tiled::GateUp { format: Format::BF16, plan: tiled::Plan::HALF_SHORT_ROWS },
    &tiled::GateUp { format: Format::Q8_0, plan: tiled::Plan::DEFAULT_ASYNC },
    &tiled::GateUp { format: Format::Q4_K, plan: tiled::Plan::DEFAULT.with_batch(8) },
    &tiled::GateUp { format: Format::Q8_0, plan: tiled::Plan::DEFAULT.with_batch(8) },
    &tiled::GateUp { format: Format::F16, plan: tiled::Plan::HALF.with_batch(2) },
    &tiled::LmHead { format: Format::Q4_0, plan: tiled::Plan::DEFAULT },
    &tiled::LmHead { format: Format::Q4_K, plan: tiled::Plan::DEFAULT },
    &tiled::LmHead { format: Format::Q5_K, plan: tiled::Plan::DEFAULT },
    &tiled::LmHead { format: Format::Q6_K, plan: tiled::Plan::DEFAULT },
    &tiled::LmHead { format: Format::Q8_0, plan: tiled::Plan::DEFAULT },
    &tiled::LmHead { format: Format::F16, plan: tiled::Plan::HALF },
    &tiled::LmHead { format: Format::BF16, plan: tiled::Plan::HALF },
    &tiled::LmHead { format: Format::BF16, plan: tiled::Plan::DEFAULT_ASYNC },
    &tiled::LmHead { format: Format::Q6_K, plan: tiled::Plan::DEFAULT.with_batch(8) },
    &tiled::LmHead { format: Format::BF16, plan: tiled::Plan::HALF.with_batch(4) },
    &tiled::SplitPrompt { batch: 8 },
    &SwiGlu { threads: 256 },
    &ArgmaxBlocks { threads: 256 },
    &ArgmaxFinal,
    &Advance,
    &Pack { format: Format::F16 },
    &Pack { format: Format::BF16 },
    &Pack { format: Format::Q4_0 },
    &Pack { format: Format::Q8_0 },
    &Pack { format: Format::Q4_K },
    &Pack { format: Format::Q5_K },
    &Pack { format: Format::Q6_K },
    &Read::ALL[0],
    &Read::ALL[1],
    &Read::ALL[2],
];
