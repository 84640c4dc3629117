//! The kernels that decode language models, written in [`ptx_gen`].
//!
//! Each file is one kernel: its formula, its arguments, its launch contract, its program, and the same on the
//! CPU the obvious way, which is the specification. [`ALL`] lists every shipped variant; snapshots, `ptxas`, the
//! emulator, `check` and benchmarks walk it.
//!
//! Weights are the bytes of a GGUF file, row by row; activations and sums are `f32`. Kernels over rows run
//! from sm_75 up, those of a chain ([`tiled`]) from sm_80; none assumes a size that its contract does not check.

#![forbid(unsafe_code)]

pub mod advance;
pub mod argmax;
pub mod attention;
pub mod case;
mod contract;
pub mod embed;
pub mod format;
pub mod gemv;
mod piece;
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
pub use tiled::{EmbedRows, EmbedTiled, Pack, Rows, Tile};

/// Every shipped variant, in the order of a forward pass; then what packs weights, and what measures.
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
    &EmbedTiled { format: Format::F16, chained: true, columns: 1 },
    &EmbedTiled { format: Format::BF16, chained: true, columns: 1 },
    &EmbedTiled { format: Format::Q4_0, chained: true, columns: 1 },
    &EmbedTiled { format: Format::Q8_0, chained: true, columns: 1 },
    &EmbedTiled { format: Format::Q4_K, chained: true, columns: 1 },
    &EmbedTiled { format: Format::Q5_K, chained: true, columns: 1 },
    &EmbedTiled { format: Format::Q6_K, chained: true, columns: 1 },
    &EmbedRows { format: Format::F32, chained: true, columns: 1 },
    &EmbedRows { format: Format::F16, chained: true, columns: 1 },
    &EmbedRows { format: Format::BF16, chained: true, columns: 1 },
    &EmbedRows { format: Format::Q4_0, chained: true, columns: 1 },
    &EmbedRows { format: Format::Q4_1, chained: true, columns: 1 },
    &EmbedRows { format: Format::Q5_0, chained: true, columns: 1 },
    &EmbedRows { format: Format::Q5_1, chained: true, columns: 1 },
    &EmbedRows { format: Format::Q8_0, chained: true, columns: 1 },
    &EmbedRows { format: Format::Q4_K, chained: true, columns: 1 },
    &EmbedRows { format: Format::Q5_K, chained: true, columns: 1 },
    &EmbedRows { format: Format::Q6_K, chained: true, columns: 1 },
    &EmbedTiled { format: Format::Q6_K, chained: false, columns: 1 },
    &EmbedRows { format: Format::Q4_K, chained: false, columns: 1 },
    &EmbedTiled { format: Format::Q6_K, chained: true, columns: 8 },
    &EmbedRows { format: Format::Q4_K, chained: true, columns: 8 },
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
    &tiled::Qkv::shipped([Format::Q4_K; 3], Pairing::Interleaved, false),
    &tiled::Qkv::shipped([Format::Q4_K, Format::Q4_K, Format::Q6_K], Pairing::HalfSplit, true),
    &tiled::Qkv::shipped([Format::Q8_0; 3], Pairing::HalfSplit, false),
    &tiled::Qkv::shipped([Format::BF16; 3], Pairing::Interleaved, true),
    &tiled::Qkv::shipped([Format::F16; 3], Pairing::HalfSplit, false),
    &tiled::Qkv::shipped([Format::Q4_0; 3], Pairing::Interleaved, false),
    &tiled::Qkv::shipped([Format::Q5_K, Format::Q5_K, Format::Q6_K], Pairing::HalfSplit, true),
    &tiled::Qkv {
        plan: tiled::Plan::SHIPPED_ASYNC,
        ..tiled::Qkv::shipped([Format::Q4_K, Format::Q4_K, Format::Q6_K], Pairing::HalfSplit, true)
    },
    &tiled::Qkv {
        plan: tiled::Plan::SHORT_HALVES,
        ..tiled::Qkv::shipped([Format::BF16; 3], Pairing::HalfSplit, true)
    },
    &tiled::Qkv {
        plan: tiled::Plan::HALVES,
        ..tiled::Qkv::shipped([Format::BF16; 3], Pairing::Interleaved, false)
    },
    &tiled::Qkv {
        finish: tiled::Finish::Raw,
        ..tiled::Qkv::shipped([Format::Q4_K, Format::Q4_K, Format::Q6_K], Pairing::HalfSplit, false)
    },
    &tiled::Qkv {
        finish: tiled::Finish::Raw,
        ..tiled::Qkv::shipped([Format::BF16; 3], Pairing::HalfSplit, true)
    },
    &tiled::Qkv {
        plan: tiled::Plan::SHIPPED.by(8),
        ..tiled::Qkv::shipped([Format::Q4_K, Format::Q4_K, Format::Q6_K], Pairing::HalfSplit, true)
    },
    &tiled::Qkv {
        plan: tiled::Plan::HALVES.by(8),
        ..tiled::Qkv::shipped([Format::BF16; 3], Pairing::Interleaved, false)
    },
    &tiled::Qkv {
        finish: tiled::Finish::Raw,
        plan: tiled::Plan::SHIPPED.by(8),
        ..tiled::Qkv::shipped([Format::Q5_K; 3], Pairing::HalfSplit, false)
    },
    &tiled::HeadNorm { chained: true, columns: 1 },
    &tiled::HeadNorm { chained: false, columns: 1 },
    &tiled::HeadNorm { chained: true, columns: 8 },
    &tiled::AttentionChained::shipped(64, 1),
    &tiled::AttentionChained::shipped(64, 2),
    &tiled::AttentionChained::shipped(64, 3),
    &tiled::AttentionChained::shipped(64, 4),
    &tiled::AttentionChained::shipped(64, 7),
    &tiled::AttentionChained::shipped(64, 8),
    &tiled::AttentionChained::shipped(80, 1),
    &tiled::AttentionChained::shipped(96, 1),
    &tiled::AttentionChained::shipped(128, 1),
    &tiled::AttentionChained::shipped(128, 2),
    &tiled::AttentionChained::shipped(128, 3),
    &tiled::AttentionChained::shipped(128, 4),
    &tiled::AttentionChained::shipped(128, 5),
    &tiled::AttentionChained::shipped(128, 6),
    &tiled::AttentionChained::shipped(128, 7),
    &tiled::AttentionChained::shipped(128, 8),
    &tiled::AttentionChained::shipped(128, 9),
    &tiled::AttentionChained::shipped(128, 16),
    &tiled::AttentionChained::shipped(256, 1),
    &tiled::AttentionChained::shipped(256, 2),
    &tiled::AttentionChained::shipped(256, 4),
    &tiled::AttentionChained::shipped(256, 8),
    &tiled::AttentionChained::shipped(64, 7).by(8),
    &tiled::AttentionChained::shipped(128, 1).by(3),
    &tiled::AttentionChained::shipped(128, 4).by(8),
    &tiled::AttentionChained::shipped(128, 9).by(2),
    &tiled::AttentionChained::shipped_plain(64, 1),
    &tiled::AttentionChained::shipped_plain(128, 4),
    &tiled::AttentionChained::shipped_plain(256, 9),
    &tiled::AttentionChained::shipped_plain(128, 4).by(8),
    &tiled::Project { format: Format::Q4_0, plan: tiled::Plan::HELD },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::HELD },
    &tiled::Project { format: Format::Q5_K, plan: tiled::Plan::HELD },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::SHIPPED },
    &tiled::Project { format: Format::Q8_0, plan: tiled::Plan::SHIPPED },
    &tiled::Project { format: Format::F16, plan: tiled::Plan::HALVES },
    &tiled::Project { format: Format::BF16, plan: tiled::Plan::HALVES },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::SHORT_HELD },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::SHORT },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::HELD },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::SHORT_HELD },
    &tiled::Project { format: Format::BF16, plan: tiled::Plan::SHORT_HALVES },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::SHIPPED_ASYNC },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::SHIPPED.by(8) },
    &tiled::Project { format: Format::Q4_0, plan: tiled::Plan::SHIPPED.by(4) },
    &tiled::Project { format: Format::Q6_K, plan: tiled::Plan::SHIPPED.by(8) },
    &tiled::Project { format: Format::F16, plan: tiled::Plan::HALVES.by(4) },
    &tiled::Project { format: Format::BF16, plan: tiled::Plan::SHORT_HALVES.by(8) },
    &tiled::Project { format: Format::Q4_K, plan: tiled::Plan::SHIPPED_ASYNC.by(4) },
    &tiled::GateUp { format: Format::Q4_0, plan: tiled::Plan::HELD },
    &tiled::GateUp { format: Format::Q4_K, plan: tiled::Plan::HELD },
    &tiled::GateUp { format: Format::Q5_K, plan: tiled::Plan::HELD },
    &tiled::GateUp { format: Format::Q6_K, plan: tiled::Plan::SHIPPED },
    &tiled::GateUp { format: Format::Q8_0, plan: tiled::Plan::SHIPPED },
    &tiled::GateUp { format: Format::F16, plan: tiled::Plan::HALVES },
    &tiled::GateUp { format: Format::BF16, plan: tiled::Plan::HALVES },
    &tiled::GateUp { format: Format::BF16, plan: tiled::Plan::SHORT_HALVES },
    &tiled::GateUp { format: Format::Q8_0, plan: tiled::Plan::SHIPPED_ASYNC },
    &tiled::GateUp { format: Format::Q4_K, plan: tiled::Plan::SHIPPED.by(8) },
    &tiled::GateUp { format: Format::Q8_0, plan: tiled::Plan::SHIPPED.by(8) },
    &tiled::GateUp { format: Format::F16, plan: tiled::Plan::HALVES.by(2) },
    &tiled::Head { format: Format::Q4_0, plan: tiled::Plan::SHIPPED },
    &tiled::Head { format: Format::Q4_K, plan: tiled::Plan::SHIPPED },
    &tiled::Head { format: Format::Q5_K, plan: tiled::Plan::SHIPPED },
    &tiled::Head { format: Format::Q6_K, plan: tiled::Plan::SHIPPED },
    &tiled::Head { format: Format::Q8_0, plan: tiled::Plan::SHIPPED },
    &tiled::Head { format: Format::F16, plan: tiled::Plan::HALVES },
    &tiled::Head { format: Format::BF16, plan: tiled::Plan::HALVES },
    &tiled::Head { format: Format::BF16, plan: tiled::Plan::SHIPPED_ASYNC },
    &tiled::Head { format: Format::Q6_K, plan: tiled::Plan::SHIPPED.by(8) },
    &tiled::Head { format: Format::BF16, plan: tiled::Plan::HALVES.by(4) },
    &tiled::Deal { columns: 8 },
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
