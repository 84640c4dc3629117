//! The warpgroup that copies.
//!
//! A tile has rows of 128 bytes with the 128-byte swizzle. Heads of 128 dimensions are two panels.
//! Each thread copies one unit of 16 bytes of every n-th row, always at the same place of the
//! swizzle pattern.
//!
//! A step is two pages, whose numbers each thread reads one step ahead. The values of a step are
//! copied after the keys of the next step, so a thread also keeps the page numbers of the previous
//! step.

use super::block::WgmmaBlock;
use super::definition::{GROUP_QUERIES, KEYS, PANEL_BYTES, QUERIES};
use super::ring::Cursor;
use crate::shared::cache::PAGE;
use ptx_gen::*;

/// The number of tiles in flight before the first of them is waited for.
///
/// It is at most the number of tiles of the ring less 2, because a tile of keys is released only
/// after the values that follow it have arrived.
const BEHIND: u32 = 3;

/// The state of a thread that copies.
pub(super) struct Producer<'b, 'a, 'k> {
    block: &'b WgmmaBlock<'a, 'k>,
    /// The thread's first row.
    row: U32<'k>,
    /// The thread's unit of each row.
    unit: U32<'k>,
    /// The head of keys and values.
    kv_head: U32<'k>,
    /// The next tile to request.
    at: Cursor<'k>,
    /// The next tile to publish.
    landed: Cursor<'k>,
    /// The number of tiles requested so far.
    asked: Var<'k, u32>,
}

/// The page numbers of a step.
struct StepPages<'k>([Var<'k, u32>; 2]);

impl<'k> StepPages<'k> {
    /// Creates variables with these page numbers.
    fn new(k: Builder<'k>, pages: [U32<'k>; 2]) -> Self {
        StepPages(pages.map(|page| k.var(page)))
    }

    /// Returns the page numbers.
    fn get(&self) -> [U32<'k>; 2] {
        self.0.each_ref().map(Var::get)
    }

    /// Replaces the page numbers.
    fn set(&mut self, pages: [U32<'k>; 2]) {
        for (page, number) in self.0.iter_mut().zip(pages) {
            page.set(number);
        }
    }
}

impl<'b, 'a, 'k> Producer<'b, 'a, 'k> {
    /// Creates the state of a thread.
    pub(super) fn new(block: &'b WgmmaBlock<'a, 'k>) -> Self {
        let k = block.k;
        let a = block.a;
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

    /// Copies queries, keys and values. The queries are committed together with the first keys.
    pub(super) fn copy(mut self) {
        let &WgmmaBlock {
            k, a, start, end, ..
        } = self.block;

        k.section(
            "prompt/wgmma/first_pages",
            "page numbers of the first two steps",
        );
        let mut before = StepPages::new(k, self.pages(start));
        let mut ahead = StepPages::new(k, self.pages(start + KEYS));

        k.section("prompt/wgmma/copy_queries", "copy the queries");
        self.copy_queries();

        k.section("prompt/wgmma/copy_first_keys", "copy the first keys");
        self.copy_tile(a.k_cache, start, before.get());
        self.block.each_further(|step| {
            k.section("prompt/wgmma/copy_keys", "copy keys");
            let pages = ahead.get();

            // Page numbers are loaded a step ahead, so that their latency is hidden.
            ahead.set(self.pages(step + KEYS));
            self.copy_tile(a.k_cache, step, pages);

            k.section(
                "prompt/wgmma/copy_values",
                "copy values of the previous step",
            );
            self.copy_tile(a.v_cache, step - KEYS, before.get());
            before.set(pages);
        });

        k.section("prompt/wgmma/copy_last_values", "copy the last values");
        self.copy_tile(
            a.v_cache,
            start + ((end - 1 - start) & !(KEYS - 1)),
            before.get(),
        );

        k.section(
            "prompt/wgmma/drain",
            "publish the tiles that are still in flight",
        );
        for left in (0..BEHIND).rev() {
            k.wait_copies(left);
            k.when(self.asked.get().gt(left), || self.hand_on());
        }
    }

    /// Returns the page numbers of a step.
    fn pages(&self, step: U32<'k>) -> [U32<'k>; 2] {
        [0, PAGE].map(|further| self.block.pages.of(step + further))
    }

    /// Returns the distance between two rows of a thread.
    fn stride(&self) -> u32 {
        128 / (self.block.def.head_dim / 8)
    }

    /// Returns the offset of the thread's first unit in a tile of `rows` rows.
    fn place(&self, rows: u32) -> U32<'k> {
        let swizzled = (self.unit ^ self.row) & 7;
        self.row * PANEL_BYTES + swizzled * 16 + (self.unit >> 3) * (rows * PANEL_BYTES)
    }

    /// Copies the thread's units of a tile. `from` returns the address of the unit in the row that
    /// is a number of rows after the thread's first row.
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

    /// Copies the queries. Rows past the last query repeat it.
    fn copy_queries(&self) {
        let &WgmmaBlock {
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

    /// Copies keys or values of a step from its pages. Positions past the item repeat its last one,
    /// which is finite.
    fn copy_tile(&mut self, cache: Ptr<'k, f16, ReadOnly>, step: U32<'k>, pages: [U32<'k>; 2]) {
        let &WgmmaBlock {
            k,
            def,
            a,
            ref ring,
            end,
            ..
        } = self.block;
        let tile = self.at.tile.get();
        ring.empty(tile).wait(self.at.parity.get() ^ 1);
        let to = ring.tile(tile);
        let row_bytes = 2 * def.head_dim;
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
                "copy positions up to the item's last, which is repeated",
            );

            // If the first page contains the last position, both page numbers are equal.
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

    /// Publishes a tile that has arrived to the warpgroups that multiply.
    fn hand_on(&mut self) {
        let k = self.block.k;
        // The copies wrote through the generic proxy, and `wgmma` reads through the async proxy.
        k.fence_async();
        k.warp_barrier();
        k.when(k.lane().eq(0), || {
            self.block.ring.full(self.landed.tile.get()).arrive()
        });
        self.landed.advance();
    }
}
