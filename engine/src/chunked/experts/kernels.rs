//! The kernels of a mixture of experts in a pass.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use warpwright_driver::launch::Kernel;
use warpwright_driver::{Context, Error};
use warpwright_kernels::Overlap;
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::matmul::Epilogue;
use warpwright_kernels::matmul::experts::{
    ChooseTokenExperts, CombineTokens, GatherTokens, RouterLogits, SortTokens,
};
use warpwright_model::layer::Experts;

use super::sorted_rows::SortedRows;
use crate::chunked::loaded::prepare;
use crate::chunked::products::{ExpertGemm, LoadedExpertGemm, PassShape, TensorCores};
use crate::chunked::weights::MatrixRows;
use crate::kernel_terms::{kernel_activation, kernel_weighting};

/// The matrices of the experts of a layer.
pub(crate) struct ExpertMatrixRows<'a> {
    pub(crate) gate_up: &'a MatrixRows,
    pub(crate) down: &'a MatrixRows,
    /// The order in which the down projections read their columns.
    pub(crate) down_order: ColumnOrder,
}

/// The kernels of a layer's mixture of experts in a pass, in the order of their launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExpertKernels {
    pub(crate) sorted: SortedRows,
    pub(crate) router: RouterLogits,
    pub(crate) choose: ChooseTokenExperts,
    pub(crate) sort: SortTokens,
    pub(crate) gather: GatherTokens,
    pub(crate) gate_up: ExpertGemm,
    pub(crate) down: ExpertGemm,
    pub(crate) combine: CombineTokens,
}

impl ExpertKernels {
    /// Selects the kernels of a layer for passes with this shape.
    pub(crate) fn new(
        cores: TensorCores,
        experts: &Experts,
        matrices: &ExpertMatrixRows<'_>,
        shape: PassShape,
    ) -> ExpertKernels {
        let sorted = SortedRows::new(cores, experts, shape.bucket);
        let overlap = if shape.overlap {
            Overlap::Early
        } else {
            Overlap::No
        };
        let product = |rows: &MatrixRows, epilogue| {
            cores.expert_product(rows, epilogue, sorted.group, overlap)
        };
        let gated = Epilogue::Gated(kernel_activation(experts.activation), matrices.down_order);
        let weighting = kernel_weighting(experts.weighting);
        ExpertKernels {
            sorted,
            router: RouterLogits {
                overlap,
                ..RouterLogits::new(shape.bucket)
            },
            choose: ChooseTokenExperts {
                overlap,
                ..ChooseTokenExperts::new(experts.count, weighting)
            },
            sort: SortTokens { overlap },
            gather: GatherTokens { overlap },
            gate_up: product(matrices.gate_up, gated),
            down: product(matrices.down, Epilogue::Store),
            combine: CombineTokens { overlap },
        }
    }
}

/// The compiled kernels of mixtures of experts.
#[derive(Default)]
pub(crate) struct LoadedExpertKernels {
    pub(crate) router: BTreeMap<RouterLogits, Kernel<RouterLogits>>,
    pub(crate) choose: BTreeMap<ChooseTokenExperts, Kernel<ChooseTokenExperts>>,
    pub(crate) sort: BTreeMap<SortTokens, Kernel<SortTokens>>,
    pub(crate) gather: BTreeMap<GatherTokens, Kernel<GatherTokens>>,
    pub(crate) products: BTreeMap<ExpertGemm, LoadedExpertGemm>,
    pub(crate) combine: BTreeMap<CombineTokens, Kernel<CombineTokens>>,
}

impl LoadedExpertKernels {
    /// Compiles kernels, unless they exist.
    pub(crate) fn prepare(
        &mut self,
        context: &Context,
        kernels: &ExpertKernels,
    ) -> Result<(), Error> {
        prepare(context, &mut self.router, kernels.router)?;
        prepare(context, &mut self.choose, kernels.choose)?;
        prepare(context, &mut self.sort, kernels.sort)?;
        prepare(context, &mut self.gather, kernels.gather)?;
        prepare(context, &mut self.combine, kernels.combine)?;
        for product in [kernels.gate_up, kernels.down] {
            if let Entry::Vacant(entry) = self.products.entry(product) {
                entry.insert(product.load(context)?);
            }
        }
        Ok(())
    }
}
