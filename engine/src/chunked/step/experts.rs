//! The launches of a mixture of experts.

use warpwright_driver::Error;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::matmul::MatmulArgs;
use warpwright_kernels::matmul::experts::{
    ChooseTokenExpertsArgs, CombineTokensArgs, GatherTokensArgs, MatmulExpertsArgs,
    RouterLogitsArgs, SortTokensArgs,
};
use warpwright_model::layer::Experts;

use super::{ChunkedPass, MatmulOperand};
use crate::chunked::experts::buffers::ExpertBuffers;
use crate::chunked::experts::kernels::ExpertKernels;
use crate::chunked::experts::sorted_rows::SortedRows;
use crate::chunked::kernels;
use crate::chunked::products::ExpertGemm;
use crate::chunked::weights::{LayerRows, MatrixRows};
use crate::chunked::workspace::ChunkWorkspace;
use crate::weights::packed::PackedBlock;

/// The mixture of experts of a layer in a pass.
struct PassExperts<'a> {
    described: &'a Experts,
    rows: &'a LayerRows,
    kernels: ExpertKernels,
    buffers: &'a ExpertBuffers,
}

impl PassExperts<'_> {
    /// Returns the expert of each group of sorted rows.
    fn group_expert(&self) -> View<u32> {
        let SortedRows { group, capacity } = self.kernels.sorted;
        ChunkWorkspace::rows(&self.buffers.group_expert, capacity / group, 1)
    }
}

