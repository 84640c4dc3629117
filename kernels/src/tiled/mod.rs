//! Kernels over weights packed into [`Tile`]s: those that decode at the speed of memory, and those that pack.
//!
//! Five kernels make a layer ([`Qkv`], attention, [`Project`], [`GateUp`], [`Project`]), and [`Head`] ends a token.
//! Models that norm their heads have a sixth, [`HeadNorm`], before attention. Each is a chain link: it starts while
//! the one before still runs, fills its ring of weights, and waits. See [`stream`] for how.
//!
//! # Columns
//!
//! Each of them takes up to eight tokens at once, consecutive positions of one sequence: columns of activations, for
//! which the weights are read once. It is a number of the kernel's definition, 1 where one token is decoded. What a
//! token has of its own then has as many rows, one after the other: state, activations, angles, queries, results.
//! Keys and values of all go to the same cache, each token at its position, before attention reads any of them.
//!
//! - A tile's weights are unpacked once and stay in registers while one column after the other is multiplied, each
//!   with sums of its own ([`stream`]). A column's sums are bit for bit what the token would have alone.
//! - The activations of all columns are in shared memory, 2.5 bytes each against quantized weights and 4 against
//!   others: 8 times 4,096 take 82 KB, but 8 times 14,336 more than a block may have. The contract refuses what does
//!   not fit; one then launches the kernel for fewer columns, several times. Nothing encoded goes through global
//!   memory: each tile would bring twice its bytes of activations back.
//! - A block has its multiprocessor for itself: there is no memory for two.
//! - Attention has blocks of its own for each column, which read the same keys and values.
//! - [`Head`] leaves the likeliest token after each column, and no new state: who dealt the columns their tokens
//!   ([`Deal`], for a prompt) knows how it goes on.

pub mod activation;
pub mod attention;
mod case;
mod column;
mod deal;
pub mod eights;
mod embed;
mod gate_up;
mod head;
mod head_norm;
mod layout;
pub mod pack;
pub mod plan;
mod product;
mod project;
mod qkv;
pub mod stream;
pub mod tile;

pub use attention::{AttentionChained, AttentionChainedArgs};
pub(crate) use case::Packed;
pub use deal::{Deal, DealArgs};
pub use embed::{EmbedRows, EmbedTiled, StartArgs};
pub use gate_up::{GateUp, GateUpArgs};
pub use head::{Head, HeadArgs};
pub use head_norm::{HeadNorm, HeadNormArgs};
pub use layout::{Layout, Runs};
pub use pack::{Pack, PackArgs};
pub use plan::{Copies, Plan, Trigger};
pub use project::{Project, ProjectArgs};
pub use qkv::{Finish, Qkv, QkvArgs};
pub use tile::{Rows, Tile};

use crate::contract::Contract;
use crate::format::Format;
use ptx_gen::{Grid, KernelDef, ShapeError};

/// What all products ask of their matrix and their layout.
fn contract(
    kernel: &impl KernelDef,
    w: usize,
    runs: &Runs,
    plan: Plan,
    n: u32,
    layout: Layout,
    [asked, stamps]: [usize; 2],
) -> Result<Grid, ShapeError> {
    let wrong = |what: String| kernel.require(false, || what);
    kernel.range("the plan's columns", plan.columns, 1, plan::MOST_COLUMNS)?;
    runs.check(plan, n, layout).or_else(wrong)?;
    let bytes = |&(format, count): &(Format, u32)| count as usize * 16 * format.row_bytes(n as usize);
    kernel.exactly("w", w, runs.0.iter().map(bytes).sum())?;
    kernel.length("asked", asked, "blocks", &[layout.blocks])?;
    stamped(kernel, plan.profile, layout.blocks, stamps)?;
    Ok(Grid { shared: layout.shared, ..Grid::line(layout.blocks) })
}

/// `name` has for each of the columns as many elements as the product of `factors`, which `formula` spells.
fn columns(
    kernel: &impl KernelDef,
    columns: u32,
    name: &str,
    found: usize,
    formula: &str,
    factors: &[u32],
) -> Result<(), ShapeError> {
    match columns {
        1 => kernel.length(name, found, formula, factors),
        _ => kernel.length(name, found, &format!("columns * {formula}"), &[&[columns], factors].concat()),
    }
}

/// The same of whole numbers and the scales of their eights.
fn eights(
    kernel: &impl KernelDef,
    count: u32,
    name: &str,
    [values, scales]: [usize; 2],
    formula: &str,
    factors: &[u32],
) -> Result<(), ShapeError> {
    columns(kernel, count, name, values, formula, factors)?;
    let [first, rest @ ..] = factors else { unreachable!("a formula has factors") };
    let factors = [&[first / eights::EIGHT], rest].concat();
    columns(kernel, count, &format!("{name}_scale"), scales, &format!("{formula} / 8"), &factors)
}

/// A kernel that profiles has room for the stamps of each block.
fn stamped(kernel: &impl KernelDef, profile: bool, blocks: u32, stamps: usize) -> Result<(), ShapeError> {
    let least = blocks as usize * plan::STAMPS as usize;
    kernel.require(!profile || stamps >= least, || {
        format!("stamps has {stamps} elements, must have at least blocks * {} = {least}", plan::STAMPS)
    })
}

/// The rows' sums in double precision, over the weights as the tiles define them.
fn exact64<'a>(format: Format, w: &[u8], x: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
    let weights = tile::dequantize(format, w, x.len());
    let rows =
        weights.chunks(x.len().max(1)).map(|row| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum());
    rows.collect::<Vec<f64>>().into_iter()
}

fn exact(format: Format, w: &[u8], x: &[f32]) -> Vec<f64> {
    let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
    exact64(format, w, &x).collect()
}

/// `x * gamma / rms(x)` in double precision.
fn normed(x: &[f32], gamma: &[f32], epsilon: f32) -> Vec<f64> {
    let square = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / x.len() as f64;
    let factor = 1.0 / (square + f64::from(epsilon)).sqrt();
    x.iter().zip(gamma).map(|(&x, &g)| f64::from(x) * f64::from(g) * factor).collect()
}
