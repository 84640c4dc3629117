//! The kernels that have a bias in some families, compiled with it or without it, and the views of
//! the biases.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error};
use warpwright_kernels::pipeline::{
    BiasArgs, BiasedProduct, ExpertBiasArgs, ExpertGateUp, ExpertGateUpArgs, PipelinedAttention,
    PipelinedAttentionArgs, Plan, Project, ProjectArgs, SinkArgs, WithBias, WithBiasArgs,
    WithExpertBiases, WithExpertBiasesArgs, WithSinks, WithSinksArgs,
};
use warpwright_model::layer::Experts;

use super::adapter::{GemvLoader, LoadedGemv, LoraViews};
use super::cache::{CacheLoaded, CacheLoader, PageTable};
use super::cache_layout::CacheLayout;
use super::resolved::{ExpertBiasKind, ResolvedGemv};
use crate::distinct::SharedKernels;

/// The message of a launch whose bias does not suit its kernel.
const SAME_LAYER: &str = "the kernels and the biases follow from the same layer";

/// A compiled kernel, with a bias or without.
pub(super) enum MaybeBiased<K> {
    Plain(Arc<Kernel<K>>),
    Biased(Arc<Kernel<WithBias<K>>>),
}

/// The kernels of one kind that were loaded so far.
pub(super) struct BiasLoader<'c, K> {
    plain: SharedKernels<'c, K>,
    biased: SharedKernels<'c, WithBias<K>>,
}

impl<'c, K: BiasedProduct + PartialEq> BiasLoader<'c, K> {
    pub(super) fn new(context: &'c Context) -> Self {
        BiasLoader {
            plain: SharedKernels::new(context),
            biased: SharedKernels::new(context),
        }
    }

    /// Loads the kernel of a mixture of experts with these biases.
    pub(super) fn load(
        &mut self,
        kernel: K,
        biases: ExpertBiasKind,
    ) -> Result<MaybeBiased<K>, Error> {
        Ok(match biases {
            ExpertBiasKind::None => MaybeBiased::Plain(self.plain.load(kernel)?),
            ExpertBiasKind::All => MaybeBiased::Biased(self.biased.load(WithBias(kernel))?),
        })
    }
}

impl<K: BiasedProduct> MaybeBiased<K> {
    /// Launches the kernel. `bias` must be given exactly if the kernel has one.
    pub(super) fn launch<'v>(
        &self,
        queue: &mut impl Queue,
        args: K::Args<Host<'v>>,
        bias: Option<&'v View<f32>>,
    ) -> Result<(), Error> {
        match (self, bias) {
            (MaybeBiased::Plain(kernel), None) => queue.launch(kernel, args),
            (MaybeBiased::Biased(kernel), Some(bias)) => launch_biased(queue, kernel, args, bias),
            _ => unreachable!("{SAME_LAYER}"),
        }
    }
}

fn launch_biased<'v, K: KernelDef>(
    queue: &mut impl Queue,
    kernel: &Kernel<WithBias<K>>,
    product: K::Args<Host<'v>>,
    bias: &'v View<f32>,
) -> Result<(), Error>
where
    WithBias<K>: for<'a> KernelDef<Args<Host<'a>> = WithBiasArgs<K, Host<'a>>>,
{
    let bias = BiasArgs::<Host> { bias };
    queue.launch(kernel, WithBiasArgs { product, bias })
}

/// The compiled kernel of a projection to the residual stream, with a bias, with an adapter or
/// without either.
pub(super) enum LoadedProject {
    Gemv(LoadedGemv<Project>),
    Biased(Arc<Kernel<WithBias<Project>>>),
}

/// The kernels of projections that were loaded so far.
pub(super) struct ProjectLoader<'c> {
    gemv: GemvLoader<'c, Project>,
    biased: SharedKernels<'c, WithBias<Project>>,
}

impl<'c> ProjectLoader<'c> {
    pub(super) fn new(context: &'c Context) -> Self {
        ProjectLoader {
            gemv: GemvLoader::new(context),
            biased: SharedKernels::new(context),
        }
    }

    /// Loads the kernel of a projection without a bias.
    pub(super) fn load(&mut self, product: &ResolvedGemv<Project>) -> Result<LoadedProject, Error> {
        let kernel = self.gemv.load(product.kernel, product.lora)?;
        Ok(LoadedProject::Gemv(kernel))
    }

    /// Loads the kernel of a projection with a bias.
    pub(super) fn load_biased(
        &mut self,
        product: &ResolvedGemv<Project>,
    ) -> Result<LoadedProject, Error> {
        let kernel = self.biased.load(WithBias(product.kernel))?;
        Ok(LoadedProject::Biased(kernel))
    }
}

impl LoadedProject {
    pub(super) fn plan(&self) -> Plan {
        match self {
            LoadedProject::Gemv(kernel) => kernel.plan(),
            LoadedProject::Biased(kernel) => kernel.def().0.plan,
        }
    }

    /// Launches the kernel. `lora` must be given exactly if the projection has an adapter, and `bias`
    /// exactly if it has a bias.
    pub(super) fn launch<'v>(
        &self,
        queue: &mut impl Queue,
        args: ProjectArgs<Host<'v>>,
        lora: Option<&'v LoraViews>,
        bias: Option<&'v View<f32>>,
    ) -> Result<(), Error> {
        match (self, lora, bias) {
            (LoadedProject::Gemv(kernel), lora, None) => kernel.launch(queue, args, lora),
            (LoadedProject::Biased(kernel), None, Some(bias)) => {
                launch_biased(queue, kernel, args, bias)
            }
            _ => unreachable!("{SAME_LAYER}"),
        }
    }
}

