//! The addresses of cache rows, with a page table or without one.

use super::definition::{PipelinedAttentionArgs, TILE};
use crate::pipeline::batch::BatchItem;
use crate::pipeline::paged::PageTableArgs;
use crate::shared::cache::{OwnRows, PAGE};
use crate::shared::state::{LEN, SEQUENCE};
use ptx_gen::*;

/// The rows of a KV head, in 16-byte chunks.
pub(super) enum CachedRows<'a, 'k> {
    /// The pages are in order.
    Own(OwnRows<'k>),
    /// The page table has the pages.
    Paged(PagedRows<'a, 'k>),
}

/// The rows of a KV head of one sequence.
pub(super) struct PagedRows<'a, 'k> {
    table: &'a PageTableArgs<Dev<'k>>,
    sequence: U32<'k>,
    /// The rows as they would be if page `i` of the sequence were page `i` of the cache.
    own: OwnRows<'k>,
    /// The number of chunks of a page.
    page: U32<'k>,
}

/// The page numbers of 32 consecutive pages of the sequence, one in each lane.
pub(super) struct PageLanes<'k> {
    /// The index of the first page in the sequence.
    first: Var<'k, u32>,
    page: Var<'k, u32>,
}

/// The number of lanes of a warp.
const LANES: u32 = 32;

impl PageLanes<'_> {
    /// Assigns other pages.
    pub(super) fn set(&mut self, to: &Self) {
        self.first.set(&to.first);
        self.page.set(&to.page);
    }
}

impl<'a, 'k> CachedRows<'a, 'k> {
    /// Returns chunk `chunk` of the rows of a KV head, for a token of the batch. A row has
    /// `row_chunks` chunks.
    pub(super) fn new(
        a: &PipelinedAttentionArgs<Dev<'k>>,
        row_chunks: u32,
        table: Option<&'a PageTableArgs<Dev<'k>>>,
        item: BatchItem<'k>,
        [kv_head, chunk]: [U32<'k>; 2],
    ) -> Self {
        let own = OwnRows::new(a.kv_heads, kv_head).units(row_chunks, chunk);
        let Some(table) = table else {
            return CachedRows::Own(own);
        };

        let state = item.of(a.state, LEN as u32);
        CachedRows::Paged(PagedRows {
            table,
            sequence: state.at(SEQUENCE).fresh().ld(),
            own,
            page: a.kv_heads * (PAGE * row_chunks),
        })
    }

    /// Loads the page numbers of a range of tiles, if there is a page table.
    pub(super) fn pages(&self, k: Builder<'k>, first_tile: U32<'k>) -> Option<PageLanes<'k>> {
        let CachedRows::Paged(rows) = self else {
            return None;
        };
        let first = first_tile / (PAGE / TILE);
        Some(PageLanes {
            first: k.var(first),
            page: k.var(rows.table.page(rows.sequence, first + k.lane())),
        })
    }

    /// Returns the difference between the first chunk of a position's row and the chunks of as many
    /// rows as the position. It is equal for all positions of a page. The whole warp must call it
    /// with positions of one page.
    pub(super) fn before(
        &self,
        k: Builder<'k>,
        pages: Option<&PageLanes<'k>>,
        position: U32<'k>,
    ) -> U32<'k> {
        match (self, pages) {
            (CachedRows::Paged(rows), Some(pages)) => {
                let index = position / PAGE;
                let page = rows.page(k, pages, index);
                rows.own.before(position) + (page - index) * rows.page
            }
            (CachedRows::Paged(_), None) => unreachable!("a paged range has pages"),
            (CachedRows::Own(own), _) => own.before(position),
        }
    }
}

impl<'k> PagedRows<'_, 'k> {
    /// Returns the number of page `index` of the sequence.
    fn page(&self, k: Builder<'k>, pages: &PageLanes<'k>, index: U32<'k>) -> U32<'k> {
        let lane = index - &pages.first;
        let mut page = k.var(0);
        k.when(lane.lt(LANES), || {
            page.set(pages.page.get().shfl_idx(lane));
        })
        .otherwise(|| page.set(self.table.page(self.sequence, index)));
        page.get()
    }
}
