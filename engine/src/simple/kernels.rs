//! The simple kernels that multiply by no weights, compiled for the device.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::{Context, Kernel};
use warpwright_kernels::{
    ALL, Advance, ArgmaxBlocks, ArgmaxFinal, Attention, AttentionCombine, Embed, RmsNorm, Rope,
    SwiGlu,
};
use warpwright_model::{Config, Outline};

use crate::Error;
use crate::distinct::SharedKernels;
use crate::kernel_terms::{
    kernel_activation, kernel_embedding_scale, kernel_format, kernel_pairing,
};
use crate::signed;

/// The compiled kernels, one for each kind of launch.
pub(crate) struct SimpleKernels {
    pub(crate) embed: Kernel<Embed>,
    pub(crate) norm: Kernel<RmsNorm>,
    /// The head norm of queries and keys.
    pub(crate) head_norm: Kernel<RmsNorm>,
    pub(crate) rope: Kernel<Rope>,
    /// The attention kernel of each layer. Layers with the same window share one.
    pub(crate) attention: Vec<Arc<Kernel<Attention>>>,
    pub(crate) combine: Kernel<AttentionCombine>,
    pub(crate) swiglu: Kernel<SwiGlu>,
    pub(crate) argmax: Kernel<ArgmaxBlocks>,
    pub(crate) argmax_final: Kernel<ArgmaxFinal>,
    pub(crate) advance: Kernel<Advance>,
}

const THREADS: u32 = 256;
/// The vector length from which RMSNorm uses a block of 1024 threads.
const LONG: u32 = 2048;

impl SimpleKernels {
    pub(crate) fn load(context: &Context, outline: &Outline) -> Result<SimpleKernels, Error> {
        let c = &outline.config;
        let w = &outline.weights;
        let head_dim = c.head_dim();
        let mut distinct = SharedKernels::new(context);
        let attention = (0..c.layer_count())
            .map(|layer| distinct.load(attention(c, c.attention(layer).window)));
        Ok(SimpleKernels {
            embed: signed::load(
                context,
                Embed {
                    format: kernel_format(w.embed.format),
                    scale: kernel_embedding_scale(c.architecture.embedding_scale),
                },
            )?,
            norm: signed::load(context, norm(c))?,
            head_norm: signed::load(context, RmsNorm { threads: THREADS })?,
            rope: signed::load(
                context,
                Rope {
                    pairing: kernel_pairing(c.architecture.pairing),
                    magnitude: c.angle_magnitude(c.attention(0)),
                },
            )?,
            attention: attention.collect::<Result<_, _>>()?,
            combine: signed::load(context, AttentionCombine { head_dim })?,
            swiglu: signed::load(
                context,
                SwiGlu {
                    threads: THREADS,
                    activation: kernel_activation(c.architecture.activation),
                },
            )?,
            argmax: signed::load(context, ArgmaxBlocks { threads: THREADS })?,
            argmax_final: signed::load(context, ArgmaxFinal)?,
            advance: signed::load(context, Advance)?,
        })
    }
}

/// Returns the RMSNorm of the residual stream.
pub(crate) fn norm(c: &Config) -> RmsNorm {
    RmsNorm {
        threads: if c.hidden < LONG { THREADS } else { 1024 },
    }
}

/// The maximum number of query heads per attention block, because more run out of registers.
const MAX_QUERIES: u32 = 8;

/// Returns the attention kernel with the most query heads per block. A kernel on the list of
/// `warpwright_kernels` is preferred. If none has this head length, the same kernel is compiled for
/// it.
fn attention(c: &Config, window: Option<u32>) -> Attention {
    let group = c.heads() / c.kv_heads();
    let queries = (1..=group.min(MAX_QUERIES))
        .rev()
        .filter(|queries| group.is_multiple_of(*queries));
    let variant = |queries| Attention {
        head_dim: c.head_dim(),
        queries,
        window,
    };
    let most = queries.clone().map(variant).find(shipped);
    most.unwrap_or_else(|| variant(queries.max().unwrap_or(1)))
}

fn shipped(kernel: &Attention) -> bool {
    let name = KernelDef::name(kernel);
    ALL.iter().any(|variant| variant.name() == name)
}
