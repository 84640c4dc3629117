//! The warpgroup that copies.
//!
//! A tile has rows of 128 bytes, swizzled by 128; 128 dimensions are two panels. Each thread has a unit of 16 bytes of
//! every so many rows, always at the same place of the swizzle's pattern.
//!
//! A step is two pages, whose numbers each thread reads a step ahead. The values of a step are copied after the keys of
//! the next, so it keeps the numbers of the step before too.

use super::ring::Cursor;
use super::{Block, GROUP_QUERIES, KEYS, PANEL_BYTES, QUERIES};
use crate::cache::PAGE;
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
    /// The head of keys and values.
    kv_head: U32<'k>,
    /// The next tile to ask for, and the next to hand on.
    at: Cursor<'k>,
    landed: Cursor<'k>,
    asked: Var<'k, u32>,
}

/// The numbers of a step's pages.
struct Step<'k>([Var<'k, u32>; 2]);

impl<'k> Step<'k> {
    fn new(k: Builder<'k>, pages: [U32<'k>; 2]) -> Self {
        Step(pages.map(|page| k.var(page)))
    }

    fn get(&self) -> [U32<'k>; 2] {
        self.0.each_ref().map(Var::get)
    }

    fn set(&mut self, pages: [U32<'k>; 2]) {
        self.0
            .iter_mut()
            .zip(pages)
            .for_each(|(page, number)| page.set(number));
    }
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
            kv_head: block.head / (a.heads / a.kv_heads),
            at: Cursor::start(k),
            landed: Cursor::start(k),
            asked: k.var(0),
        }
    }

    /// Queries come with the first keys.
    pub(super) fn copy(mut self) {
        let &Block {
            k, a, start, end, ..
        } = self.block;
        k.section(
            "prompt/wgmma/first_pages",
            "the pages of the first two steps",
        );
        let mut before = Step::new(k, self.pages(start));
        let mut ahead = Step::new(k, self.pages(start + KEYS));
        k.section("prompt/wgmma/copy_queries", "copy the queries");
        self.copy_queries();
        k.section("prompt/wgmma/copy_first_keys", "copy the first keys");
        self.copy_tile(a.k_cache, start, before.get());
        self.block.each_further(|step| {
            k.section("prompt/wgmma/copy_keys", "copy keys");
            let pages = ahead.get();
            ahead.set(self.pages(step + KEYS));
            self.copy_tile(a.k_cache, step, pages);
            k.section("prompt/wgmma/copy_values", "copy values of the step before");
            self.copy_tile(a.v_cache, step - KEYS, before.get());
            before.set(pages);
        });
        k.section("prompt/wgmma/copy_last_values", "copy the last values");
        self.copy_tile(
            a.v_cache,
            start + ((end - 1 - start) & !(KEYS - 1)),
            before.get(),
        );
        k.section("prompt/wgmma/drain", "wait for what is under way");
        for left in (0..BEHIND).rev() {
            k.wait_copies(left);
            k.when(self.asked.get().gt(left), || self.hand_on());
        }
    }

    /// The pages of a step.
    fn pages(&self, step: U32<'k>) -> [U32<'k>; 2] {
        [0, PAGE].map(|further| self.block.pages.of(step + further))
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
    fn units(
        &self,
        rows: u32,
        to: Ptr<'k, u8, Shared>,
        from: impl Fn(u32) -> Ptr<'k, f16, ReadOnly>,
    ) {
        let to = to.row(self.place(rows), 1);
        for further in (0..rows).step_by(self.stride() as usize) {
            from(further).copy16(to.at(further * PANEL_BYTES).cast());
        }
    }

    /// Queries past the last repeat it.
    fn copy_queries(&self) {
        let &Block {
            def,
            a,
            queries,
            item,
            head,
            ..
        } = self.block;
        for group in (0..QUERIES).step_by(GROUP_QUERIES as usize) {
            let to = queries.at(group * 2 * def.head_dim);
            self.units(GROUP_QUERIES, to, |further| {
                let token = item.row(self.row + (group + further));
                a.q.row(token * a.heads + head, 2 * def.head_dim)
                    .row(self.unit, 16)
            });
        }
    }

    /// Copies keys, or values, of a step from its pages; positions past the item repeat its last one, which is finite.
    fn copy_tile(&mut self, cache: Ptr<'k, f16, ReadOnly>, step: U32<'k>, pages: [U32<'k>; 2]) {
        let &Block {
            k,
            def,
            a,
            ref ring,
            end,
            ..
        } = self.block;
        let tile = self.at.tile.get();
        ring.empty(tile).wait(self.at.parity.get() ^ 1);
        let (to, row_bytes) = (ring.tile(tile), 2 * def.head_dim);
        let pages = pages.map(|page| {
            let page = cache.row(page.mad(a.kv_heads, self.kv_head), PAGE * row_bytes);
            page.row(self.unit, 16)
        });
        let page = |further: u32| (further / PAGE) as usize;
        k.when((step + KEYS).le(end), || {
            let pages = pages.map(|page| page.row(self.row, row_bytes));
            self.units(KEYS, to, |further| {
                pages[page(further)].row(further % PAGE, row_bytes)
            });
        })
        .otherwise(|| {
            k.section(
                "prompt/wgmma/last_positions",
                "positions up to the item's last, which is repeated",
            );
            // Both pages are the same if the first has the last position.
            let last = end - 1;
            let most = [(last - step).min(PAGE - 1), last & (PAGE - 1)];
            self.units(KEYS, to, |further| {
                let row = (self.row + further % PAGE).min(most[page(further)]);
                pages[page(further)].row(row, row_bytes)
            });
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
        k.when(k.lane().eq(0), || {
            self.block.ring.full(self.landed.tile.get()).arrive()
        });
        self.landed.advance();
    }
}
