//! The launches of adapters in a pass.

use warpwright_driver::Error;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, View, f16};
use warpwright_driver::stream::Queue;
use warpwright_kernels::batch::lora::{
    BatchLoraAddArgs, BatchLoraAppendArgs, BatchLoraShrinkArgs, GateTokensArgs,
};
use warpwright_kernels::matmul::AppendArgs;

use super::matrix::DeviceLora;
use super::pool::{self, GateUpLora, LayerLora, LoraPool};
use crate::chunked::weights::LayerRows;
use crate::chunked::workspace::CAPACITY;

/// The adapters of a pass.
#[derive(Clone, Copy)]
pub(crate) struct LoraPass<'a> {
    pub(crate) pool: &'a LoraPool,
    /// The number of rows that a block processes.
    pub(crate) tile: u32,
}

/// The rows of a launch.
#[derive(Clone, Copy)]
pub(crate) struct LoraRows<'a> {
    pub(crate) tokens: u32,
    /// The states of the rows.
    pub(crate) state: &'a Buffer<u32>,
}

impl<'a> LoraPass<'a> {
    /// Returns the adapters of a layer.
    pub(crate) fn layer(&self, index: usize) -> &'a LayerLora {
        &self.pool.layers[index]
    }

    /// Queues `u = s A x` for the input of a matmul.
    pub(crate) fn shrink(
        &self,
        queue: &mut impl Queue,
        lora: &DeviceLora,
        rows: LoraRows<'_>,
        x: &View<f16>,
        x_scale: &View<f32>,
    ) -> Result<(), Error> {
        let args = BatchLoraShrinkArgs::<Host> {
            a: &lora.a,
            x,
            x_scale,
            state: rows.state,
            u: &self.pool.u,
            adapters: self.pool.adapters,
            ranks: lora.ranks(),
            n: lora.n,
            tokens: rows.tokens,
            capacity: CAPACITY,
            tile: self.tile,
        };
        queue.launch(&self.pool.kernels.shrink, args)
    }

    /// Queues `y += B u`, if an adapter changes the matmul.
    pub(crate) fn add(
        &self,
        queue: &mut impl Queue,
        lora: Option<&DeviceLora>,
        rows: LoraRows<'_>,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let Some(lora) = lora else { return Ok(()) };
        let args = BatchLoraAddArgs::<Host> {
            b: &lora.b,
            u: &self.pool.u,
            state: rows.state,
            y,
            adapters: self.pool.adapters,
            rank: lora.rank,
            rows: lora.rows,
            second: lora.firsts[0],
            third: lora.firsts[1],
            tokens: rows.tokens,
            tile: self.tile,
        };
        queue.launch(&self.pool.kernels.add[&lora.parts], args)
    }

    /// Queues the addition to queries, keys and values that the matmul has appended with these
    /// arguments.
    pub(crate) fn append(
        &self,
        queue: &mut impl Queue,
        lora: Option<&DeviceLora>,
        layer: &LayerRows,
        tokens: u32,
        appended: &AppendArgs<Host<'_>>,
    ) -> Result<(), Error> {
        let Some(lora) = lora else { return Ok(()) };
        let kernel = pool::append_kernel(layer).expect("the matmul of the layer appends");
        let args = BatchLoraAppendArgs::<Host> {
            b: &lora.b,
            u: &self.pool.u,
            angles: appended.angles,
            state: appended.state,
            pages: appended.pages,
            q: appended.q,
            k_cache: appended.k_cache,
            v_cache: appended.v_cache,
            heads: appended.heads,
            kv_heads: appended.kv_heads,
            cache_pages: appended.cache_pages,
            sequences: appended.sequences,
            max_pages: appended.max_pages,
            angle_row: appended.angle_row,
            angle_first: appended.angle_first,
            scale: appended.scale,
            adapters: self.pool.adapters,
            rank: lora.rank,
            tokens,
            capacity: CAPACITY,
            tile: self.tile,
        };
        queue.launch(&self.pool.kernels.append[&kernel], args)
    }

    /// Returns the buffer for the sums of gate and up of a layer.
    pub(crate) fn sums(&self, gate_up: &GateUpLora) -> View<f32> {
        let sums = self.pool.gate_up.as_ref();
        let sums = sums.expect("the pool has sums if an adapter changes gate and up");
        sums.view_range(0..CAPACITY as usize * gate_up.lora.rows as usize)
    }

    /// Queues the gate of the sums of gate and up.
    pub(crate) fn gate(
        &self,
        queue: &mut impl Queue,
        layer: &LayerRows,
        rows: LoraRows<'_>,
        gated: GatedRows<'_>,
    ) -> Result<(), Error> {
        let args = GateTokensArgs::<Host> {
            y: gated.sums,
            state: rows.state,
            squares: gated.squares,
            gated: gated.gated,
            gated_scale: gated.gated_scale,
            bound: layer.bound,
            width: layer.feed_forward.width(),
            adapters: self.pool.adapters,
            tokens: rows.tokens,
            capacity: CAPACITY,
        };
        queue.launch(&self.pool.kernels.gate[&pool::gate_kernel(layer)], args)
    }
}

/// The buffers of a gate.
pub(crate) struct GatedRows<'a> {
    pub(crate) sums: &'a View<f32>,
    pub(crate) squares: &'a View<f32>,
    pub(crate) gated: &'a View<f16>,
    pub(crate) gated_scale: &'a View<f32>,
}