impl ChunkedPass<'_> {
    /// Queues a mixture of experts, whose input is normed.
    pub(super) fn experts(
        &self,
        queue: &mut impl Queue,
        rows: &LayerRows,
        described: &Experts,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        let buffers = self.chunked.workspace.experts.as_ref();
        let cores = self.chunked.kernels.cores;
        let experts = PassExperts {
            described,
            rows,
            kernels: kernels::expert_kernels(cores, rows, described, self.input.shape),
            buffers: buffers.expect("models with experts have buffers for them"),
        };
        self.choose_experts(queue, &experts, block)?;
        self.sort(queue, &experts)?;
        self.expert_gate_up(queue, &experts)?;
        self.expert_down(queue, &experts)?;
        self.combine(queue, &experts)
    }

    /// Queues the router's logits and the choice of each token's experts.
    fn choose_experts(
        &self,
        queue: &mut impl Queue,
        experts: &PassExperts<'_>,
        block: &PackedBlock<View<u8>>,
    ) -> Result<(), Error> {
        let c = &self.chunked.config;
        let loaded = &self.chunked.kernels.experts;
        let PassExperts {
            described,
            buffers: b,
            kernels,
            ..
        } = experts;
        let Experts { count, chosen, .. } = **described;
        let tokens = self.input.tokens;
        let router = block.router.as_ref();
        let logits = &ChunkWorkspace::rows(&b.logits, tokens, count);
        let args = RouterLogitsArgs::<Host> {
            w: &router.expect("layers with experts have a router").cast()?,
            x: &self.rows(&self.chunked.workspace.x, c.hidden),
            gamma: &block.ffn_norm.cast()?,
            logits,
            tokens,
            count,
            n: c.hidden,
            epsilon: c.epsilon,
        };
        queue.launch(&loaded.router[&kernels.router], args)?;
        let args = ChooseTokenExpertsArgs::<Host> {
            logits,
            expert: &ChunkWorkspace::rows(&b.expert, tokens, chosen),
            weight: &ChunkWorkspace::rows(&b.weight, tokens, chosen),
            tokens,
            count,
            chosen,
            scale: described.weight_scale,
        };
        queue.launch(&loaded.choose[&kernels.choose], args)
    }

    /// Queues the order of the tokens by expert, and the copies of their activations.
    fn sort(&self, queue: &mut impl Queue, experts: &PassExperts<'_>) -> Result<(), Error> {
        let c = &self.chunked.config;
        let w = &self.chunked.workspace;
        let loaded = &self.chunked.kernels.experts;
        let PassExperts {
            described,
            buffers: b,
            kernels,
            ..
        } = experts;
        let Experts { count, chosen, .. } = **described;
        let SortedRows { group, capacity } = kernels.sorted;
        let tokens = self.input.tokens;
        let source = &ChunkWorkspace::rows(&b.source, capacity, 1);
        let args = SortTokensArgs::<Host> {
            expert: &ChunkWorkspace::rows(&b.expert, tokens, chosen),
            place: &ChunkWorkspace::rows(&b.place, tokens, chosen),
            source,
            group_expert: &experts.group_expert(),
            used: &b.used,
            tokens,
            chosen,
            count,
            width: group,
            capacity,
        };
        queue.launch(&loaded.sort[&kernels.sort], args)?;
        let args = GatherTokensArgs::<Host> {
            source,
            used: &b.used,
            x: &self.span.activations(&w.normed.values, c.hidden),
            x_scale: &ChunkWorkspace::rows(&w.normed.scale, tokens, 1),
            squares: &ChunkWorkspace::rows(&w.squares, tokens, 1),
            y: &ChunkWorkspace::rows(&b.normed.values, capacity, c.hidden),
            y_scale: &ChunkWorkspace::rows(&b.normed.scale, capacity, 1),
            y_squares: &ChunkWorkspace::rows(&b.squares, capacity, 1),
            tokens,
            n: c.hidden,
            x_capacity: self.span.capacity,
            capacity,
        };
        queue.launch(&loaded.gather[&kernels.gather], args)
    }

    /// Queues the matmul of gate and up of the experts, and the gate.
    fn expert_gate_up(
        &self,
        queue: &mut impl Queue,
        experts: &PassExperts<'_>,
    ) -> Result<(), Error> {
        let b = experts.buffers;
        let capacity = experts.kernels.sorted.capacity;
        let width = experts.described.width;
        let rows = &experts.rows.gate_up;
        let operand = MatmulOperand {
            values: ChunkWorkspace::rows(&b.normed.values, capacity, rows.n),
            scale: ChunkWorkspace::rows(&b.normed.scale, capacity, 1),
        };
        let product = &experts.kernels.gate_up;
        let matmul = MatmulArgs::<Host> {
            squares: &ChunkWorkspace::rows(&b.squares, capacity, 1),
            gated: &ChunkWorkspace::rows(&b.inner.values, capacity, width),
            gated_scale: &ChunkWorkspace::rows(&b.inner.scale, capacity, 1),
            bound: experts.rows.bound,
            y_rows: width,
            ..self.expert_args(product, rows, &operand, capacity)
        };
        let args = MatmulExpertsArgs::<Host> {
            matmul,
            group_expert: &experts.group_expert(),
            used: &b.used,
            count: experts.described.count,
        };
        self.chunked.kernels.experts.products[product].launch(queue, args)
    }

    /// Queues the matmul of the experts' down projections.
    fn expert_down(&self, queue: &mut impl Queue, experts: &PassExperts<'_>) -> Result<(), Error> {
        let b = experts.buffers;
        let capacity = experts.kernels.sorted.capacity;
        let hidden = self.chunked.config.hidden;
        let rows = &experts.rows.down;
        let operand = MatmulOperand {
            values: ChunkWorkspace::rows(&b.inner.values, capacity, rows.n),
            scale: ChunkWorkspace::rows(&b.inner.scale, capacity, 1),
        };
        let product = &experts.kernels.down;
        let matmul = MatmulArgs::<Host> {
            y: &ChunkWorkspace::rows(&b.y, capacity, hidden),
            y_rows: hidden,
            ..self.expert_args(product, rows, &operand, capacity)
        };
        let args = MatmulExpertsArgs::<Host> {
            matmul,
            group_expert: &experts.group_expert(),
            used: &b.used,
            count: experts.described.count,
        };
        self.chunked.kernels.experts.products[product].launch(queue, args)
    }

    /// Returns the arguments that the matmuls of experts share. Their rows are sorted.
    fn expert_args<'s>(
        &'s self,
        product: &ExpertGemm,
        rows: &'s MatrixRows,
        operand: &'s MatmulOperand,
        capacity: u32,
    ) -> MatmulArgs<Host<'s>> {
        let blocks = self.chunked.kernels.cores.expert_blocks(product);
        MatmulArgs::<Host> {
            tokens_given: capacity,
            capacity,
            ..self.args(blocks, rows, operand)
        }
    }

    /// Queues the addition of the weighted results to the residual stream.
    fn combine(&self, queue: &mut impl Queue, experts: &PassExperts<'_>) -> Result<(), Error> {
        let b = experts.buffers;
        let hidden = self.chunked.config.hidden;
        let chosen = experts.described.chosen;
        let capacity = experts.kernels.sorted.capacity;
        let tokens = self.input.tokens;
        let args = CombineTokensArgs::<Host> {
            y: &ChunkWorkspace::rows(&b.y, capacity, hidden),
            place: &ChunkWorkspace::rows(&b.place, tokens, chosen),
            weight: &ChunkWorkspace::rows(&b.weight, tokens, chosen),
            x: &self.rows(&self.chunked.workspace.x, hidden),
            tokens,
            chosen,
            n: hidden,
            capacity,
        };
        let loaded = &self.chunked.kernels.experts.combine;
        queue.launch(&loaded[&experts.kernels.combine], args)
    }
}
