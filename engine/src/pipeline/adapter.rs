//! An adapter on the device, for the pipeline: A and B of each product, and the kernels that read A.
//!
//! A kernel in front of the product computes `u = s A x` from what the product reads; the product adds `B u` to its
//! sums. Products without an adapter are launched as ever.

use std::sync::Arc;

use warpwright_driver::{Buffer, Context, Error, Host, Kernel, Queue, View};
use warpwright_kernels::pipeline::{
    LoraA, LoraANormed, LoraArgs, LoraProduct, Plan, WithLora, WithLoraArgs,
};

use super::product::Product;
use crate::adapter::tiles::{self, LoraShape, Matrices};
use crate::distinct::Distinct;
use crate::model::outline::Outline;
use crate::signed;

/// The kernels in front of products.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResolvedLora {
    pub(crate) plain: LoraA,
    pub(crate) normed: LoraANormed,
    /// Rows of A of a product, at most.
    pub(crate) max_ranks: u32,
}

impl ResolvedLora {
    /// Those of a model with an adapter.
    pub(crate) fn of(outline: &Outline, overlap: bool, batch: u32) -> Option<ResolvedLora> {
        let max_ranks = tiles::max_ranks(outline);
        let (plain, normed) = (LoraA { overlap, batch }, LoraANormed { overlap, batch });
        (max_ranks > 0).then_some(ResolvedLora {
            plain,
            normed,
            max_ranks,
        })
    }
}

/// The same, compiled.
pub(crate) struct LoraKernels {
    pub(super) plain: Kernel<LoraA>,
    pub(super) normed: Kernel<LoraANormed>,
}

impl LoraKernels {
    pub(super) fn load(context: &Context, resolved: ResolvedLora) -> Result<LoraKernels, Error> {
        let ResolvedLora { plain, normed, .. } = resolved;
        Ok(LoraKernels {
            plain: signed::load(context, plain)?,
            normed: signed::load(context, normed)?,
        })
    }
}

/// A product's kernel, with an adapter or without.
pub(super) enum ProductKernel<K> {
    Plain(Arc<Kernel<K>>),
    WithLora(Arc<Kernel<WithLora<K>>>),
}

/// The kernels of a kind of product so far.
pub(super) struct ProductKernels<'c, K> {
    plain: Distinct<'c, K>,
    with_lora: Distinct<'c, WithLora<K>>,
}

impl<'c, K: LoraProduct + PartialEq> ProductKernels<'c, K> {
    pub(super) fn new(context: &'c Context) -> Self {
        ProductKernels {
            plain: Distinct::new(context),
            with_lora: Distinct::new(context),
        }
    }

    pub(super) fn load(&mut self, kernel: K, lora: bool) -> Result<ProductKernel<K>, Error> {
        Ok(match lora {
            false => ProductKernel::Plain(self.plain.load(kernel)?),
            true => ProductKernel::WithLora(self.with_lora.load(WithLora(kernel))?),
        })
    }
}

impl<K: LoraProduct> ProductKernel<K> {
    pub(super) fn plan(&self) -> Plan {
        match self {
            ProductKernel::Plain(kernel) => kernel.def().plan(),
            ProductKernel::WithLora(kernel) => kernel.def().0.plan(),
        }
    }

    /// Launches it; `lora` is there if the product has an adapter.
    pub(super) fn launch<'v>(
        &self,
        queue: &mut impl Queue,
        args: K::Args<Host<'v>>,
        lora: Option<&'v LoraViews>,
    ) -> Result<(), Error> {
        match (self, lora) {
            (ProductKernel::Plain(kernel), None) => queue.launch(kernel, args),
            (ProductKernel::WithLora(kernel), Some(LoraViews { b, u, rank })) => {
                let lora = LoraArgs::<Host> {
                    lora_b: b,
                    lora_u: u,
                    rank: *rank,
                };
                queue.launch(
                    kernel,
                    WithLoraArgs {
                        product: args,
                        lora,
                    },
                )
            }
            _ => unreachable!("a step's kernels and its adapter are those of the same outline"),
        }
    }
}

/// What a launch of a product has of its adapter: B, and `u` of the launch's tokens.
pub(super) struct LoraViews {
    pub(super) b: View<f32>,
    pub(super) u: View<f32>,
    pub(super) rank: u32,
}

/// An adapter on the device.
pub(crate) struct LoadedAdapter {
    /// For each layer, in the order of [`Product::OF_LAYER`].
    layers: Vec<[Option<DeviceLora>; 4]>,
}

/// A product's adapter.
pub(crate) struct DeviceLora {
    pub(super) shape: LoraShape,
    /// `[parts * rank, n]`
    pub(super) a: View<f32>,
    /// `[rows, rank]`
    pub(super) b: View<f32>,
}

impl LoadedAdapter {
    /// Copies the adapter of a model, if it has one.
    pub(crate) fn load(
        context: &Context,
        outline: &Outline,
    ) -> Result<Option<LoadedAdapter>, Error> {
        if outline.adapter.is_none() {
            return Ok(None);
        }
        let product = |product: Product, layer| -> Result<Option<DeviceLora>, Error> {
            let Some(Matrices { shape, a, b }) = tiles::matrices(outline, product, layer) else {
                return Ok(None);
            };
            let copy = |numbers: &[f32], factor: &str| -> Result<View<f32>, Error> {
                let name = format!("blk.{layer}.{}.lora_{factor}", product.name());
                Ok(Buffer::from_slice(context, numbers)?.labelled(&name).view())
            };
            Ok(Some(DeviceLora {
                shape,
                a: copy(&a, "a")?,
                b: copy(&b, "b")?,
            }))
        };
        let layer = |layer| {
            let [qkv, o, gate_up, down] = Product::OF_LAYER.map(|p| product(p, layer));
            Ok([qkv?, o?, gate_up?, down?])
        };
        let layers = (0..outline.weights.blocks.len())
            .map(layer)
            .collect::<Result<_, Error>>()?;
        Ok(Some(LoadedAdapter { layers }))
    }

    /// That of a product of a layer.
    pub(super) fn of(&self, product: Product, layer: usize) -> Option<&DeviceLora> {
        let place = Product::OF_LAYER
            .iter()
            .position(|of_layer| *of_layer == product)?;
        self.layers[layer][place].as_ref()
    }
}
