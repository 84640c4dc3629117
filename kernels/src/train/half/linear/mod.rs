//! Products of a projection with its adapter on the tensor cores of sm_90a, forward and backward:
//!
//! ```text
//! NT: y  = factor (x W^T + u B^T) + bias + residual      W [columns, depth]
//! NN: dx = factor (dy W + du A) + residual               W [depth, columns]
//! ```
//!
//! `B` is given as `B^T` `[rank, columns]`, so that in both forms the second pair of operands is `[rows, rank]` and
//! `[rank, columns]`. It is what `rank` more elements of `depth` would be: one sum, rounded once.
//!
//! `W` is in `bf16`, or in NF4 that the product unpacks itself ([`Frozen`]); the bits of `y` are the same.
//!
//! A rank below 64 takes a stage of the ring, most of it zeros. How the tiles of a product are computed is in
//! `kernels/src/tiled.rs`.
//!
//! | kernel | does |
//! |---|---|
//! | [`LoraLinear`] | a projection, or the gradient of its input |
//! | [`LoraSwiGlu`] | the feed-forward block's second projection, with SwiGLU behind it |
//! | [`LoraSum`] | the gradient of an input of several projections |
//! | [`LoraSwiGluBackward`] | the gradient of the feed-forward block's last input, through SwiGLU |
//! | [`Logits`] | logits |

mod logits;
mod projection;
mod sum;
mod swiglu;
mod swiglu_backward;

pub use logits::{Logits, LogitsArgs};
pub use projection::{LoraLinear, LoraLinearArgs, MapTiles};
pub use sum::{LoraSum, LoraSumArgs};
pub use swiglu::{LoraSwiGlu, LoraSwiGluArgs};
pub use swiglu_backward::{LoraSwiGluBackward, LoraSwiGluBackwardArgs};

use crate::case::Random;
use crate::contract::Contract;
use crate::tiled::{Nf4, ProductTile, Right};
use crate::train::half::wide;
use crate::train::nf4::{BLOCK, dequantize};
use ptx_gen::*;

/// What the tensor maps of left operands and of what an epilogue reads copy.
const X: TileOf<bf16> = ProductTile::left();
/// What those of results copy.
const Y: TileOf<bf16> = ProductTile::out();

/// The sum of a product's magnitudes is at most this many times its largest, and tensor cores cut off: a bound on what
/// sums of numbers from -1 to 1 lose, beside the rounding of `y`.
const BOUND: f64 = 2e-6;

fn matrix(random: &mut Random, rows: u32, columns: u32) -> CpuArg {
    let number = |_| bf16::from_f32(random.unit());
    CpuArg::Bf16((0..rows * columns).map(number).collect())
}

/// Rows, columns, depth, rank and blocks of cases over NF4: several stages, and what is beyond the matrices; a block with
/// several tiles, where the epilogue is not tried elsewhere.
fn nf4_shapes(tile: ProductTile, plain: bool) -> Vec<[u32; 5]> {
    let several = plain.then(|| [130, tile.columns() + 64, 64, 0, 1]);
    [[20, 64, 192, 72, 1]].into_iter().chain(several).collect()
}

fn scalar(arg: &CpuArg) -> u32 {
    match arg {
        CpuArg::Scalar(bits) => *bits as u32,
        _ => 0,
    }
}

/// How a product's frozen matrix lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frozen {
    /// In `bf16`.
    Bf16,
    /// In NF4, with `f32` absmax and rows that are whole blocks of 64. The product unpacks it.
    Nf4,
}

/// A frozen matrix: `w`, `packed` and `absmax` of a kernel's arguments, of which it is one way or the other.
struct Weights<W, P, A> {
    w: W,
    packed: P,
    absmax: A,
}

