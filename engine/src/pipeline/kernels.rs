//! The pipeline's kernels, compiled for the device: each distinct one of a [`ResolvedStep`] once.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::{Context, Error, Kernel};
use warpwright_kernels::pipeline::{
    EmbedRows, EmbedTiled, GateUp, HeadNorm, Layout, LmHead, LoraProduct, PipelinedAttention,
    PlaceDrafts, Project, Qkv, SplitPrompt,
};
use warpwright_kernels::{AddNormed, Advance};

use super::adapter::{LoraKernels, ProductKernel, ProductKernels};
use super::resolved::{ResolvedEmbed, ResolvedProduct, ResolvedStep};
use crate::distinct::Distinct;
use crate::signed;

/// The loaded kernels of a step.
pub(crate) struct Pipeline {
    /// What they were loaded from.
    pub(crate) resolved: ResolvedStep,
    /// For several tokens of a prompt.
    pub(super) split_prompt: Option<Kernel<SplitPrompt>>,
    /// For drafts.
    pub(super) place_drafts: Option<Kernel<PlaceDrafts>>,
    pub(super) embed: EmbedKernel,
    /// In order.
    pub(super) layers: Vec<LayerKernels>,
    /// For models with norms after attention and the feed-forward.
    pub(super) add_normed: Option<Kernel<AddNormed>>,
    /// For models with an adapter.
    pub(super) lora: Option<LoraKernels>,
    pub(super) head: LoadedProduct<Arc<Kernel<LmHead>>>,
    pub(super) advance: Kernel<Advance>,
}

/// The kernel that embeds a token.
pub(crate) enum EmbedKernel {
    Tiles(Kernel<EmbedTiled>),
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

/// The kernels of a layer. Layers of the same formats and windows share them.
pub(super) struct LayerKernels {
    pub(super) qkv: LoadedProduct<ProductKernel<Qkv>>,
    /// For models with head norms.
    pub(super) head_norm: Option<Arc<Kernel<HeadNorm>>>,
    pub(super) attention: Arc<Kernel<PipelinedAttention>>,
    pub(super) o: LoadedProduct<ProductKernel<Project>>,
    pub(super) gate_up: LoadedProduct<ProductKernel<GateUp>>,
    pub(super) down: LoadedProduct<ProductKernel<Project>>,
}

/// A [`ResolvedProduct`] whose kernel is loaded.
pub(super) struct LoadedProduct<K> {
    pub(super) kernel: K,
    pub(super) layout: Layout,
}

impl Pipeline {
    /// Compiles the kernels.
    pub(crate) fn load(context: &Context, step: ResolvedStep) -> Result<Pipeline, Error> {
        let mut qkv = ProductKernels::new(context);
        let mut project = ProductKernels::new(context);
        let mut gate_up = ProductKernels::new(context);
        let mut head_norm = Distinct::new(context);
        let mut attention = Distinct::new(context);
        let layers = step.layers.iter().map(|layer| {
            Ok(LayerKernels {
                qkv: LoadedProduct::load(&mut qkv, &layer.qkv)?,
                head_norm: layer
                    .head_norm
                    .map(|kernel| head_norm.load(kernel))
                    .transpose()?,
                attention: attention.load(layer.attention)?,
                o: LoadedProduct::load(&mut project, &layer.o)?,
                gate_up: LoadedProduct::load(&mut gate_up, &layer.gate_up)?,
                down: LoadedProduct::load(&mut project, &layer.down)?,
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
            head: LoadedProduct {
                kernel: Arc::new(signed::load(context, step.head.kernel)?),
                layout: step.head.layout,
            },
            advance: signed::load(context, Advance)?,
            resolved: step,
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

impl<K: LoraProduct + PartialEq> LoadedProduct<ProductKernel<K>> {
    fn load(
        kernels: &mut ProductKernels<'_, K>,
        product: &ResolvedProduct<K>,
    ) -> Result<Self, Error> {
        Ok(LoadedProduct {
            kernel: kernels.load(product.kernel, product.lora)?,
            layout: product.layout,
        })
    }
}
