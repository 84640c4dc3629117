//! The pipeline's kernels, compiled for the device: each distinct one of a [`ResolvedStep`] once.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::{Context, Error, Kernel};
use warpwright_kernels::Advance;
use warpwright_kernels::tiled::{
    EmbedRows, EmbedTiled, GateUp, HeadNorm, Layout, LmHead, PipelinedAttention, Project, Qkv, SplitPrompt,
};

use super::resolved::{ResolvedEmbed, ResolvedProduct, ResolvedStep};

/// The loaded kernels of a step.
pub(crate) struct Pipeline {
    /// What they were loaded from.
    pub(crate) resolved: ResolvedStep,
    /// For batches larger than 1.
    pub(super) split_prompt: Option<Kernel<SplitPrompt>>,
    pub(super) embed: EmbedKernel,
    /// In order.
    pub(super) layers: Vec<LayerKernels>,
    /// For models with head norms.
    pub(super) head_norm: Option<Kernel<HeadNorm>>,
    pub(super) attention: Kernel<PipelinedAttention>,
    pub(super) head: LoadedProduct<LmHead>,
    pub(super) advance: Kernel<Advance>,
}

/// The kernel that embeds a token.
pub(super) enum EmbedKernel {
    Tiles(Kernel<EmbedTiled>),
    Rows(Kernel<EmbedRows>),
}

/// The products of a layer. Layers of the same formats share their kernels.
pub(super) struct LayerKernels {
    pub(super) qkv: LoadedProduct<Qkv>,
    pub(super) o: LoadedProduct<Project>,
    pub(super) gate_up: LoadedProduct<GateUp>,
    pub(super) down: LoadedProduct<Project>,
}

/// A [`ResolvedProduct`] whose kernel is loaded.
pub(super) struct LoadedProduct<K> {
    pub(super) kernel: Arc<Kernel<K>>,
    pub(super) layout: Layout,
}

impl Pipeline {
    /// Compiles one kernel after the other, as drivers serialize compilation anyway.
    pub(crate) fn load(context: &Context, step: ResolvedStep) -> Result<Pipeline, Error> {
        let mut qkv = Distinct::new(context);
        let mut project = Distinct::new(context);
        let mut gate_up = Distinct::new(context);
        let layers = step.layers.iter().map(|layer| {
            Ok(LayerKernels {
                qkv: qkv.load(&layer.qkv)?,
                o: project.load(&layer.o)?,
                gate_up: gate_up.load(&layer.gate_up)?,
                down: project.load(&layer.down)?,
            })
        });
        let layers = layers.collect::<Result<_, Error>>()?;
        let split_prompt = step.split_prompt.map(|kernel| Kernel::load(context, kernel));
        let head_norm = step.head_norm.map(|kernel| Kernel::load(context, kernel));
        Ok(Pipeline {
            split_prompt: split_prompt.transpose()?,
            embed: EmbedKernel::load(context, step.embed)?,
            layers,
            head_norm: head_norm.transpose()?,
            attention: Kernel::load(context, step.attention)?,
            head: Distinct::new(context).load(&step.head)?,
            advance: Kernel::load(context, Advance)?,
            resolved: step,
        })
    }
}

impl EmbedKernel {
    fn load(context: &Context, embed: ResolvedEmbed) -> Result<EmbedKernel, Error> {
        Ok(match embed {
            ResolvedEmbed::Tiles(kernel) => EmbedKernel::Tiles(Kernel::load(context, kernel)?),
            ResolvedEmbed::Rows(kernel) => EmbedKernel::Rows(Kernel::load(context, kernel)?),
        })
    }
}

/// Loads each distinct kernel once.
struct Distinct<'c, K> {
    context: &'c Context,
    loaded: Vec<Arc<Kernel<K>>>,
}

impl<'c, K: KernelDef + Copy + PartialEq> Distinct<'c, K> {
    fn new(context: &'c Context) -> Distinct<'c, K> {
        Distinct { context, loaded: vec![] }
    }

    fn load(&mut self, product: &ResolvedProduct<K>) -> Result<LoadedProduct<K>, Error> {
        let ResolvedProduct { kernel, layout } = *product;
        if let Some(known) = self.loaded.iter().find(|known| *known.def() == kernel) {
            return Ok(LoadedProduct { kernel: known.clone(), layout });
        }
        let kernel = Arc::new(Kernel::load(self.context, kernel)?);
        self.loaded.push(kernel.clone());
        Ok(LoadedProduct { kernel, layout })
    }
}
