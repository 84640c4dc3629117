//! The compiled kernels of the pipeline. Each distinct kernel of a [`ResolvedStep`] is compiled
//! once.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::launch::Kernel;
use warpwright_driver::{Context, Error};
use warpwright_kernels::pipeline::{
    EmbedRows, EmbedTiled, ExpertDown, ExpertGateUp, ExpertLogits, GateUp, HeadNorm, Layout,
    LmHead, LoraProduct, PipelinedAttention, PlaceDrafts, Project, SplitPrompt,
};
use warpwright_kernels::{AddNormed, Advance};

use super::adapter::{GemvLoader, LoadedGemv, LoraKernels};
use super::cache::{CacheLoaded, CacheLoader, LoadedQkv, QkvLoader};
use super::resolved::{ResolvedEmbed, ResolvedFeedForward, ResolvedGemv, ResolvedStep};
use crate::distinct::SharedKernels;
use crate::signed;

/// The compiled kernels of a step.
pub(crate) struct Pipeline {
    /// The decisions from which the kernels were compiled.
    pub(crate) resolved: ResolvedStep,
    /// The kernel that assigns prompt tokens, for batches.
    pub(super) split_prompt: Option<Kernel<SplitPrompt>>,
    /// The kernel that assigns drafts, for steps that verify them.
    pub(super) place_drafts: Option<Kernel<PlaceDrafts>>,
    pub(super) embed: EmbedKernel,
    /// The kernels of each layer, in order.
    pub(super) layers: Vec<LayerKernels>,
    /// The kernel that norms the outputs of attention and the feed-forward, in models that do.
    pub(super) add_normed: Option<Kernel<AddNormed>>,
    /// The kernels in front of GEMVs with an adapter.
    pub(super) lora: Option<LoraKernels>,
    pub(super) head: GemvWithLora<Arc<Kernel<LmHead>>>,
    pub(super) advance: Kernel<Advance>,
}

/// The compiled kernel that embeds a token.
pub(crate) enum EmbedKernel {
    /// The table is stored as tiles.
    Tiles(Kernel<EmbedTiled>),
    /// The table is stored as rows.
    Rows(Kernel<EmbedRows>),
}

impl EmbedKernel {
    pub(crate) fn name(&self) -> String {
        match self {
            EmbedKernel::Tiles(kernel) => kernel.def().name(),
            EmbedKernel::Rows(kernel) => kernel.def().name(),
        }
    }
}

/// The compiled kernels of a layer. Layers with the same formats and windows share them.
pub(super) struct LayerKernels {
    pub(super) qkv: GemvWithLora<LoadedQkv>,
    /// The head norm, in models that have one.
    pub(super) head_norm: Option<CacheLoaded<HeadNorm>>,
    pub(super) attention: CacheLoaded<PipelinedAttention>,
    pub(super) o: GemvWithLora<LoadedGemv<Project>>,
    pub(super) feed_forward: FeedForwardKernels,
}

/// The compiled kernels of a feed-forward network.
pub(super) enum FeedForwardKernels {
    Dense {
        gate_up: GemvWithLora<LoadedGemv<GateUp>>,
        down: GemvWithLora<LoadedGemv<Project>>,
    },
    Experts(ExpertKernels),
}

/// The compiled kernels of a mixture of experts.
pub(super) struct ExpertKernels {
    pub(super) logits: Arc<Kernel<ExpertLogits>>,
    pub(super) gate_up: GemvWithLora<Arc<Kernel<ExpertGateUp>>>,
    pub(super) down: GemvWithLora<Arc<Kernel<ExpertDown>>>,
}

/// A [`ResolvedGemv`] whose kernel is compiled.
pub(super) struct GemvWithLora<K> {
    pub(super) kernel: K,
    pub(super) layout: Layout,
}

