//! The compiled kernels of the pipeline. Each distinct kernel of a [`ResolvedStep`] is compiled
//! once.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::launch::Kernel;
use warpwright_driver::{Context, Error};
use warpwright_kernels::pipeline::{
    EmbedRows, EmbedTiled, ExpertDown, ExpertGateUp, ExpertLogits, GateUp, HeadNorm, Layout,
    LmHead, LoraProduct, PlaceDrafts, SplitPrompt,
};
use warpwright_kernels::{AddNormed, Advance};

use super::adapter::{GemvLoader, LoadedGemv, LoraKernels};
use super::biased::{
    AttentionLoader, BiasLoader, ExpertGateUpLoader, LoadedAttention, LoadedExpertGateUp,
    LoadedProject, MaybeBiased, ProjectLoader,
};
use super::cache::{CacheLoaded, CacheLoader, LoadedQkv, QkvLoader};
use super::resolved::{
    ExpertBiasKind, ResolvedEmbed, ResolvedFeedForward, ResolvedGemv, ResolvedStep,
};
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
    pub(super) attention: LoadedAttention,
    pub(super) o: GemvWithLora<LoadedProject>,
    pub(super) feed_forward: FeedForwardKernels,
}

/// The compiled kernels of a feed-forward network.
pub(super) enum FeedForwardKernels {
    Dense {
        gate_up: GemvWithLora<LoadedGemv<GateUp>>,
        down: GemvWithLora<LoadedProject>,
    },
    Experts(ExpertKernels),
}

/// The compiled kernels of a mixture of experts.
pub(super) struct ExpertKernels {
    pub(super) logits: MaybeBiased<ExpertLogits>,
    pub(super) gate_up: GemvWithLora<LoadedExpertGateUp>,
    pub(super) down: GemvWithLora<MaybeBiased<ExpertDown>>,
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
        let mut project = ProjectLoader::new(context);
        let mut gate_up = GemvLoader::new(context);
        let mut experts = ExpertLoader {
            logits: BiasLoader::new(context),
            gate_up: ExpertGateUpLoader::new(context),
            down: BiasLoader::new(context),
        };
        let mut head_norm = CacheLoader::new(context, step.cache);
        let mut attention = AttentionLoader::new(context, step.cache);
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
                attention: if layer.described.attention.sinks {
                    attention.load_sinks(layer.attention)?
                } else {
                    attention.load(layer.attention)?
                },
                o: GemvWithLora {
                    kernel: if layer.described.attention.output_bias {
                        project.load_biased(&layer.o)?
                    } else {
                        project.load(&layer.o)?
                    },
                    layout: layer.o.layout,
                },
                feed_forward: match &layer.feed_forward {
                    ResolvedFeedForward::Dense {
                        gate_up: first,
                        down,
                    } => FeedForwardKernels::Dense {
                        gate_up: GemvWithLora::load(&mut gate_up, first)?,
                        down: GemvWithLora {
                            kernel: project.load(down)?,
                            layout: down.layout,
                        },
                    },
                    ResolvedFeedForward::Experts {
                        logits,
                        gate_up,
                        down,
                        biases,
                    } => {
                        let kernels = experts.load(*logits, gate_up, down, *biases)?;
                        FeedForwardKernels::Experts(kernels)
                    }
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
    logits: BiasLoader<'c, ExpertLogits>,
    gate_up: ExpertGateUpLoader<'c>,
    down: BiasLoader<'c, ExpertDown>,
}

impl ExpertLoader<'_> {
    fn load(
        &mut self,
        logits: ExpertLogits,
        gate_up: &ResolvedGemv<ExpertGateUp>,
        down: &ResolvedGemv<ExpertDown>,
        biases: ExpertBiasKind,
    ) -> Result<ExpertKernels, Error> {
        Ok(ExpertKernels {
            logits: self.logits.load(logits, biases)?,
            gate_up: GemvWithLora {
                kernel: self.gate_up.load(gate_up.kernel, biases)?,
                layout: gate_up.layout,
            },
            down: GemvWithLora {
                kernel: self.down.load(down.kernel, biases)?,
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
