//! The attention of [`PromptAttention`](super::PromptAttention) with `wgmma`, for heads of 64 or
//! 128 dimensions, on sm_90a.
//!
//! A block processes an item of up to 128 tokens for a query head, 64 for each of two warpgroups.
//! It goes through keys and values in steps of 128 positions, which are two pages. A third
//! warpgroup copies queries, keys and values into a ring of tiles of 128 rows, 16 bytes per thread
//! and copy. The keys of a step precede the values of the previous step.
//!
//! A warpgroup issues the matmul for the scores of a step, then the matmul for the weighted values
//! of the previous step. When the scores are complete, it computes the weights of the new step
//! while the second matmul is still running, as in FlashAttention-3 (Shah et al., 2024,
//! arXiv:2407.08608). The weights are the left matrix of the next matmul and stay in their
//! registers. When the second matmul is complete, the sums are rescaled if a maximum of the warp
//! has risen.

mod block;
mod consumer;
mod definition;
mod producer;
mod ring;
mod softmax;

use super::definition::PromptAttentionArgs;
use super::rows::ItemRows;
use crate::harness::{Case, Variant};
use crate::shared::Contract;
use block::WgmmaBlock;
use consumer::Consumer;
pub use definition::PromptAttentionWgmma;
use definition::{FEW, GROUPS, MANY, QUERIES, TILES};
use producer::Producer;
use ptx_gen::*;

impl KernelDef for PromptAttentionWgmma {
    type Args<S: Side> = PromptAttentionArgs<S>;

    fn name(&self) -> String {
        let window = self
            .window
            .map_or(String::new(), |window| format!("_window_{window}"));
        format!(
            "prompt_attention_wgmma_{}_{}{window}",
            self.head_dim, self.order.group
        )
    }

    fn block(&self) -> u32 {
        128 * (1 + GROUPS)
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }

    fn grid(&self, a: &PromptAttentionArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's head_dim", self.head_dim, 64)?;
        self.range("the kernel's head_dim", self.head_dim, 64, 128)?;
        let shared = GROUPS * self.group_bytes() + TILES * self.tile_bytes();
        Ok(Grid {
            shared,
            ..self.plain().grid(a)?
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: PromptAttentionArgs<Dev<'k>>) {
        k.section("prompt/wgmma/work_item", "work item of the block");
        let rows = ItemRows::load(k, &a, QUERIES);
        k.when(rows.count.ne(0), || {
            k.section(
                "prompt/wgmma/shared",
                "shared memory: queries, then the ring of tiles",
            );
            let plain = self.plain();
            let block = WgmmaBlock::new(k, *self, &plain, &a, rows);
            k.when(k.tid().eq(0), || block.ring.init());
            k.barrier();

            // The producer gives up registers, which the consumers need for their sums.
            k.roles(vec![
                Role::new(1, FEW, |_| Producer::new(&block).copy()),
                Role::new(GROUPS, MANY, |group| Consumer::new(&block, group).attend()),
            ]);
        });
    }

    fn reference(&self, a: PromptAttentionArgs<Cpu<'_>>) {
        self.plain().reference(a);
    }
}

impl Variant for PromptAttentionWgmma {
    fn cases(&self, seed: u64) -> Vec<Case> {
        self.plain().cases(seed)
    }
}
