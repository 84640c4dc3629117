//! Attention with sinks.
//!
//! A sink is a learned score of a head that takes part in the softmax but has no value (Xiao et al.,
//! 2023, arXiv:2309.17453). It is counted once, when the result is complete: by the block that
//! processes all positions, or by the warp that merges the splits.

use super::definition::{PipelinedAttention, PipelinedAttentionArgs};
use crate::shared::Contract;
use ptx_gen::*;

args! {
    /// The sinks of a layer's heads.
    pub struct SinkArgs {
        /// `[heads]`: the score of each head's sink, which is not scaled
        sinks: In<f32>,
    }
}

args! {
    /// Arguments of [`WithSinks`].
    pub struct WithSinksArgs {
        /// The arguments of the kernel.
        attention: PipelinedAttentionArgs,
        /// The sinks.
        sinks: SinkArgs,
    }
}

/// [`PipelinedAttention`] in which each head has a sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WithSinks(pub PipelinedAttention);

impl KernelDef for WithSinks {
    type Args<S: Side> = WithSinksArgs<S>;

    fn name(&self) -> String {
        format!("{}_sinks", KernelDef::name(&self.0))
    }

    fn block(&self) -> u32 {
        KernelDef::block(&self.0)
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        KernelDef::blocks_per_sm(&self.0)
    }

    fn grid(&self, a: &WithSinksArgs<Shape>) -> Result<Grid, ShapeError> {
        // The error of the inner contract must name this kernel.
        let named = |e: ShapeError| ShapeError {
            kernel: KernelDef::name(self),
            ..e
        };
        let grid = self.0.grid(&a.attention).map_err(named)?;
        self.length("sinks", a.sinks.sinks, "heads", &[a.attention.heads])?;
        Ok(grid)
    }

    fn program<'k>(&self, k: Builder<'k>, a: WithSinksArgs<Dev<'k>>) {
        self.0.emit(k, a.attention, None, Some(a.sinks.sinks));
    }

    fn reference(&self, a: WithSinksArgs<Cpu<'_>>) {
        self.0.compute(a.attention, None, Some(a.sinks.sinks));
    }
}
