//! A LoRA adapter on the device, for the pipeline: the matrices A and B of each GEMV, and the
//! kernels that read A.
//!
//! A kernel in front of the GEMV computes `u = s A x` from the GEMV's input. The GEMV then adds `B
//! u` to its sums. A GEMV without an adapter is launched as in a model without one.

use std::sync::Arc;

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error};
use warpwright_kernels::pipeline::{
    LoraA, LoraANormed, LoraArgs, LoraProduct, Plan, WithLora, WithLoraArgs,
};
use warpwright_model::Outline;

use super::gemv_kind::GemvKind;
use crate::distinct::SharedKernels;
use crate::signed;
use crate::weights::lora_tiles::{self, LoraMatrices, LoraShape};

/// The kernels that compute `u` in front of GEMVs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResolvedLora {
    /// The kernel over block floating point inputs.
    pub(crate) plain: LoraA,
    /// The kernel that norms its input first.
    pub(crate) normed: LoraANormed,
    /// The maximum number of rows of A in a GEMV.
    pub(crate) max_ranks: u32,
}

impl ResolvedLora {
    /// Returns the kernels of a model, or `None` if it has no adapter.
    pub(crate) fn for_model(outline: &Outline, overlap: bool, batch: u32) -> Option<ResolvedLora> {
        let max_ranks = lora_tiles::max_ranks(outline);
        if max_ranks == 0 {
            return None;
        }
        Some(ResolvedLora {
            plain: LoraA { overlap, batch },
            normed: LoraANormed { overlap, batch },
            max_ranks,
        })
    }
}

/// The compiled kernels that compute `u` in front of GEMVs.
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

/// The compiled kernel of a GEMV, with an adapter or without.
pub(super) enum LoadedGemv<K> {
    Plain(Arc<Kernel<K>>),
    WithLora(Arc<Kernel<WithLora<K>>>),
}

/// The kernels of one kind of GEMV that were loaded so far.
pub(super) struct GemvLoader<'c, K> {
    plain: SharedKernels<'c, K>,
    with_lora: SharedKernels<'c, WithLora<K>>,
}

impl<'c, K: LoraProduct + PartialEq> GemvLoader<'c, K> {
    pub(super) fn new(context: &'c Context) -> Self {
        GemvLoader {
            plain: SharedKernels::new(context),
            with_lora: SharedKernels::new(context),
        }
    }

    /// Loads a kernel, with an adapter if `lora` is true.
    pub(super) fn load(&mut self, kernel: K, lora: bool) -> Result<LoadedGemv<K>, Error> {
        if lora {
            Ok(LoadedGemv::WithLora(self.with_lora.load(WithLora(kernel))?))
        } else {
            Ok(LoadedGemv::Plain(self.plain.load(kernel)?))
        }
    }
}

impl<K: LoraProduct> LoadedGemv<K> {
    pub(super) fn plan(&self) -> Plan {
        match self {
            LoadedGemv::Plain(kernel) => kernel.def().plan(),
            LoadedGemv::WithLora(kernel) => kernel.def().0.plan(),
        }
    }

    /// Launches the kernel. `lora` must be given exactly if the GEMV has an adapter.
    pub(super) fn launch<'v>(
        &self,
        queue: &mut impl Queue,
        args: K::Args<Host<'v>>,
        lora: Option<&'v LoraViews>,
    ) -> Result<(), Error> {
        match (self, lora) {
            (LoadedGemv::Plain(kernel), None) => queue.launch(kernel, args),
            (LoadedGemv::WithLora(kernel), Some(LoraViews { b, u, rank })) => {
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
            _ => unreachable!("the kernels and the adapter were resolved from the same outline"),
        }
    }
}

/// The adapter of one GEMV launch: B, and `u` for the tokens of the launch.
pub(super) struct LoraViews {
    pub(super) b: View<f32>,
    pub(super) u: View<f32>,
    pub(super) rank: u32,
}

/// An adapter on the device.
pub(crate) struct LoadedAdapter {
    /// The adapters of each layer, in the order of [`GemvKind::OF_LAYER`].
    layers: Vec<[Option<DeviceLora>; 4]>,
}

/// The adapter of a GEMV.
pub(crate) struct DeviceLora {
    pub(super) shape: LoraShape,
    /// The matrix A of each projection that the GEMV joins, `[parts * rank, n]`.
    pub(super) a: View<f32>,
    /// The matrix B, `[rows, rank]`.
    pub(super) b: View<f32>,
}

impl LoadedAdapter {
    /// Copies the adapter of a model to the device, if the model has one.
    pub(crate) fn load(
        context: &Context,
        outline: &Outline,
    ) -> Result<Option<LoadedAdapter>, Error> {
        if outline.adapter.is_none() {
            return Ok(None);
        }

        let gemv = |product: GemvKind, layer| -> Result<Option<DeviceLora>, Error> {
            let Some(LoraMatrices { shape, a, b }) = lora_tiles::matrices(outline, product, layer)
            else {
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
            let [qkv, o, gate_up, down] = GemvKind::OF_LAYER.map(|kind| gemv(kind, layer));
            Ok([qkv?, o?, gate_up?, down?])
        };
        let layers = (0..outline.weights.blocks.len())
            .map(layer)
            .collect::<Result<_, Error>>()?;
        Ok(Some(LoadedAdapter { layers }))
    }

    /// Returns the adapter of a GEMV in a layer, if it has one.
    pub(super) fn gemv(&self, kind: GemvKind, layer: usize) -> Option<&DeviceLora> {
        let index = GemvKind::OF_LAYER
            .iter()
            .position(|of_layer| *of_layer == kind)?;
        self.layers[layer][index].as_ref()
    }
}
