//! The kernel's fields, its arguments, and the sizes that follow from them.

use crate::format::dequantize::ColumnOrder;
use crate::shared::shared_rows::SharedRows;
use ptx_gen::*;

args! {
    /// Arguments of [`PromptAttention`].
    pub struct PromptAttentionArgs {
        /// `[capacity, heads, head_dim]`: the queries times the factor of the scores and `log2(e)`
        q: In<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: the keys, see [`cache`](crate::shared::cache)
        k_cache: In<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: the values, see [`cache`](crate::shared::cache)
        v_cache: In<f16>,
        /// `[sequences, max_pages]`: the page table, with numbers below `cache_pages`
        pages: In<u32>,
        /// `[item_count, 4]`: the work items, see [`Item`](super::Item). Rows must be below
        /// `capacity`, positions below `64 * max_pages`, and sequences below `sequences`. An item
        /// has at most [`PromptAttention::queries`] rows.
        items: In<u32>,
        /// `[heads * head_dim / 64, capacity, 64]`: the results, see
        /// [`activations`](crate::matmul::activations), written for the rows of items
        y: Out<f16>,
        /// `[capacity]`: the factor that restores each row's values. It is 1, because a result lies
        /// between values of the cache. It is written for the rows of items.
        y_scale: Out<f32>,
        /// The number of query heads.
        heads: u32,
        /// The number of KV heads.
        kv_heads: u32,
        /// The number of pages of the caches.
        cache_pages: u32,
        /// The number of sequences of the page table.
        sequences: u32,
        /// The maximum number of pages of a sequence.
        max_pages: u32,
        /// The number of work items.
        item_count: u32,
        /// The capacity of the buffers in rows, a multiple of 8.
        capacity: u32,
    }
}

/// Kernel that computes causal attention with `mma.sync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromptAttention {
    /// The number of dimensions of a head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// The number of queries of a block: 64, or 128 if heads have at most 128 dimensions. More
    /// queries share the keys and values that are read, and fewer queries give more blocks. The
    /// bits of the results are equal.
    pub queries: u32,
    /// The size of the window in positions, including the token's own. `None` attends to all
    /// positions.
    pub window: Option<u32>,
    /// The order of the result's columns.
    pub order: ColumnOrder,
}

/// The number of warps of a block.
pub(super) const WARPS: u32 = 4;

/// The number of rows of a left matrix.
pub(super) const ROWS: u32 = 16;

impl PromptAttention {
    /// Returns the kernel with as many queries per block as the registers allow.
    pub const fn new(head_dim: u32, order: ColumnOrder) -> PromptAttention {
        let queries = if head_dim <= 128 { 128 } else { 64 };
        PromptAttention {
            head_dim,
            queries,
            window: None,
            order,
        }
    }

    /// Returns this kernel for a window of the latest positions.
    pub const fn with_window(self, window: u32) -> PromptAttention {
        PromptAttention {
            window: Some(window),
            ..self
        }
    }

    /// Returns this kernel with fewer queries per block.
    pub const fn with_queries(self, queries: u32) -> PromptAttention {
        PromptAttention { queries, ..self }
    }

    /// Returns the number of positions of a step.
    pub(super) fn keys(&self) -> u32 {
        if self.head_dim <= 128 { 64 } else { 32 }
    }

    /// Returns the number of queries of a warp.
    pub(super) fn warp_queries(&self) -> u32 {
        self.queries / WARPS
    }

    /// Returns the first position that a token attends to, if there is a window.
    pub(super) fn start<'k>(&self, position: U32<'k>) -> Option<U32<'k>> {
        self.window
            .map(|window| position + 1 - (position + 1).min(window))
    }

    /// Returns whether a token attends to a position. The distance from the position to the token
    /// is `distance + further`.
    pub(super) fn counts<'k>(&self, distance: I32<'k>, further: i32) -> Pred<'k> {
        let causal = distance.ge(-further);
        self.window.map_or(causal, |window| {
            causal & distance.lt(window as i32 - further)
        })
    }

    /// Returns the layout of queries, keys and values in shared memory.
    pub(super) fn rows(&self) -> SharedRows {
        SharedRows::of(self.head_dim)
    }

    /// Returns the bytes of shared memory of a block: queries, then keys and values of two steps.
    pub(super) fn shared(&self) -> u32 {
        (self.queries + 4 * self.keys()) * self.rows().bytes
    }
}