impl Pipeline {
    /// Compiles the kernels of a step.
    pub(crate) fn load(context: &Context, step: ResolvedStep) -> Result<Pipeline, Error> {
        // Most layers have equal kernels. The loaders compile each distinct kernel once.
        let mut qkv = QkvLoader::new(context, step.cache);
        let mut project = GemvLoader::new(context);
        let mut gate_up = GemvLoader::new(context);
        let mut experts = ExpertLoader {
            logits: SharedKernels::new(context),
            gate_up: SharedKernels::new(context),
            down: SharedKernels::new(context),
        };
        let mut head_norm = CacheLoader::new(context, step.cache);
        let mut attention = CacheLoader::new(context, step.cache);
        let layers = step.layers.iter().map(|layer| {
            Ok(LayerKernels {
                qkv: GemvWithLora {
                    kernel: qkv.load(&layer.qkv)?,
                    layout: layer.qkv.layout,
                },
                head_norm: layer
                    .head_norm
                    .map(|kernel| head_norm.load(kernel))
                    .transpose()?,
                attention: attention.load(layer.attention)?,
                o: GemvWithLora::load(&mut project, &layer.o)?,
                feed_forward: match &layer.feed_forward {
                    ResolvedFeedForward::Dense {
                        gate_up: first,
                        down,
                    } => FeedForwardKernels::Dense {
                        gate_up: GemvWithLora::load(&mut gate_up, first)?,
                        down: GemvWithLora::load(&mut project, down)?,
                    },
                    ResolvedFeedForward::Experts {
                        logits,
                        gate_up,
                        down,
                    } => FeedForwardKernels::Experts(experts.load(*logits, gate_up, down)?),
                },
            })
        });
        let layers = layers.collect::<Result<_, Error>>()?;
        let split_prompt = step
            .split_prompt
            .map(|kernel| signed::load(context, kernel));
        let place_drafts = step
            .place_drafts
            .map(|kernel| signed::load(context, kernel));
        let add_normed = step.add_normed.map(|kernel| signed::load(context, kernel));
        let lora = step.lora.map(|kernels| LoraKernels::load(context, kernels));
        Ok(Pipeline {
            split_prompt: split_prompt.transpose()?,
            place_drafts: place_drafts.transpose()?,
            embed: EmbedKernel::load(context, step.embed)?,
            layers,
            add_normed: add_normed.transpose()?,
            lora: lora.transpose()?,
            head: GemvWithLora {
                kernel: Arc::new(signed::load(context, step.head.kernel)?),
                layout: step.head.layout,
            },
            advance: signed::load(context, Advance)?,
            resolved: step,
        })
    }
}

/// The kernels of mixtures of experts that were loaded so far.
struct ExpertLoader<'c> {
    logits: SharedKernels<'c, ExpertLogits>,
    gate_up: SharedKernels<'c, ExpertGateUp>,
    down: SharedKernels<'c, ExpertDown>,
}

impl ExpertLoader<'_> {
    fn load(
        &mut self,
        logits: ExpertLogits,
        gate_up: &ResolvedGemv<ExpertGateUp>,
        down: &ResolvedGemv<ExpertDown>,
    ) -> Result<ExpertKernels, Error> {
        Ok(ExpertKernels {
            logits: self.logits.load(logits)?,
            gate_up: GemvWithLora {
                kernel: self.gate_up.load(gate_up.kernel)?,
                layout: gate_up.layout,
            },
            down: GemvWithLora {
                kernel: self.down.load(down.kernel)?,
                layout: down.layout,
            },
        })
    }
}

impl EmbedKernel {
    pub(crate) fn load(context: &Context, embed: ResolvedEmbed) -> Result<EmbedKernel, Error> {
        Ok(match embed {
            ResolvedEmbed::Tiles(kernel) => EmbedKernel::Tiles(signed::load(context, kernel)?),
            ResolvedEmbed::Rows(kernel) => EmbedKernel::Rows(signed::load(context, kernel)?),
        })
    }
}

impl<K: LoraProduct + PartialEq> GemvWithLora<LoadedGemv<K>> {
    fn load(kernels: &mut GemvLoader<'_, K>, product: &ResolvedGemv<K>) -> Result<Self, Error> {
        Ok(GemvWithLora {
            kernel: kernels.load(product.kernel, product.lora)?,
            layout: product.layout,
        })
    }
}
