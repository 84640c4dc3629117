//! The results of a block, as activations of the next product.
//!
//! The columns of a head are scattered over slots. Eight neighbouring slots are pairs of columns of four groups, four are
//! those of two, as far as a head has them all: a piece. A warp puts its results into shared memory in the order of their
//! slots, where its queries were, and each lane stores pieces.

use super::rows::ItemRows;
use super::{PromptAttention, PromptAttentionArgs, ROWS};
use crate::matmul::activations;
use crate::pipeline::attention::divided;
use ptx_gen::*;

impl PromptAttention {
    /// Slots of a piece.
    fn piece(&self) -> u32 {
        let widths = [8, 4];
        let fits = |width: &u32| self.head_dim.is_multiple_of(width / 2 * self.order.group);
        widths.into_iter().find(fits).unwrap_or(2)
    }

    /// Columns of as many groups as have a pair in a piece.
    fn part(&self) -> u32 {
        self.piece() / 2 * self.order.group
    }

    /// Where columns `8 eight` and the next of a head are among its pieces. Columns `8 eight + 2 t` are as many slots
    /// further as `t` pieces.
    fn place(&self, eight: u32) -> u32 {
        let (d, group, part) = (8 * eight, self.order.group, self.part());
        d / part * part + 2 * self.piece() * (d % group / 4) + d % part / group * 2
    }
}

/// Where the results of a warp go.
pub(super) struct Results<'a, 'k> {
    pub(super) k: Builder<'k>,
    pub(super) def: &'a PromptAttention,
    pub(super) a: &'a PromptAttentionArgs<Dev<'k>>,
    /// Rows of shared memory, on their way.
    pub(super) memory: Ptr<'k, u8, Shared>,
    /// The first of the warp's queries in the item, and how many it has.
    pub(super) row: U32<'k>,
    pub(super) queries: u32,
    pub(super) item: ItemRows<'k>,
    pub(super) head: U32<'k>,
}

impl<'k> Results<'_, 'k> {
    /// Stores results that come for 16 queries after 16: of query `g` and of `g + 8`, two neighbouring dimensions to a
    /// word, for each eight dimensions.
    pub(super) fn store(&self, results: impl Iterator<Item = [Vec<U32<'k>>; 2]>) {
        let k = self.k;
        k.section(
            "prompt/attention/store",
            "results, in the order of their slots",
        );
        k.warp_barrier();
        results
            .zip(0..)
            .for_each(|(results, i)| self.arrange(results, ROWS * i));
        k.warp_barrier();
        k.section("prompt/attention/slots", "pieces of neighbouring slots");
        self.store_pieces();
        let query = self.row + k.lane();
        let own = k.lane().lt(self.queries) & query.lt(self.item.count);
        k.when(own & self.head.eq(0), || {
            self.a.y_scale.at(self.item.first + query).st(1.0)
        });
    }

    /// Puts the results of 16 queries into shared memory.
    fn arrange(&self, results: [Vec<U32<'k>>; 2], first: u32) {
        let (g, t) = (self.k.lane() >> 2, self.k.lane() & 3);
        let rows = self.def.rows();
        for eight in 0..self.def.head_dim / 8 {
            let slot = t * self.def.piece() + self.def.place(eight);
            let place = rows.place(self.row + g, slot >> 3) + ((slot & 7) << 1);
            let to = self.memory.row(place, 1);
            for (r, results) in (0..).zip(&results) {
                to.at((first + 8 * r) * rows.bytes)
                    .cast::<u32>()
                    .st(results[eight as usize]);
            }
        }
    }

    fn store_pieces(&self) {
        let (k, def, a) = (self.k, self.def, self.a);
        let (width, pieces) = (def.piece(), def.head_dim / def.piece());
        k.for_each(k.lane(), self.queries * pieces, 32, |i| {
            let (row, piece) = divided(i, pieces);
            let query = self.row + row;
            k.when(query.lt(self.item.count), || {
                let slot = piece * width;
                let token = self.item.first + query;
                let place = def.rows().place(query, slot >> 3) + ((slot & 7) << 1);
                let from = self.memory.row(place, 1).cast::<u32>();
                let to = activations::place(a.y, a.capacity, token, self.slot(piece)).cast::<u32>();
                match width {
                    8 => to.st4(from.ld4()),
                    4 => to.st2(from.ld2()),
                    _ => to.st(from.ld()),
                }
            });
        });
    }

    /// The first slot of a piece of the head.
    fn slot(&self, piece: U32<'k>) -> U32<'k> {
        let def = self.def;
        let (part, i) = divided(piece, def.order.group / 2);
        let column = self.head * def.head_dim + part * def.part() + (i >> 1) * 4;
        def.order.slot_of_four(column) + (i & 1) * 8
    }
}
