//! The values that the threads of a block compute at the start.

use super::definition::{GROUPS, KEYS, PromptAttentionWgmma};
use super::ring::Ring;
use crate::prompt::attention::definition::{PromptAttention, PromptAttentionArgs};
use crate::prompt::attention::rows::{ItemRows, Pages};
use ptx_gen::*;

/// The values that the threads of a block compute at the start.
pub(super) struct WgmmaBlock<'a, 'k> {
    pub(super) k: Builder<'k>,
    pub(super) def: PromptAttentionWgmma,
    pub(super) plain: &'a PromptAttention,
    pub(super) a: &'a PromptAttentionArgs<Dev<'k>>,
    /// The queries: one tile for each warpgroup.
    pub(super) queries: Ptr<'k, u8, Shared>,
    pub(super) ring: Ring<'k>,
    pub(super) head: U32<'k>,
    pub(super) item: ItemRows<'k>,
    pub(super) pages: Pages<'k>,
    /// The position at which the steps begin.
    pub(super) start: U32<'k>,
    /// The position after the last one.
    pub(super) end: U32<'k>,
}

impl<'a, 'k> WgmmaBlock<'a, 'k> {
    /// Computes the values of the block.
    pub(super) fn new(
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
    pub(super) fn each_further(&self, body: impl FnOnce(U32<'k>)) {
        self.k.for_each(self.start + KEYS, self.end, KEYS, body);
    }
}
