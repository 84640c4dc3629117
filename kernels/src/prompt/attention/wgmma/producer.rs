//! The warpgroup that copies.
//!
//! A tile has rows of 128 bytes, swizzled by 128; 128 dimensions are two panels. Each thread has a unit of 16 bytes of
//! every so many rows, always at the same place of the swizzle's pattern.

use super::ring::Cursor;
use super::{Block, GROUP_QUERIES, KEYS, PANEL_BYTES, QUERIES};
use ptx_gen::*;

/// Tiles under way, before the first of them is waited for.
///
/// A tile of keys is released after the values that follow it have come: tiles of the ring less 2 at most.
const BEHIND: u32 = 3;

pub(super) struct Producer<'b, 'a, 'k> {
    block: &'b Block<'a, 'k>,
    /// The thread's first row, and its unit of it.
    row: U32<'k>,
    unit: U32<'k>,
    /// The row of the head's first key in the cache.
    cached: U32<'k>,
    /// The next tile to ask for, and the next to hand on.
    at: Cursor<'k>,
    landed: Cursor<'k>,
    asked: Var<'k, u32>,
}

impl<'b, 'a, 'k> Producer<'b, 'a, 'k> {
    pub(super) fn new(block: &'b Block<'a, 'k>) -> Self {
        let (k, a) = (block.k, block.a);
        let units = block.def.head_dim / 8;
        let thread = k.tid() & 127;
        Producer {
            block,
            row: thread / units,
            unit: thread & (units - 1),
            cached: block.head / (a.heads / a.kv_heads) * a.ctx,
            at: Cursor::start(k),
            landed: Cursor::start(k),
            asked: k.var(0),
        }
    }

    /// Queries come with the first keys.
    pub(super) fn copy(mut self) {
        let &Block { k, a, start, end, .. } = self.block;
        k.note("copy the queries");
        self.copy_queries();
        k.note("copy the first keys");
        self.copy_tile(a.k_cache, start);
        self.block.each_further(|step| {
            k.note("copy keys");
            self.copy_tile(a.k_cache, step);
            k.note("copy values of the step before");
            self.copy_tile(a.v_cache, step - KEYS);
        });
        k.note("copy the last values");
        self.copy_tile(a.v_cache, start + ((end - 1 - start) & !(KEYS - 1)));
        k.note("wait for what is under way");
        for left in (0..BEHIND).rev() {
            k.wait_copies(left);
            k.when(self.asked.get().gt(left), || self.hand_on());
        }
    }

    /// Rows between a thread's.
    fn stride(&self) -> u32 {
        128 / (self.block.def.head_dim / 8)
    }

    /// Where the thread's first unit is in a tile of so many rows.
    fn place(&self, rows: u32) -> U32<'k> {
        let swizzled = (self.unit ^ self.row) & 7;
        self.row * PANEL_BYTES + swizzled * 16 + (self.unit >> 3) * (rows * PANEL_BYTES)
    }

    /// Copies the thread's units of a tile from where `from` says that a row, so much further than its first, is.
    fn units(&self, rows: u32, to: Ptr<'k, u8, Shared>, from: impl Fn(u32) -> Ptr<'k, f16, Read>) {
        let to = to.row(self.place(rows), 1);
        for further in (0..rows).step_by(self.stride() as usize) {
            from(further).copy16(to.at(further * PANEL_BYTES).cast());
        }
    }

    /// Queries past the last repeat it.
    fn copy_queries(&self) {
        let &Block { def, a, queries, first, head, .. } = self.block;
        for group in (0..QUERIES).step_by(GROUP_QUERIES as usize) {
            let to = queries.at(group * 2 * def.head_dim);
            self.units(GROUP_QUERIES, to, |further| {
                let token = (first + self.row + (group + further)).min(a.tokens - 1);
                a.q.row(token * a.heads + head, 2 * def.head_dim).row(self.unit, 16)
            });
        }
    }

    /// Copies keys, or values, of a step; positions past the chunk repeat its last one, which is finite.
    fn copy_tile(&mut self, cache: Ptr<'k, f16, Read>, step: U32<'k>) {
        let &Block { k, def, a, ref ring, .. } = self.block;
        let tile = self.at.tile.get();
        ring.empty(tile).wait(self.at.parity.get() ^ 1);
        let (to, end) = (ring.tile(tile), a.position + a.tokens);
        let from = |position| cache.row(self.cached + position, 2 * def.head_dim).row(self.unit, 16);
        let first = step + self.row;
        k.when((step + KEYS).le(end), || {
            let from = from(first);
            self.units(KEYS, to, |further| from.at(further * def.head_dim));
        })
        .otherwise(|| {
            k.note("positions up to the chunk's last, which is repeated");
            self.units(KEYS, to, |further| from((first + further).min(end - 1)));
        });
        k.commit_copies();
        self.at.advance();
        k.wait_copies(BEHIND);
        k.when(self.asked.get().ge(BEHIND), || self.hand_on());
        self.asked += 1;
    }

    /// Hands a tile that has come to those who multiply.
    fn hand_on(&mut self) {
        let k = self.block.k;
        k.fence_async();
        k.warp_barrier();
        k.when(k.lane().eq(0), || self.block.ring.full(self.landed.tile.get()).arrive());
        self.landed.advance();
    }
}
