//! Stores the results of a block as activations of the next matmul.
//!
//! The columns of a head are scattered over slots
//! ([`ColumnOrder`](crate::format::dequantize::ColumnOrder)). Eight adjacent slots are pairs of
//! columns of four groups, and four slots are pairs of two groups. The largest such run of slots
//! for which a head has all columns is a segment. A warp first writes its results to shared memory
//! in the order of their slots, in place of its queries. Then each lane stores whole segments.

use super::definition::{PromptAttention, PromptAttentionArgs, ROWS};
use super::rows::ItemRows;
use crate::matmul::activations;
use crate::shared::divided::divided;
use ptx_gen::*;

impl PromptAttention {
    /// Returns the number of slots of a segment.
    fn segment(&self) -> u32 {
        let widths = [8, 4];
        let fits = |width: &u32| self.head_dim.is_multiple_of(width / 2 * self.order.group);
        widths.into_iter().find(fits).unwrap_or(2)
    }

    /// Returns the number of columns of the groups that have a pair in a segment.
    fn segment_columns(&self) -> u32 {
        self.segment() / 2 * self.order.group
    }

    /// Returns the index of the columns `8 eight` and `8 eight + 1` of a head in the order of
    /// slots. The columns `8 eight + 2 t` follow `t` segments later.
    fn place(&self, eight: u32) -> u32 {
        let d = 8 * eight;
        let group = self.order.group;
        let part = self.segment_columns();
        d / part * part + 2 * self.segment() * (d % group / 4) + d % part / group * 2
    }
}

/// The destination of a warp's results.
pub(super) struct Results<'a, 'k> {
    pub(super) k: Builder<'k>,
    pub(super) def: &'a PromptAttention,
    pub(super) a: &'a PromptAttentionArgs<Dev<'k>>,
    /// Shared memory through which the results are rearranged.
    pub(super) memory: Ptr<'k, u8, Shared>,
    /// The index in the item of the warp's first query.
    pub(super) row: U32<'k>,
    /// The number of the warp's queries.
    pub(super) queries: u32,
    pub(super) item: ItemRows<'k>,
    pub(super) head: U32<'k>,
}

impl<'k> Results<'_, 'k> {
    /// Stores results, which come for 16 queries at a time: of the queries `g` and `g + 8`, for
    /// each eight dimensions, two adjacent dimensions to a word.
    pub(super) fn store(&self, results: impl Iterator<Item = [Vec<U32<'k>>; 2]>) {
        let k = self.k;

        k.section(
            "prompt/attention/store",
            "rearrange the results in the order of their slots",
        );

        // All lanes must be done with the warp's queries, which are overwritten.
        k.warp_barrier();
        for (results, i) in results.zip(0..) {
            self.arrange(results, ROWS * i);
        }

        k.warp_barrier();

        k.section("prompt/attention/slots", "store segments of adjacent slots");
        self.store_segments();
        let query = self.row + k.lane();
        let own = k.lane().lt(self.queries) & query.lt(self.item.count);
        k.when(own & self.head.eq(0), || {
            self.a.y_scale.at(self.item.first + query).st(1.0)
        });
    }

    /// Writes the results of 16 queries to shared memory.
    fn arrange(&self, results: [Vec<U32<'k>>; 2], first: u32) {
        let g = self.k.lane() >> 2;
        let t = self.k.lane() & 3;
        let rows = self.def.rows();
        for eight in 0..self.def.head_dim / 8 {
            let slot = t * self.def.segment() + self.def.place(eight);
            let place = rows.place(self.row + g, slot >> 3) + ((slot & 7) << 1);
            let to = self.memory.row(place, 1);
            for (r, results) in (0..).zip(&results) {
                to.at((first + 8 * r) * rows.bytes)
                    .cast::<u32>()
                    .st(results[eight as usize]);
            }
        }
    }

    /// Stores the warp's segments.
    fn store_segments(&self) {
        let k = self.k;
        let def = self.def;
        let a = self.a;
        let width = def.segment();
        let segments = def.head_dim / width;
        k.for_each(k.lane(), self.queries * segments, 32, |i| {
            let (row, segment) = divided(i, segments);
            let query = self.row + row;
            k.when(query.lt(self.item.count), || {
                let slot = segment * width;
                let token = self.item.first + query;
                let place = def.rows().place(query, slot >> 3) + ((slot & 7) << 1);
                let from = self.memory.row(place, 1).cast::<u32>();
                let to =
                    activations::place(a.y, a.capacity, token, self.slot(segment)).cast::<u32>();
                match width {
                    8 => to.st4(from.ld4()),
                    4 => to.st2(from.ld2()),
                    _ => to.st(from.ld()),
                }
            });
        });
    }

    /// Returns the first slot of a segment of the head.
    fn slot(&self, segment: U32<'k>) -> U32<'k> {
        let def = self.def;
        let (part, i) = divided(segment, def.order.group / 2);
        let column = self.head * def.head_dim + part * def.segment_columns() + (i >> 1) * 4;
        def.order.slot_of_four(column) + (i & 1) * 8
    }
}