/// The compiled kernel of attention, with sinks or without.
pub(super) enum LoadedAttention {
    Plain(CacheLoaded<PipelinedAttention>),
    Sinks(Arc<Kernel<WithSinks>>),
}

/// The attention kernels that were loaded so far.
pub(super) struct AttentionLoader<'c> {
    plain: CacheLoader<'c, PipelinedAttention>,
    sinks: SharedKernels<'c, WithSinks>,
}

impl<'c> AttentionLoader<'c> {
    pub(super) fn new(context: &'c Context, layout: CacheLayout) -> Self {
        AttentionLoader {
            plain: CacheLoader::new(context, layout),
            sinks: SharedKernels::new(context),
        }
    }

    /// Loads the kernel of attention without sinks.
    pub(super) fn load(&mut self, kernel: PipelinedAttention) -> Result<LoadedAttention, Error> {
        Ok(LoadedAttention::Plain(self.plain.load(kernel)?))
    }

    /// Loads the kernel of attention with sinks, over a cache of one sequence.
    pub(super) fn load_sinks(
        &mut self,
        kernel: PipelinedAttention,
    ) -> Result<LoadedAttention, Error> {
        Ok(LoadedAttention::Sinks(self.sinks.load(WithSinks(kernel))?))
    }
}

impl LoadedAttention {
    /// Launches the kernel. `table` must be given exactly if the cache is paged, and `sinks` exactly
    /// if the layer has them.
    pub(super) fn launch<'v>(
        &self,
        queue: &mut impl Queue,
        args: PipelinedAttentionArgs<Host<'v>>,
        table: Option<&'v PageTable>,
        sinks: Option<&'v View<f32>>,
    ) -> Result<(), Error> {
        match (self, table, sinks) {
            (LoadedAttention::Plain(kernel), table, None) => kernel.launch(queue, args, table),
            (LoadedAttention::Sinks(kernel), None, Some(sinks)) => {
                let sinks = SinkArgs::<Host> { sinks };
                queue.launch(
                    kernel,
                    WithSinksArgs::<Host> {
                        attention: args,
                        sinks,
                    },
                )
            }
            _ => unreachable!("{SAME_LAYER}"),
        }
    }
}

/// The compiled kernel of the gate and up projections of experts, with biases or without.
pub(super) enum LoadedExpertGateUp {
    Plain(Arc<Kernel<ExpertGateUp>>),
    Biased(Arc<Kernel<WithExpertBiases>>),
}

/// The kernels of gate and up projections of experts that were loaded so far.
pub(super) struct ExpertGateUpLoader<'c> {
    plain: SharedKernels<'c, ExpertGateUp>,
    biased: SharedKernels<'c, WithExpertBiases>,
}

impl<'c> ExpertGateUpLoader<'c> {
    pub(super) fn new(context: &'c Context) -> Self {
        ExpertGateUpLoader {
            plain: SharedKernels::new(context),
            biased: SharedKernels::new(context),
        }
    }

    pub(super) fn load(
        &mut self,
        kernel: ExpertGateUp,
        biases: ExpertBiasKind,
    ) -> Result<LoadedExpertGateUp, Error> {
        Ok(match biases {
            ExpertBiasKind::None => LoadedExpertGateUp::Plain(self.plain.load(kernel)?),
            ExpertBiasKind::All => {
                LoadedExpertGateUp::Biased(self.biased.load(WithExpertBiases(kernel))?)
            }
        })
    }
}

impl LoadedExpertGateUp {
    /// Launches the kernel. `biases` must be given exactly if the experts have them.
    pub(super) fn launch<'v>(
        &self,
        queue: &mut impl Queue,
        args: ExpertGateUpArgs<Host<'v>>,
        biases: Option<&'v ExpertBiasViews>,
    ) -> Result<(), Error> {
        match (self, biases) {
            (LoadedExpertGateUp::Plain(kernel), None) => queue.launch(kernel, args),
            (LoadedExpertGateUp::Biased(kernel), Some(biases)) => {
                let biases = ExpertBiasArgs::<Host> {
                    gate_bias: &biases.gate,
                    up_bias: &biases.up,
                    down_bias: &biases.down,
                    bias_sum: &biases.sum,
                    hidden: biases.hidden,
                };
                queue.launch(
                    kernel,
                    WithExpertBiasesArgs::<Host> {
                        product: args,
                        biases,
                    },
                )
            }
            _ => unreachable!("{SAME_LAYER}"),
        }
    }
}

/// The biases of a mixture of experts on the device.
pub(super) struct ExpertBiasViews {
    /// `[count]`: the bias of the router
    pub(super) router: View<f32>,
    /// `[count, width]`
    gate: View<f32>,
    /// `[count, width]`
    up: View<f32>,
    /// `[count, hidden]`
    down: View<f32>,
    /// `[hidden]`: the weighted sum of the chosen experts' biases of the down projections
    pub(super) sum: View<f32>,
    hidden: u32,
}

impl ExpertBiasViews {
    /// Returns the parts of a layer's buffer, in which the biases of the router, of gate, of up and of
    /// down follow each other.
    pub(super) fn new(
        all: &View<u8>,
        experts: &Experts,
        hidden: u32,
        sum: View<f32>,
    ) -> Result<ExpertBiasViews, Error> {
        let all = all.cast::<f32>()?;
        let mut end = 0;
        let [router, gate, up, down] = [1, experts.width, experts.width, hidden].map(|len| {
            let start = end;
            end += experts.count as usize * len as usize;
            all.view_range(start..end)
        });
        Ok(ExpertBiasViews {
            router,
            gate,
            up,
            down,
            sum,
            hidden,
        })
    }
}
