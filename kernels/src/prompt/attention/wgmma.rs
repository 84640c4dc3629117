//! The attention of [`PromptAttention`] with `wgmma`, for heads of 64 or 128 dimensions, on sm_90a.
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

mod consumer;
mod producer;
mod ring;
mod softmax;

use super::rows::{ItemRows, Pages};
use super::{PromptAttention, PromptAttentionArgs};
use crate::case::{Case, Variant};
use crate::contract::Contract;
use crate::format::dequantize::ColumnOrder;
use consumer::Consumer;
use producer::Producer;
use ptx_gen::*;
use ring::Ring;

/// Kernel that computes causal attention with `wgmma`. Arguments and contract are equal to
/// [`PromptAttention`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromptAttentionWgmma {
    /// The number of dimensions of a head: 64 or 128.
    pub head_dim: u32,
    /// The size of the window in positions, including the token's own. `None` attends to all
    /// positions.
    pub window: Option<u32>,
    /// The order of the result's columns.
    pub order: ColumnOrder,
}

/// The number of warpgroups that multiply.
const GROUPS: u32 = 2;
/// The number of queries of a warpgroup.
const GROUP_QUERIES: u32 = 64;
/// The maximum number of queries of a block.
const QUERIES: u32 = GROUPS * GROUP_QUERIES;
/// The number of queries of a warp.
const WARP_QUERIES: u32 = GROUP_QUERIES / 4;
/// The number of positions of a step.
const KEYS: u32 = 128;
/// The bytes of a row of a panel of a tile.
const PANEL_BYTES: u32 = 128;
/// The number of tiles of the ring: as many as fit with 128 dimensions.
const TILES: u32 = 6;
/// The number of registers of a thread that copies.
const FEW: u32 = 40;
/// The number of registers of a thread that multiplies.
const MANY: u32 = 232;

impl PromptAttentionWgmma {
    /// The maximum number of queries of a work item.
    pub const QUERIES: u32 = QUERIES;

    /// Returns the kernel without a window.
    pub const fn new(head_dim: u32, order: ColumnOrder) -> Self {
        PromptAttentionWgmma {
            head_dim,
            window: None,
            order,
        }
    }

    /// Returns this kernel for a window of the latest positions.
    pub const fn with_window(self, window: u32) -> Self {
        PromptAttentionWgmma {
            window: Some(window),
            ..self
        }
    }

    /// Returns the equivalent kernel with `mma.sync`.
    pub const fn plain(self) -> PromptAttention {
        let PromptAttentionWgmma {
            head_dim,
            window,
            order,
        } = self;
        PromptAttention {
            head_dim,
            queries: QUERIES,
            window,
            order,
        }
    }

    /// Returns the bytes of the queries of a warpgroup.
    fn group_bytes(self) -> u32 {
        GROUP_QUERIES * 2 * self.head_dim
    }

    /// Returns the bytes of the keys, or of the values, of a step.
    fn tile_bytes(self) -> u32 {
        KEYS * 2 * self.head_dim
    }
}

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

/// The values that the threads of a block compute at the start.
struct WgmmaBlock<'a, 'k> {
    k: Builder<'k>,
    def: PromptAttentionWgmma,
    plain: &'a PromptAttention,
    a: &'a PromptAttentionArgs<Dev<'k>>,
    /// The queries: one tile for each warpgroup.
    queries: Ptr<'k, u8, Shared>,
    ring: Ring<'k>,
    head: U32<'k>,
    item: ItemRows<'k>,
    pages: Pages<'k>,
    /// The position at which the steps begin.
    start: U32<'k>,
    /// The position after the last one.
    end: U32<'k>,
}

impl<'a, 'k> WgmmaBlock<'a, 'k> {
    /// Computes the values of the block.
    fn new(
        k: Builder<'k>,
        def: PromptAttentionWgmma,
        plain: &'a PromptAttention,
        a: &'a PromptAttentionArgs<Dev<'k>>,
        item: ItemRows<'k>,
    ) -> Self {
        let queries = k.tile_memory("memory");
        let ring = Ring::new(k, queries.at(GROUPS * def.group_bytes()), def.tile_bytes());
        let start = plain.start(item.position).map(|start| start & !(KEYS - 1));
        let start = start.unwrap_or_else(|| k.val(0));
        let pages = Pages::new(a, item);
        WgmmaBlock {
            k,
            def,
            plain,
            a,
            queries,
            ring,
            head: k.ctaid(),
            item,
            pages,
            start,
            end: item.end(),
        }
    }

    /// Runs `body` with each step except the first.
    fn each_further(&self, body: impl FnOnce(U32<'k>)) {
        self.k.for_each(self.start + KEYS, self.end, KEYS, body);
    }
}
