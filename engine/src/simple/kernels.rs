//! The kernels of a step that multiply by no weights, compiled for the device.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::{Context, Kernel};
use warpwright_kernels::{
    ALL, Advance, ArgmaxBlocks, ArgmaxFinal, Attention, AttentionCombine, Embed, RmsNorm, Rope,
    SwiGlu,
};

use crate::Error;
use crate::distinct::Distinct;
use crate::model::config::Config;
use crate::model::outline::Outline;
use crate::signed;

/// One loaded kernel for each kind of launch.
pub(crate) struct Kernels {
    pub(crate) embed: Kernel<Embed>,
    pub(crate) norm: Kernel<RmsNorm>,
    /// The head norm of Q and K.
    pub(crate) head_norm: Kernel<RmsNorm>,
    pub(crate) rope: Kernel<Rope>,
    /// One a layer; layers with the same window share it.
    pub(crate) attention: Vec<Arc<Kernel<Attention>>>,
    pub(crate) combine: Kernel<AttentionCombine>,
    pub(crate) swiglu: Kernel<SwiGlu>,
    pub(crate) argmax: Kernel<ArgmaxBlocks>,
    pub(crate) argmax_final: Kernel<ArgmaxFinal>,
    pub(crate) advance: Kernel<Advance>,
}

const THREADS: u32 = 256;
/// Lengths from here on are worth a block of 1024 to RMSNorm.
const LONG: u32 = 2048;

impl Kernels {
    pub(crate) fn load(context: &Context, outline: &Outline) -> Result<Kernels, Error> {
        let (c, w) = (&outline.config, &outline.weights);
        let head_dim = c.head_dim;
        let mut distinct = Distinct::new(context);
        let attention = (0..c.layers).map(|layer| distinct.load(attention(c, c.window_of(layer))));
        Ok(Kernels {
            embed: signed::load(
                context,
                Embed {
                    format: w.embed.format,
                    scale: c.architecture.embedding_scale,
                },
            )?,
            norm: signed::load(context, norm(c))?,
            head_norm: signed::load(context, RmsNorm { threads: THREADS })?,
            rope: signed::load(
                context,
                Rope {
                    pairing: c.architecture.pairing,
                    magnitude: c.angle_magnitude(),
                },
            )?,
            attention: attention.collect::<Result<_, _>>()?,
            combine: signed::load(context, AttentionCombine { head_dim })?,
            swiglu: signed::load(
                context,
                SwiGlu {
                    threads: THREADS,
                    activation: c.architecture.activation,
                },
            )?,
            argmax: signed::load(context, ArgmaxBlocks { threads: THREADS })?,
            argmax_final: signed::load(context, ArgmaxFinal)?,
            advance: signed::load(context, Advance)?,
        })
    }
}

/// RMSNorm of the residual stream.
pub(crate) fn norm(c: &Config) -> RmsNorm {
    RmsNorm {
        threads: if c.hidden < LONG { THREADS } else { 1024 },
    }
}

/// The most query heads of an attention block: more run out of registers.
const MAX_QUERIES: u32 = 8;

/// The variant with the most query heads per block: a shipped one, or the same kernel for a head length that no variant
/// is shipped for.
fn attention(c: &Config, window: Option<u32>) -> Attention {
    let group = c.heads / c.kv_heads;
    let queries = (1..=group.min(MAX_QUERIES))
        .rev()
        .filter(|queries| group.is_multiple_of(*queries));
    let variant = |queries| Attention {
        head_dim: c.head_dim,
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
