//! The loaded kernels of a step in `f32`.

use warpwright_driver::Context;
use warpwright_driver::launch::Kernel;
use warpwright_kernels::train::attention::{
    DocumentAttention, KeyGradients, QueryGradients, SumGroups,
};
use warpwright_kernels::train::cross_entropy::LogitGradients;
use warpwright_kernels::train::dropout::AddMasked;
use warpwright_kernels::train::embed::EmbedTokens;
use warpwright_kernels::train::linear::BroadcastRow;
use warpwright_kernels::train::nf4::Nf4Dequantize;
use warpwright_kernels::train::products::{MatmulLayout, Product};
use warpwright_kernels::train::rms_norm::{RmsNormBackward, RmsNormForward};
use warpwright_kernels::train::rope::{Direction, RotateHeads};
use warpwright_kernels::train::swiglu::SwiGluBackward;
use warpwright_kernels::{Activation, SwiGlu};
use warpwright_model::RopePairing;

use crate::Error;
use crate::kernel_terms::kernel_pairing;
use crate::signed::load;

/// The loaded kernels of a step in `f32`.
pub(super) struct F32Kernels {
    pub(super) embed: Kernel<EmbedTokens>,
    pub(super) norm: Kernel<RmsNormForward>,
    pub(super) norm_backward: Kernel<RmsNormBackward>,
    pub(super) dequantize: Kernel<Nf4Dequantize>,
    pub(super) bias: Kernel<BroadcastRow>,
    pub(super) nt: MatmulKernels,
    pub(super) nn: MatmulKernels,
    pub(super) tn: MatmulKernels,
    pub(super) add_masked: Kernel<AddMasked>,
    pub(super) rotate: Kernel<RotateHeads>,
    pub(super) rotate_back: Kernel<RotateHeads>,
    pub(super) attention: Kernel<DocumentAttention>,
    pub(super) query_gradients: Kernel<QueryGradients>,
    pub(super) key_gradients: Kernel<KeyGradients>,
    pub(super) sum_groups: Kernel<SumGroups>,
    pub(super) swiglu: Kernel<SwiGlu>,
    pub(super) swiglu_backward: Kernel<SwiGluBackward>,
    pub(super) logit_gradients: Kernel<LogitGradients>,
}

/// Matmul kernels of one layout, which differ in the columns that a thread computes.
pub(super) struct MatmulKernels {
    /// One column per thread, for every shape.
    pub(super) narrow: Kernel<Product>,
    /// Four columns per thread, for shapes that are multiples of 4.
    pub(super) wide: Kernel<Product>,
}

/// The number of threads in a block, for kernels that have it as a parameter.
pub(super) const THREADS: u32 = 256;

impl F32Kernels {
    /// Loads all kernels for heads of `head_dim` dimensions.
    pub(super) fn load(
        context: &Context,
        head_dim: u32,
        pairing: RopePairing,
    ) -> Result<F32Kernels, Error> {
        let threads = THREADS;
        let product = |form| {
            let of = |width| load(context, Product { form, width });
            Ok::<_, Error>(MatmulKernels {
                narrow: of(1)?,
                wide: of(4)?,
            })
        };
        let pairing = kernel_pairing(pairing);
        let rotate = |direction| load(context, RotateHeads { pairing, direction });
        Ok(F32Kernels {
            embed: load(context, EmbedTokens { threads })?,
            norm: load(context, RmsNormForward { threads })?,
            norm_backward: load(context, RmsNormBackward { threads })?,
            dequantize: load(context, Nf4Dequantize { threads })?,
            bias: load(context, BroadcastRow)?,
            nt: product(MatmulLayout::Nt)?,
            nn: product(MatmulLayout::Nn)?,
            tn: product(MatmulLayout::Tn)?,
            add_masked: load(context, AddMasked { threads })?,
            rotate: rotate(Direction::Forward)?,
            rotate_back: rotate(Direction::Backward)?,
            attention: load(context, DocumentAttention { head_dim })?,
            query_gradients: load(context, QueryGradients { head_dim })?,
            key_gradients: load(context, KeyGradients { head_dim })?,
            sum_groups: load(context, SumGroups)?,
            swiglu: load(
                context,
                SwiGlu {
                    threads,
                    activation: Activation::Silu,
                },
            )?,
            swiglu_backward: load(context, SwiGluBackward { threads })?,
            logit_gradients: load(context, LogitGradients { threads })?,
        })
    }
}
