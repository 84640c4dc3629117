//! The loaded kernels of a step in `bf16`, and the choice of a matmul's tile.

use ptx_gen::KernelDef;
use warpwright_driver::Context;
use warpwright_driver::launch::Kernel;
use warpwright_kernels::ProductTile;
use warpwright_kernels::train::flash::{
    FlashForward, FlashKeys, FlashQueries, SummedHeads, TensorOp,
};
use warpwright_kernels::train::half::convert::{ApplyMask, Nf4Dequantize, Round};
use warpwright_kernels::train::half::cross_entropy::LogitGradients;
use warpwright_kernels::train::half::embed::EmbedTokens;
use warpwright_kernels::train::half::linear::{
    Logits, LoraLinear, LoraSum, LoraSwiGlu, LoraSwiGluBackward,
};
use warpwright_kernels::train::half::lora::{LoraDown, LoraGradients};
use warpwright_kernels::train::half::norm::{RmsNormBackward, RmsNormForward};
use warpwright_kernels::train::half::rotate::{HeadsBackward, RotateForward};
use warpwright_kernels::train::half::swiglu::{SwiGluBackward, SwiGluForward};
use warpwright_kernels::train::products::MatmulLayout;

use super::limits::padded;
use crate::Error;
use crate::kernel_terms::kernel_pairing;
use crate::settings::{Recomputation, Settings, Tiles};
use crate::signed::load;
use crate::step::sizes::TrainingSizes;

/// A variant of the matmul of one projection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LinearVariant {
    pub(super) layout: MatmulLayout,
    /// Whether it adds a bias.
    pub(super) bias: bool,
    /// Whether it adds a residual.
    pub(super) residual: bool,
}

impl LinearVariant {
    /// Returns the variant of a kernel.
    fn of(kernel: &LoraLinear) -> LinearVariant {
        LinearVariant {
            layout: kernel.form,
            bias: kernel.bias,
            residual: kernel.residual,
        }
    }
}

/// The loaded kernels of a step in `bf16`.
pub(super) struct Bf16Kernels {
    /// The number of blocks of a matmul: one for each multiprocessor.
    pub(super) blocks: u32,
    pub(super) round: Kernel<Round>,
    pub(super) embed: Kernel<EmbedTokens>,
    pub(super) norm: Kernel<RmsNormForward>,
    pub(super) norm_backward: Kernel<RmsNormBackward>,
    pub(super) dequantize: Kernel<Nf4Dequantize>,
    pub(super) mask: Kernel<ApplyMask>,
    pub(super) add_mask: Kernel<ApplyMask>,
    pub(super) down: Kernel<LoraDown>,
    pub(super) gradients: Kernel<LoraGradients>,
    linear: Vec<Kernel<LoraLinear>>,
    gated: Vec<Kernel<LoraSwiGlu>>,
    sums: Vec<Kernel<LoraSum>>,
    swiglu_linear: Vec<Kernel<LoraSwiGluBackward>>,
    pub(super) rotate: Kernel<RotateForward>,
    pub(super) rotated_backward: Kernel<HeadsBackward>,
    pub(super) values_backward: Kernel<HeadsBackward>,
    pub(super) attention: Kernel<FlashForward>,
    pub(super) query_gradients: Kernel<FlashQueries>,
    pub(super) key_gradients: Kernel<FlashKeys>,
    /// Recomputes SwiGLU in the backward pass. Loaded for [`Recomputation::Cheap`] only.
    pub(super) swiglu: Option<Kernel<SwiGluForward>>,
    pub(super) swiglu_backward: Kernel<SwiGluBackward>,
    pub(super) logits: Kernel<Logits>,
    pub(super) logit_gradients: Kernel<LogitGradients>,
}

/// The fixed cost of a tile in units of columns. The value is from the prefill matmul kernel, whose
/// tiles have tokens in place of columns.
const FIXED: u32 = 36;

/// The number of rows from which blocks with wide tiles work in pairs. With 1,024 rows, pairs made
/// a step of a 1.5B model 1 % slower. With 2,048 rows, they made a step of an 8B model 2 % faster
/// (docs/lab/README.md).
const PAIRED: u32 = 2048;

