//! Causal attention of tokens of one or several sequences over the paged KV cache: `softmax(q k^T)
//! v`. The cache already contains the tokens' own keys and values, and the queries are already
//! scaled. The kernel runs on sm_80 and newer.
//!
//! # Algorithm
//!
//! The algorithm is FlashAttention-2 (Dao, 2023, arXiv:2307.08691). A block processes a [work
//! item](super::Item) for a query head: up to [`PromptAttention::queries`] tokens at consecutive
//! positions of a sequence, a quarter for each of its four warps. It goes through keys and values
//! in steps of 64 or 32 positions, which lie in one page. The page number is read one step ahead.
//! While a step is computed, the next one is copied into the other half of a double buffer in
//! shared memory. All four warps use the same keys and values.
//!
//! Scores are computed by `mma.m16n8k16`, where a lane holds two adjacent keys of a query. The left
//! matrix of the second matmul, `p v`, has the same layout, so the weights stay in their registers.
//! Each query keeps the maximum `m` of its scores, which are in log2 units, and the sum of
//! `2^(score - m)` (online softmax). The sums are rescaled only if a step raises the maximum of a
//! query of the warp, because otherwise all factors are 1.
//!
//! # Batch invariance
//!
//! Steps begin at multiples of their length. A position outside the mask has weight 0, and a step
//! with only such positions changes nothing. The bits of a result therefore depend only on the
//! token's query, its position, and the keys and values that it attends to. They do not depend on
//! the other tokens, or on the chunks that a prompt is divided into. This holds for finite values.
//! A value that is not finite reaches all tokens of its step, even where its weight is 0.
//!
//! # Order and safety
//!
//! Blocks run in the order of their items, so items with more positions should come first.
//!
//! Items and page numbers are in device memory, where no contract can check them. The code that
//! launches the kernel must ensure that they are in range, and that no two items share a row. The
//! kernel clamps values beyond the range. The results are then wrong, but no access is outside of
//! the arguments.

mod block;
mod cases;
mod definition;
mod rows;
mod scores;
mod store;
mod wgmma;

pub use wgmma::PromptAttentionWgmma;

use super::Item;
use crate::matmul::activations::{self, PANEL, TOKENS};
use crate::shared::attend::{attend, wide};
use crate::shared::{Contract, cache, check_lengths};
use block::PromptBlock;
pub use definition::{PromptAttention, PromptAttentionArgs};
use definition::{ROWS, WARPS};
use ptx_gen::*;
use rows::ItemRows;

impl KernelDef for PromptAttention {
    type Args<S: Side> = PromptAttentionArgs<S>;

    fn name(&self) -> String {
        let PromptAttention {
            head_dim,
            queries,
            window,
            order,
        } = self;
        let window = window.map_or(String::new(), |window| format!("_window_{window}"));
        format!(
            "prompt_attention_{head_dim}_{queries}_{}{window}",
            order.group
        )
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(2)
    }

    fn grid(&self, a: &PromptAttentionArgs<Shape>) -> Result<Grid, ShapeError> {
        let &PromptAttentionArgs {
            capacity, heads, ..
        } = a;
        let head_dim = self.head_dim;
        self.multiple("the kernel's head_dim", head_dim, ROWS)?;
        self.range("the kernel's head_dim", head_dim, ROWS, 256)?;
        self.multiple("the kernel's queries", self.queries, WARPS * ROWS)?;
        let most = PromptAttention::new(head_dim, self.order).queries;
        self.range("the kernel's queries", self.queries, WARPS * ROWS, most)?;
        self.range("the kernel's window", self.window.unwrap_or(1), 1, 1 << 24)?;
        self.range("heads", heads, 1, 1 << 16)?;
        self.range("kv_heads", a.kv_heads, 1, heads)?;
        self.multiple("heads", heads, a.kv_heads)?;
        self.multiple(
            "heads * head_dim",
            heads * head_dim,
            PANEL.max(4 * self.order.group),
        )?;
        self.multiple("capacity", capacity, TOKENS)?;
        check_lengths! { self, a:
            q == capacity * heads * head_dim,
            y == capacity * heads * head_dim,
        }
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            cache::check_pages(self, name, found, [a.cache_pages, a.kv_heads, head_dim])?;
        }

        cache::check_table(self, a.pages, [a.sequences, a.max_pages])?;
        self.range("item_count", a.item_count, 1, u16::MAX.into())?;
        self.length(
            "items",
            a.items,
            "item_count * 4",
            &[a.item_count, Item::LEN as u32],
        )?;
        check_lengths! { self, a:
            y_scale == capacity,
        }
        Ok(Grid {
            shared: self.shared(),
            ..Grid::plane(heads, a.item_count)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: PromptAttentionArgs<Dev<'k>>) {
        k.section("prompt/attention/work_item", "work item of the block");
        let rows = ItemRows::load(k, &a, self.queries);
        k.when(rows.count.ne(0), || {
            k.section(
                "prompt/attention/shared",
                "shared memory: queries, then keys and values of two steps",
            );
            let block = PromptBlock::new(k, self, &a, rows);
            let sums = block.attend();
            block.store(sums);
        });
    }

    fn reference(&self, a: PromptAttentionArgs<Cpu<'_>>) {
        let dim = self.head_dim as usize;
        let heads = a.heads as usize;
        let capacity = a.capacity as usize;
        for item in a.items.chunks(Item::LEN) {
            let &[first, rows, position, sequence] = item else {
                unreachable!("items have four words")
            };
            for i in 0..rows {
                let token = (first + i) as usize;
                let end = (position + i) as usize + 1;
                let start = end - self.window.map_or(end, |window| end.min(window as usize));
                a.y_scale[token] = 1.0;
                for head in 0..heads {
                    let table = [a.sequences, a.max_pages, a.cache_pages];
                    let kv_heads = a.kv_heads as usize;
                    let of = [kv_heads, head / (heads / kv_heads)];
                    let cached = |position: usize| {
                        let row = cache::paged_row(a.pages, table, sequence, of, position);
                        let first = dim * row.expect("pages are in range");
                        [a.k_cache, a.v_cache].map(|cache| &cache[first..][..dim])
                    };
                    let q: Vec<f64> = wide(&a.q[(token * heads + head) * dim..][..dim]).collect();

                    // Queries are already in log2 units.
                    let attended = attend(&q, (start..end).map(cached), |score| score);
                    for (d, y) in attended.mean().into_iter().enumerate() {
                        let slot = self.order.slot((head * dim + d) as u32) as usize;
                        a.y[activations::index(capacity, token, slot)] = f16::from_f32(y as f32);
                    }
                }
            }
        }
    }
}
