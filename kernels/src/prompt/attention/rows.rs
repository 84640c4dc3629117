//! The work item of a block, and the pages of its sequence.

use super::definition::PromptAttentionArgs;
use crate::prompt::Item;
use crate::shared::cache::PAGE;
use ptx_gen::*;

/// The block's work item, with all values clamped to their ranges.
#[derive(Clone, Copy)]
pub(super) struct ItemRows<'k> {
    /// The first row of queries and results.
    pub(super) first: U32<'k>,
    /// The number of rows, or 0 if the block is idle.
    pub(super) count: U32<'k>,
    /// The position of the first row.
    pub(super) position: U32<'k>,
    /// The sequence's row in the page table.
    sequence: U32<'k>,
}

impl<'k> ItemRows<'k> {
    /// Loads the item of the block, with at most `queries` rows.
    pub(super) fn load(k: Builder<'k>, a: &PromptAttentionArgs<Dev<'k>>, queries: u32) -> Self {
        let item = a.items.row(k.ctaid_y(), 4 * Item::LEN as u32);
        let [first, count, position, sequence] = item.ld4();
        let first = first.min(a.capacity);
        ItemRows {
            first,
            count: count.min(queries).min(a.capacity - first),
            position: position.min(a.max_pages * PAGE - 1),
            sequence: sequence.min(a.sequences - 1),
        }
    }

    /// Returns the position after the last one.
    pub(super) fn end(&self) -> U32<'k> {
        self.position + self.count
    }

    /// Returns the row of a query, counted from the item's first. Queries past the last return the
    /// last row.
    pub(super) fn row(&self, query: U32<'k>) -> U32<'k> {
        self.first + query.min(self.count - 1)
    }
}

/// The pages of the item's sequence.
#[derive(Clone, Copy)]
pub(super) struct Pages<'k> {
    /// The sequence's row of the page table.
    table: Ptr<'k, u32, ReadOnly>,
    /// The index of the last page that the item attends to.
    last: U32<'k>,
    /// The number of pages of the caches.
    count: U32<'k>,
}

impl<'k> Pages<'k> {
    /// Returns the pages of an item.
    pub(super) fn new(a: &PromptAttentionArgs<Dev<'k>>, item: ItemRows<'k>) -> Self {
        let last = ((item.end() - 1) >> PAGE.ilog2()).min(a.max_pages - 1);
        Pages {
            table: a.pages.row(item.sequence, a.max_pages * 4),
            last,
            count: a.cache_pages,
        }
    }

    /// Returns the number of the page of a position. Positions after the item's last return its
    /// page.
    pub(super) fn of(&self, position: U32<'k>) -> U32<'k> {
        let index = (position >> PAGE.ilog2()).min(self.last);
        self.table.at(index).ld().min(self.count - 1)
    }
}