impl Bf16Kernels {
    /// Loads the kernels for the sizes and settings of a step.
    pub(super) fn load(
        context: &Context,
        settings: &Settings,
        sizes: &TrainingSizes,
    ) -> Result<Bf16Kernels, Error> {
        let threads = 256;
        let norm = settings.config.norms_heads();
        let pairing = kernel_pairing(settings.pairing);
        let head_dim = sizes.head_dim;
        let rank = padded(settings.lora.rank) as u32;
        let blocks = context.device().properties().multiprocessors;
        let back = |pairing, norm| {
            load(
                context,
                HeadsBackward {
                    head_dim,
                    pairing,
                    norm,
                },
            )
        };
        let tiles = &tiles(settings.tiles, sizes)[..];

        // The `wgmma` kernels of attention exist only for heads of 64 and 128 dimensions.
        let op = if head_dim.is_multiple_of(64) {
            settings.attention
        } else {
            TensorOp::Mma
        };

        // The forward pass has SwiGLU fused into a matmul, so only recomputation needs the kernel.
        let swiglu = if settings.recomputation == Recomputation::Cheap {
            Some(load(context, SwiGluForward { threads })?)
        } else {
            None
        };
        Ok(Bf16Kernels {
            blocks,
            round: load(context, Round)?,
            embed: load(context, EmbedTokens { threads })?,
            norm: load(context, RmsNormForward { threads })?,
            norm_backward: load(context, RmsNormBackward { threads })?,
            dequantize: load(context, Nf4Dequantize)?,
            mask: load(context, ApplyMask { add: false })?,
            add_mask: load(context, ApplyMask { add: true })?,
            down: load(context, LoraDown { rank })?,
            gradients: load(context, LoraGradients { rank })?,
            linear: linear(context, tiles)?,
            gated: each_tile(tiles, |tile| Ok(load(context, LoraSwiGlu { tile })?))?,
            sums: each_tile(tiles, |tile| Ok(load(context, LoraSum { tile })?))?,
            swiglu_linear: each_tile(tiles, |tile| {
                Ok(load(context, LoraSwiGluBackward { tile })?)
            })?,
            rotate: load(
                context,
                RotateForward {
                    head_dim,
                    pairing,
                    norm,
                },
            )?,
            rotated_backward: back(Some(pairing), norm)?,
            values_backward: back(None, false)?,
            attention: load(context, FlashForward::new(head_dim).with_op(op))?,
            query_gradients: load(context, FlashQueries::new(head_dim).with_op(op))?,
            key_gradients: load(
                context,
                FlashKeys {
                    head_dim,
                    parts: parts(sizes, blocks),
                    op,
                },
            )?,
            swiglu,
            swiglu_backward: load(context, SwiGluBackward { threads })?,
            logits: load(context, Logits)?,
            logit_gradients: load(context, LogitGradients { threads })?,
        })
    }

    /// Returns the matmul kernel of a variant whose tile wastes least for an output of this shape.
    pub(super) fn linear(
        &self,
        variant: LinearVariant,
        rows: u32,
        columns: u32,
    ) -> &Kernel<LoraLinear> {
        let fits = |kernel: &&Kernel<LoraLinear>| LinearVariant::of(kernel.def()) == variant;
        let kernels = self.linear.iter().filter(fits);
        self.best(kernels, |kernel| kernel.tile, rows, columns)
    }

    /// Returns the kernel of the projection before SwiGLU whose tile wastes least for this shape.
    pub(super) fn gated(&self, rows: u32, columns: u32) -> &Kernel<LoraSwiGlu> {
        self.best(self.gated.iter(), |kernel| kernel.tile, rows, columns)
    }

    /// Returns the kernel of the gradient of an input that several projections share, with the tile
    /// that wastes least for this shape.
    pub(super) fn sum(&self, rows: u32, columns: u32) -> &Kernel<LoraSum> {
        self.best(self.sums.iter(), |kernel| kernel.tile, rows, columns)
    }

    /// Returns the kernel of the gradient through SwiGLU whose tile wastes least for this shape.
    pub(super) fn swiglu_linear(&self, rows: u32, columns: u32) -> &Kernel<LoraSwiGluBackward> {
        self.best(
            self.swiglu_linear.iter(),
            |kernel| kernel.tile,
            rows,
            columns,
        )
    }

    /// Returns the kernel with the least estimated time for an output of this shape.
    fn best<'a, K: KernelDef>(
        &self,
        kernels: impl Iterator<Item = &'a Kernel<K>>,
        tile: impl Fn(&K) -> ProductTile,
        rows: u32,
        columns: u32,
    ) -> &'a Kernel<K> {
        let cost = |kernel: &&Kernel<K>| {
            let tile = tile(kernel.def());
            // The blocks process tiles in waves, and each wave takes as long as one tile.
            tile.count(rows, columns).div_ceil(self.blocks) * (tile.columns() + FIXED)
        };
        kernels.min_by_key(cost).expect("each variant is loaded")
    }
}

/// Returns the heads that a block sums in the gradients of keys: whole groups, if there is still a
/// block for each multiprocessor.
fn parts(sizes: &TrainingSizes, multiprocessors: u32) -> SummedHeads {
    let blocks = sizes.tokens.div_ceil(FlashKeys::KEYS) * sizes.kv_heads;
    if blocks >= multiprocessors {
        SummedHeads::Groups
    } else {
        SummedHeads::Heads
    }
}

/// Loads each variant of the matmul of one projection that a step uses, with every tile.
fn linear(context: &Context, tiles: &[ProductTile]) -> Result<Vec<Kernel<LoraLinear>>, Error> {
    use MatmulLayout::*;
    let forms = [
        (Nt, false, false),
        (Nt, true, false),
        (Nt, false, true),
        (Nn, false, false),
        (Nn, false, true),
    ];
    let of = |(form, bias, residual)| {
        each_tile(tiles, |tile| {
            Ok(load(
                context,
                LoraLinear {
                    form,
                    tile,
                    bias,
                    residual,
                },
            )?)
        })
    };
    Ok(forms
        .into_iter()
        .map(of)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// Loads a kernel with each of the tiles.
fn each_tile<K>(
    tiles: &[ProductTile],
    load: impl Fn(ProductTile) -> Result<Kernel<K>, Error>,
) -> Result<Vec<Kernel<K>>, Error> {
    tiles.iter().map(|tile| load(*tile)).collect()
}

/// Returns the tiles that matmuls may use.
fn tiles(tiles: Tiles, sizes: &TrainingSizes) -> Vec<ProductTile> {
    let paired =
        |tile: ProductTile| sizes.tokens >= PAIRED && tile.columns() >= ProductTile::PAIRED;
    match tiles {
        Tiles::Only(tile) => vec![tile],
        Tiles::Fitting => ProductTile::ALL
            .map(|tile| if paired(tile) { tile.in_pairs() } else { tile })
            .to_vec(),
    }
}
