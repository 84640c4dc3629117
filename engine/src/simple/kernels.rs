//! The simple kernels that multiply by no weights, compiled for the device.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::Context;
use warpwright_driver::launch::Kernel;
use warpwright_kernels::{
    ALL, Advance, ArgmaxBlocks, ArgmaxFinal, Attention, AttentionCombine, AttentionCombineSinks,
    Constant, Embed, RmsNorm, Rope, SoftCap,
};
use warpwright_model::layer::{self, Mixer};
use warpwright_model::{Config, Layer, Outline};

use crate::Error;
use crate::distinct::SharedKernels;
use crate::kernel_terms::{kernel_embedding_scale, kernel_format, kernel_pairing};
use crate::signed;
use crate::simple::gate::{GateKernel, GateLoader};
use crate::simple::norm::NormKernel;

/// The compiled kernels, one for each kind of launch.
pub(crate) struct SimpleKernels {
    pub(crate) embed: Kernel<Embed>,
    pub(crate) norm: NormKernel,
    /// The head norm of queries and keys.
    pub(crate) head_norm: Kernel<RmsNorm>,
    /// The kernels of each layer, in order. Layers of the same kind share them.
    pub(crate) layers: Vec<SimpleLayerKernels>,
    /// The bound of the logits, in models with one.
    pub(crate) soft_cap: Option<Kernel<SoftCap>>,
    pub(crate) argmax: Kernel<ArgmaxBlocks>,
    pub(crate) argmax_final: Kernel<ArgmaxFinal>,
    pub(crate) advance: Kernel<Advance>,
}

/// The compiled kernels of a layer.
pub(crate) struct SimpleLayerKernels {
    pub(crate) rope: Arc<Kernel<Rope>>,
    pub(crate) attention: Arc<Kernel<Attention>>,
    pub(crate) combine: CombineKernel,
    pub(crate) gate: GateKernel,
}

/// The kernel that combines the partial results of attention.
pub(crate) enum CombineKernel {
    /// The softmax of the scores.
    Plain(Arc<Kernel<AttentionCombine>>),
    /// The softmax of the scores and of each head's sink.
    Sinks(Arc<Kernel<AttentionCombineSinks>>),
}

/// The kernels of layers that were loaded so far.
struct LayerLoader<'c> {
    rope: SharedKernels<'c, Rope>,
    attention: SharedKernels<'c, Attention>,
    combine: SharedKernels<'c, AttentionCombine>,
    combine_sinks: SharedKernels<'c, AttentionCombineSinks>,
    gate: GateLoader<'c>,
}

impl LayerLoader<'_> {
    /// Loads the kernels of a layer.
    fn load(&mut self, c: &Config, layer: &Layer) -> Result<SimpleLayerKernels, Error> {
        let Mixer::Attention(attention) = &layer.mixer;
        let head_dim = attention.head_dim;
        let combine = if attention.sinks {
            let kernel = AttentionCombineSinks { head_dim };
            CombineKernel::Sinks(self.combine_sinks.load(kernel)?)
        } else {
            CombineKernel::Plain(self.combine.load(AttentionCombine { head_dim })?)
        };
        Ok(SimpleLayerKernels {
            rope: self.rope.load(Rope {
                pairing: kernel_pairing(attention.pairing),
                magnitude: c.angle_magnitude(attention),
            })?,
            attention: self.attention.load(attention_kernel(attention))?,
            combine,
            gate: self.gate.load(layer.feed_forward.activation())?,
        })
    }
}

const THREADS: u32 = 256;

impl SimpleKernels {
    pub(crate) fn load(context: &Context, outline: &Outline) -> Result<SimpleKernels, Error> {
        let c = &outline.config;
        let w = &outline.weights;
        let mut loader = LayerLoader {
            rope: SharedKernels::new(context),
            attention: SharedKernels::new(context),
            combine: SharedKernels::new(context),
            combine_sinks: SharedKernels::new(context),
            gate: GateLoader::new(context),
        };
        let layers = c.layers.iter().map(|layer| loader.load(c, layer));
        Ok(SimpleKernels {
            embed: signed::load(
                context,
                Embed {
                    format: kernel_format(w.embed.format),
                    scale: kernel_embedding_scale(c.embedding_scale),
                },
            )?,
            norm: NormKernel::load(context, c)?,
            head_norm: signed::load(context, RmsNorm { threads: THREADS })?,
            layers: layers.collect::<Result<_, Error>>()?,
            soft_cap: match c.logit_cap {
                Some(_) => Some(signed::load(context, SoftCap)?),
                None => None,
            },
            argmax: signed::load(context, ArgmaxBlocks { threads: THREADS })?,
            argmax_final: signed::load(context, ArgmaxFinal)?,
            advance: signed::load(context, Advance)?,
        })
    }
}

/// The maximum number of query heads per attention block, because more run out of registers.
const MAX_QUERIES: u32 = 8;

/// Returns the attention kernel with the most query heads per block. A kernel on the list of
/// `warpwright_kernels` is preferred. If none has this head length, the same kernel is compiled for
/// it.
fn attention_kernel(attention: &layer::Attention) -> Attention {
    let group = attention.group();
    let queries = (1..=group.min(MAX_QUERIES))
        .rev()
        .filter(|queries| group.is_multiple_of(*queries));
    let variant = |queries| Attention {
        head_dim: attention.head_dim,
        queries,
        window: attention.window,
        soft_cap: attention.score_cap.map(Constant::new),
    };
    let most = queries.clone().map(variant).find(shipped);
    most.unwrap_or_else(|| variant(queries.max().unwrap_or(1)))
}

fn shipped(kernel: &Attention) -> bool {
    let name = KernelDef::name(kernel);
    ALL.iter().any(|variant| variant.name() == name)
}
