//! The overlapped decode pipeline: kernels over weights that are packed into [tiles](crate::Tile),
//! and the kernels that pack them.
//!
//! A layer is five kernels: [`Qkv`], attention, [`Project`], [`GateUp`] and [`Project`]. [`LmHead`]
//! ends a token. Models with head norms have a sixth kernel, [`HeadNorm`], before attention. Models
//! with norms after attention and the feed-forward network have an [`AddNormed`](crate::AddNormed)
//! after each [`Project`].
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

pub mod attention;
mod batch;
pub mod block_float;
mod case;
mod consumer;
mod embed;
mod epilogue;
mod gate_up;
mod head;
mod head_norm;
mod layout;
mod load_activations;
pub mod lora;
mod lora_a;
pub mod pack;
mod place_drafts;
pub mod plan;
mod producer;
mod project;
mod qkv;
mod ring;
mod split_prompt;
pub mod stream;

pub use attention::{PipelinedAttention, PipelinedAttentionArgs};
pub(crate) use case::Packed;
pub use embed::{EmbedRows, EmbedTiled, EmbedTokenArgs};
pub use gate_up::{GateUp, GateUpArgs};
pub use head::{LmHead, LmHeadArgs};
pub use head_norm::{AngleSet, HeadNorm, HeadNormArgs};
pub use layout::{Layout, Segments};
pub use lora::{LoraArgs, LoraProduct, WithLora, WithLoraArgs};
pub use lora_a::{LORA_A_SHARED, LoraA, LoraAArgs, LoraANormed, LoraANormedArgs};
pub use pack::{Pack, PackArgs};
pub use place_drafts::{DRAFTS_HEAD, PlaceDrafts, PlaceDraftsArgs};
pub use plan::{Copies, Plan};
pub use project::{Project, ProjectArgs, ProjectOutput};
pub use qkv::{Qkv, QkvArgs, QkvOutput};
pub use split_prompt::{MAX_PROMPT_BATCH, SplitPrompt, SplitPromptArgs};
pub use stream::StreamArgs;

use crate::contract::Contract;
use crate::format::{Format, tile};
use ptx_gen::{Grid, KernelDef, Shape, ShapeError};

/// Checks the parts of a contract that all GEMVs share: matrix, segments and layout. Returns the
/// grid.
fn contract(
    kernel: &impl KernelDef,
    w: usize,
    segments: &Segments,
    plan: Plan,
    n: u32,
    args: &StreamArgs<Shape>,
) -> Result<Grid, ShapeError> {
    let layout = args.layout();
    let wrong = |what: String| kernel.require(false, || what);
    kernel.range("the plan's batch", plan.batch, 1, plan::MAX_BATCH)?;
    segments.check(plan, n, layout).or_else(wrong)?;
    let bytes =
        |&(format, count): &(Format, u32)| count as usize * 16 * format.row_bytes(n as usize);
    kernel.exactly("w", w, segments.0.iter().map(bytes).sum())?;
    kernel.length("progress", args.progress, "blocks", &[layout.blocks])?;
    check_timestamps(kernel, plan.profile, layout.blocks, args.timestamps)?;
    Ok(Grid {
        shared: layout.shared,
        ..Grid::line(layout.blocks)
    })
}

/// Checks that `name` has `batch` times as many elements as the product of `factors`, which
/// `formula` spells.
fn batched(
    kernel: &impl KernelDef,
    batch: u32,
    name: &str,
    found: usize,
    formula: &str,
    factors: &[u32],
) -> Result<(), ShapeError> {
    match batch {
        1 => kernel.length(name, found, formula, factors),
        _ => kernel.length(
            name,
            found,
            &format!("batch * {formula}"),
            &[&[batch], factors].concat(),
        ),
    }
}

/// Checks the lengths of a batch in block floating point: the 16-bit integers and the block scales.
fn bfp_lengths(
    kernel: &impl KernelDef,
    count: u32,
    name: &str,
    [values, scales]: [usize; 2],
    formula: &str,
    factors: &[u32],
) -> Result<(), ShapeError> {
    batched(kernel, count, name, values, formula, factors)?;
    let [first, rest @ ..] = factors else {
        unreachable!("a formula has factors")
    };
    let factors = [&[first / block_float::BFP_BLOCK], rest].concat();
    batched(
        kernel,
        count,
        &format!("{name}_scale"),
        scales,
        &format!("{formula} / 8"),
        &factors,
    )
}

/// Checks that a kernel that profiles has space for the timestamps of each block.
fn check_timestamps(
    kernel: &impl KernelDef,
    profile: bool,
    blocks: u32,
    timestamps: usize,
) -> Result<(), ShapeError> {
    let least = blocks as usize * plan::TIMESTAMPS as usize;
    kernel.require(!profile || timestamps >= least, || {
        format!(
            "timestamps has {timestamps} elements, must have at least blocks * {} = {least}",
            plan::TIMESTAMPS
        )
    })
}

/// Returns the sums of the rows in double precision, over the dequantized tiles.
fn exact64<'a>(format: Format, w: &[u8], x: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
    let weights = tile::dequantize(format, w, x.len());
    let rows = weights
        .chunks(x.len().max(1))
        .map(|row| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum());
    rows.collect::<Vec<f64>>().into_iter()
}

/// Returns the sums of the rows in double precision, for `f32` activations.
fn exact(format: Format, w: &[u8], x: &[f32]) -> Vec<f64> {
    let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
    exact64(format, w, &x).collect()
}

/// Returns `x * gamma / rms(x)` in double precision.
pub(crate) fn normed(x: &[f32], gamma: &[f32], epsilon: f32) -> Vec<f64> {
    let square = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / x.len() as f64;
    let factor = 1.0 / (square + f64::from(epsilon)).sqrt();
    x.iter()
        .zip(gamma)
        .map(|(&x, &g)| f64::from(x) * f64::from(g) * factor)
        .collect()
}
