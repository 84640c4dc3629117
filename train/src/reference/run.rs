//! The inputs that all operations of a pass over a micro-batch share.

use std::ops::Range;

use warpwright_kernels::train::attention::{Heads, causal};
use warpwright_kernels::train::dropout::{Mask, threshold};
use warpwright_kernels::train::linear::Weight;
use warpwright_kernels::train::lora::Factors;
use warpwright_kernels::train::rope::Angles;

use super::adapters::{Adapter, Adapters};
use super::batch::MicroBatch;
use super::model::Model;
use crate::Projection;
use crate::kernel_terms::kernel_pairing;

/// A pass over a micro-batch.
pub(super) struct MicroBatchRun<'a> {
    pub(super) model: &'a Model<'a>,
    pub(super) micro: &'a MicroBatch,
    pub(super) angles: Angles,
    adapters: &'a Adapters,
    visible: Vec<Range<usize>>,
}

impl<'a> MicroBatchRun<'a> {
    pub(super) fn new(
        model: &'a Model<'a>,
        adapters: &'a Adapters,
        micro: &'a MicroBatch,
    ) -> MicroBatchRun<'a> {
        let angles = Angles::new(
            &micro.positions,
            &model.config.frequencies,
            kernel_pairing(model.pairing),
        );
        MicroBatchRun {
            model,
            micro,
            angles,
            adapters,
            visible: causal(&micro.starts),
        }
    }

    /// Returns a tensor as it is read back from memory.
    pub(super) fn store(&self, tensor: Vec<f64>) -> Vec<f64> {
        self.model.storage.store(tensor)
    }

    pub(super) fn heads(&self) -> Heads<'_> {
        let config = &self.model.config;
        Heads {
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            visible: &self.visible,
            operands: self.model.storage,
        }
    }

    /// Returns the unrounded output of a projection, and sets its adapter's `u` in `us`.
    pub(super) fn project(
        &self,
        l: usize,
        p: Projection,
        x: &[f64],
        us: &mut [Vec<f64>; 7],
    ) -> Vec<f64> {
        let ops = self.model.ops;
        let weight = self.weight(l, p);
        let Some(factors) = self.factors(l, p) else {
            return ops.linear(x, &weight, None);
        };
        let u = &mut us[p as usize];
        *u = self.store(ops.lora_u(x, &factors));
        ops.linear(x, &weight, Some((&factors, u)))
    }

    /// Returns the unrounded `dx` of a projection, and the gradients of its adapter.
    pub(super) fn project_backward(
        &self,
        l: usize,
        p: Projection,
        dy: &[f64],
        x: &[f64],
        u: &[f64],
    ) -> (Vec<f64>, Option<Adapter>) {
        let ops = self.model.ops;
        let weight = self.weight(l, p);
        let Some(factors) = self.factors(l, p) else {
            return (ops.linear_backward(dy, &weight, None), None);
        };

        let du = self.store(ops.lora_du(dy, &factors));
        let adapter = Adapter {
            a: ops.lora_da(&du, x, &factors),
            b: ops.lora_db(dy, u, &factors),
        };
        (
            ops.linear_backward(dy, &weight, Some((&factors, &du))),
            Some(adapter),
        )
    }

    fn weight(&self, l: usize, p: Projection) -> Weight<'_> {
        let layer = &self.model.weights.layers[l];
        let [n, _] = p.shape(&self.model.config);
        Weight {
            w: &layer.projections[p as usize],
            bias: layer.biases[p as usize].as_deref(),
            n,
        }
    }

    fn factors(&self, l: usize, p: Projection) -> Option<Factors<'_>> {
        let lora = &self.model.lora;
        let Adapter { a, b } = self.adapters.of(l, p)?;
        Some(Factors {
            a,
            b,
            rank: lora.rank,
            scale: lora.scale(),
            mask: self.mask(l, p),
        })
    }

    /// Returns the dropout mask of a projection, or `None` without dropout. Each projection has its
    /// own random stream.
    fn mask(&self, l: usize, p: Projection) -> Option<Mask> {
        let lora = &self.model.lora;
        if lora.dropout == 0.0 {
            return None;
        }
        Some(Mask {
            threshold: threshold(lora.dropout),
            seed: lora.seed,
            stream: (Projection::ALL.len() * l) as u32 + p as u32,
            micro: self.micro.number,
        })
    }
}
