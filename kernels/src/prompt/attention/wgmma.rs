//! The same attention on `wgmma`, of heads of 64 or 128 dimensions. sm_90a.
//!
//! A block takes an item of up to 128 tokens for a query head, 64 to each of two warpgroups, and goes through keys and
//! values in steps of 128 positions, which are two pages. The threads of a third one copy queries, keys and values, 16
//! bytes at a time, to where the products want them: into a ring of tiles of 128 rows, keys of a step before the values of
//! the one before it.
//!
//! A warpgroup asks for the scores of a step, then for the weighted values of the step before. When the scores are there,
//! the weights of the new step are computed beside the second product; they are its left matrix, and do not leave their
//! registers. When it is done, the sums are rescaled if a maximum of the warp has risen.

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

/// The kernel: [`PromptAttention`] with the same arguments and the same contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromptAttentionWgmma {
    /// Dimensions of a head: 64 or 128.
    pub head_dim: u32,
    /// The latest positions that count, the token's own included; all of them without a window.
    pub window: Option<u32>,
    /// The order of the columns of the result.
    pub order: ColumnOrder,
}

/// Warpgroups that multiply, and the queries of each.
const GROUPS: u32 = 2;
const GROUP_QUERIES: u32 = 64;
/// Queries of a block, at most.
const QUERIES: u32 = GROUPS * GROUP_QUERIES;
/// Queries of a warp.
const WARP_QUERIES: u32 = GROUP_QUERIES / 4;
/// Positions of a step.
const KEYS: u32 = 128;
/// Bytes of a row of a panel of a tile.
const PANEL_BYTES: u32 = 128;
/// Tiles of the ring: all that fit with 128 dimensions.
const TILES: u32 = 6;
/// Registers of a thread that copies, and of one that multiplies.
const FEW: u32 = 40;
const MANY: u32 = 232;

impl PromptAttentionWgmma {
    /// Queries of a work item, at most.
    pub const QUERIES: u32 = QUERIES;

    /// Without a window.
    pub const fn new(head_dim: u32, order: ColumnOrder) -> Self {
        PromptAttentionWgmma {
            head_dim,
            window: None,
            order,
        }
    }

    /// The same over a window of the latest positions.
    pub const fn with_window(self, window: u32) -> Self {
        PromptAttentionWgmma {
            window: Some(window),
            ..self
        }
    }

    /// The kernel that does the same on `mma.sync`.
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

    /// Bytes of the queries of a warpgroup.
    fn group_bytes(self) -> u32 {
        GROUP_QUERIES * 2 * self.head_dim
    }

    /// Bytes of the keys, or values, of a step.
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
        k.section("prompt/wgmma/work_item", "the block's work item");
        let rows = ItemRows::load(k, &a, QUERIES);
        k.when(rows.count.ne(0), || {
            k.section(
                "prompt/wgmma/shared",
                "shared memory: queries, then the ring of tiles",
            );
            let plain = self.plain();
            let block = Block::new(k, *self, &plain, &a, rows);
            k.when(k.tid().eq(0), || block.ring.init());
            k.barrier();
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

/// Values that the threads of a block compute at the start.
struct Block<'a, 'k> {
    k: Builder<'k>,
    def: PromptAttentionWgmma,
    plain: &'a PromptAttention,
    a: &'a PromptAttentionArgs<Dev<'k>>,
    /// The queries: a tile for each warpgroup.
    queries: Ptr<'k, u8, Shared>,
    ring: Ring<'k>,
    head: U32<'k>,
    item: ItemRows<'k>,
    pages: Pages<'k>,
    /// Where steps begin and end.
    start: U32<'k>,
    end: U32<'k>,
}

impl<'a, 'k> Block<'a, 'k> {
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
        Block {
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

    /// Runs `body` with each step but the first.
    fn each_further(&self, body: impl FnOnce(U32<'k>)) {
        self.k.for_each(self.start + KEYS, self.end, KEYS, body);
    }
}