impl Frozen {
    /// What it adds to a kernel's name.
    fn suffix(self) -> &'static str {
        if self == Frozen::Nf4 { "_nf4" } else { "" }
    }

    /// The right operand, whose rows have so many weights; the map of `w` copies such tiles.
    fn right<'k>(
        self,
        of: Weights<TensorMap<'k, bf16, Read>, Ptr<'k, u8, Read>, Ptr<'k, f32, Read>>,
        tile: TileOf<bf16>,
        row: U32<'k>,
    ) -> Right<'k, bf16> {
        let Weights { w, packed, absmax } = of;
        // A map says what it copies, also if nothing does.
        let tiles = w.of(tile);
        match self {
            Frozen::Bf16 => Right::Tiles(tiles),
            Frozen::Nf4 => Right::Nf4(Nf4 { packed, absmax, row }),
        }
    }

    /// The contract of a matrix of so many rows, and weights in a row; `formula` spells their product. `i` is what ends the
    /// names of its arguments.
    fn check(
        self,
        kernel: &impl Contract,
        i: &str,
        of: Weights<usize, usize, usize>,
        ([rows, row], formula): ([u32; 2], &str),
    ) -> Result<(), ShapeError> {
        let Weights { w, packed, absmax } = of;
        let packed_rows = |weights: u32| if self == Frozen::Nf4 { row / weights } else { 0 };
        if self == Frozen::Nf4 {
            let block = BLOCK as u32;
            kernel.require(row.is_multiple_of(block), || {
                format!("a row of weights has {row}, must be whole blocks of {block}")
            })?;
        } else {
            kernel.length(&format!("w{i}"), w, formula, &[rows, row])?;
        }
        kernel.length(&format!("packed{i}"), packed, &format!("{formula} / 2"), &[rows, packed_rows(2)])?;
        kernel.length(
            &format!("absmax{i}"),
            absmax,
            &format!("{formula} / 64"),
            &[rows, packed_rows(BLOCK as u32)],
        )
    }

    /// The weights that a reference multiplies.
    fn weights(self, of: Weights<&[bf16], &[u8], &[f32]>) -> Vec<f64> {
        match self {
            Frozen::Bf16 => wide(of.w),
            Frozen::Nf4 => dequantize(of.packed, of.absmax)
                .into_iter()
                .map(|w| bf16::from_f32(w).to_f32().into())
                .collect(),
        }
    }

    /// Arguments of a case: a matrix of so many rows, of so many weights. Those in NF4 have few digits.
    fn case(self, random: &mut Random, [rows, row]: [u32; 2]) -> [CpuArg; 3] {
        let n = rows * row;
        match self {
            Frozen::Bf16 => [matrix(random, rows, row), CpuArg::U8(vec![]), CpuArg::F32(vec![])],
            Frozen::Nf4 => {
                let packed = (0..n / 2).map(|_| random.bits() as u8).collect();
                let absmax = (0..n / BLOCK as u32).map(|_| [0.0, 0.5, 1.0, 1.0][random.bits() as usize % 4]);
                let absmax = absmax.collect();
                [matrix(random, 8, 8), CpuArg::U8(packed), CpuArg::F32(absmax)]
            }
        }
    }
}

/// What a product of one projection with its adapter multiplies, as its contract sees it.
struct Operands {
    rows: u32,
    columns: u32,
    depth: u32,
    rank: u32,
    blocks: u32,
    /// Elements of `x`.
    x: usize,
    /// Of `u` and of the adapter's matrix.
    adapter: [usize; 2],
}

impl Operands {
    /// The contract of the operands; `b` is the name of the adapter's matrix.
    fn check(&self, kernel: &impl Contract, b: &str) -> Result<(), ShapeError> {
        let Operands { rows, columns, depth, rank, .. } = *self;
        kernel.range("rows", rows, 1, 1 << 24)?;
        kernel.range("blocks", self.blocks, 1, 1 << 16)?;
        kernel.multiple("columns", columns, 8)?;
        kernel.multiple("depth", depth, 8)?;
        kernel.require(rank.is_multiple_of(8), || format!("rank is {rank}, must be a multiple of 8"))?;
        kernel.length("x", self.x, "rows * depth", &[rows, depth])?;
        if rank > 0 {
            kernel.length("u", self.adapter[0], "rows * rank", &[rows, rank])?;
            kernel.length(b, self.adapter[1], "rank * columns", &[rank, columns])?;
        }
        Ok(())
    }
}
