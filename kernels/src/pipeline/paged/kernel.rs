//! The kernels over a paged cache, and their page table.

use crate::pipeline::batch::BatchItem;
use crate::shared::cache::{self, CachePages, OwnRows, PAGE};
use crate::shared::state::{DONE, LEN, POSITION, SEQUENCE};
use ptx_gen::*;

args! {
    /// The page table of a cache that sequences share.
    pub struct PageTableArgs {
        /// `[sequences, max_pages]`: the pages of each sequence, in the order of its positions. See
        /// [`cache`](crate::shared::cache).
        pages: In<u32>,
        /// The number of pages of the caches.
        cache_pages: u32,
        /// The number of sequences of the page table.
        sequences: u32,
        /// The maximum number of pages of a sequence, at least enough for `ctx` positions.
        max_pages: u32,
    }
}

/// A kernel over a paged cache. Its caches have the shape `[cache_pages, kv_heads, 64, head_dim]`.
///
/// Each token belongs to the sequence of its state. A token is not appended if its state is done,
/// if its position is not below `ctx`, or if its sequence or page does not exist. Attention clamps
/// sequences and pages to the last. A token that is done attends to the positions before its own,
/// or to position 0. Its own row may never have been written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Paged<K>(pub K);

/// Arguments of [`Paged`]: the kernel's own, then the page table.
pub struct PagedArgs<K: KernelDef, S: Side> {
    /// The arguments of the kernel. Its `ctx` is the number of positions of a sequence.
    pub kernel: K::Args<S>,
    /// The page table.
    pub table: PageTableArgs<S>,
}

impl<K: KernelDef, S: Side> ArgList<S> for PagedArgs<K, S> {
    fn make(from: &mut impl Source<S>) -> Self {
        PagedArgs {
            kernel: ArgList::make(from),
            table: ArgList::make(from),
        }
    }

    fn each(&self, to: &mut impl Sink<S>) {
        self.kernel.each(to);
        self.table.each(to);
    }
}

/// A kernel that reads or writes a cache, which may be paged.
pub trait CacheKernel: KernelDef + Copy {
    /// Returns the number of positions of a sequence.
    fn ctx(a: &Self::Args<Shape>) -> u32;

    /// Returns [`KernelDef::grid`] for a cache with these pages.
    fn grid_over(&self, a: &Self::Args<Shape>, pages: CachePages) -> Result<Grid, ShapeError>;

    /// Emits [`KernelDef::program`], with a page table or without one.
    fn program_over<'k>(
        &self,
        k: Builder<'k>,
        a: Self::Args<Dev<'k>>,
        table: Option<PageTableArgs<Dev<'k>>>,
    );

    /// Computes [`KernelDef::reference`], with a page table or without one.
    fn reference_over(&self, a: Self::Args<Cpu<'_>>, table: Option<PageTableArgs<Cpu<'_>>>);
}

impl<K: CacheKernel> KernelDef for Paged<K> {
    type Args<S: Side> = PagedArgs<K, S>;

    fn name(&self) -> String {
        format!("{}_paged", self.0.name())
    }

    fn block(&self) -> u32 {
        self.0.block()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        self.0.blocks_per_sm()
    }

    fn grid(&self, a: &Self::Args<Shape>) -> Result<Grid, ShapeError> {
        // The error of the inner contract must name this kernel.
        let named = |e: ShapeError| ShapeError {
            kernel: KernelDef::name(self),
            ..e
        };
        let PageTableArgs {
            pages,
            cache_pages,
            sequences,
            max_pages,
        } = a.table;
        cache::check_table(self, pages, [sequences, max_pages])?;
        let grid = self
            .0
            .grid_over(&a.kernel, CachePages::Shared(cache_pages))
            .map_err(named)?;
        let ctx = K::ctx(&a.kernel);
        self.require(cache::pages(ctx) <= max_pages, || {
            format!("max_pages is {max_pages}, must be at least ceil(ctx / 64) for ctx = {ctx}")
        })?;
        Ok(grid)
    }

    fn program<'k>(&self, k: Builder<'k>, a: Self::Args<Dev<'k>>) {
        self.0.program_over(k, a.kernel, Some(a.table));
    }

    fn reference(&self, a: Self::Args<Cpu<'_>>) {
        self.0.reference_over(a.kernel, Some(a.table));
    }
}

/// The place of a token's keys and values.
#[derive(Clone, Copy)]
pub(crate) enum TokenPlace<'k> {
    /// In the cache of a single sequence.
    Own {
        /// The token's position.
        position: U32<'k>,
        /// The number of positions of the cache.
        ctx: U32<'k>,
    },
    /// In a paged cache: the row of the first head, or `u32::MAX` if the token is not stored.
    Paged(U32<'k>),
}

/// The sizes of a cache that the place of a token depends on.
#[derive(Clone, Copy)]
pub(crate) struct CacheSizes<'k> {
    pub(crate) kv_heads: U32<'k>,
    pub(crate) ctx: U32<'k>,
}

impl<'k> TokenPlace<'k> {
    /// Loads the place of a token from its state. `states` are the states of the whole batch.
    pub(crate) fn load(
        k: Builder<'k>,
        table: Option<PageTableArgs<Dev<'k>>>,
        states: Ptr<'k, u32, ReadOnly>,
        item: BatchItem<'k>,
        CacheSizes { kv_heads, ctx }: CacheSizes<'k>,
    ) -> Self {
        let state = item.of(states, LEN as u32);
        let position = state.at(POSITION).fresh().ld();
        let Some(table) = table else {
            return TokenPlace::Own { position, ctx };
        };

        let [done, sequence] = [DONE, SEQUENCE].map(|word| state.at(word).fresh().ld());

        // The contract makes sure that the table has pages for all positions below `ctx`.
        let known = done.eq(0) & sequence.lt(table.sequences) & position.lt(ctx);
        let mut page = k.var(u32::MAX);
        table.entry(sequence, position).ld_if(known, &mut page);
        let row = page.get() * kv_heads * PAGE + (position & (PAGE - 1));
        TokenPlace::Paged(page.get().lt(table.cache_pages).select(row, u32::MAX))
    }

    /// Returns the row of a head.
    pub(crate) fn row(self, kv_heads: U32<'k>, head: U32<'k>) -> U32<'k> {
        match self {
            TokenPlace::Own { position, .. } => OwnRows::new(kv_heads, head).at(position),
            TokenPlace::Paged(row) => head.mad(PAGE, row),
        }
    }

    /// Returns whether the token is stored.
    pub(crate) fn is_stored(self) -> Pred<'k> {
        match self {
            TokenPlace::Own { position, ctx } => position.lt(ctx),
            TokenPlace::Paged(row) => row.ne(u32::MAX),
        }
    }
}

impl<'k> PageTableArgs<Dev<'k>> {
    /// Returns the entry of a position. The sequence and the position must be in the table.
    fn entry(&self, sequence: U32<'k>, position: U32<'k>) -> Ptr<'k, u32, ReadOnly> {
        let index = position >> PAGE.ilog2();
        self.pages.at(sequence.mad(self.max_pages, index))
    }

    /// Loads a page number of a sequence. Sequence, index and page are clamped to the last.
    pub(crate) fn page(&self, sequence: U32<'k>, index: U32<'k>) -> U32<'k> {
        let sequence = sequence.min(self.sequences - 1);
        let index = index.min(self.max_pages - 1);
        let page = self.pages.at(sequence.mad(self.max_pages, index)).ld();
        page.min(self.cache_pages - 1)
    }
}

impl PageTableArgs<Cpu<'_>> {
    /// Returns the cache row of a position, or `None` if the sequence or its page does not exist.
    fn row(&self, sequence: u32, heads: [usize; 2], position: usize) -> Option<usize> {
        let shape = [self.sequences, self.max_pages, self.cache_pages];
        cache::paged_row(self.pages, shape, sequence, heads, position)
    }

    /// Returns the cache row of a position. Sequence and page are clamped to the last. The first
    /// array is the number of KV heads and the head.
    pub(crate) fn clamped_row(
        &self,
        sequence: u32,
        [kv_heads, head]: [usize; 2],
        position: usize,
    ) -> usize {
        let sequence = sequence.min(self.sequences - 1) as usize;
        let index = position / PAGE as usize;
        let page = self.pages[sequence * self.max_pages as usize + index];
        cache::row(
            page.min(self.cache_pages - 1) as usize,
            kv_heads,
            head,
            position,
        )
    }
}

/// Returns the cache row to which a token with this state is appended, or `None` if it is not
/// stored. `heads` is the number of KV heads and the head.
pub(crate) fn appended_row(
    table: Option<&PageTableArgs<Cpu<'_>>>,
    state: &[u32],
    heads: [usize; 2],
    ctx: u32,
) -> Option<usize> {
    let [position, done, sequence] = [POSITION, DONE, SEQUENCE].map(|word| state[word as usize]);
    if position >= ctx {
        return None;
    }
    match table {
        None => Some(cache::own_row(heads[0], heads[1], position as usize)),
        Some(_) if done != 0 => None,
        Some(table) => table.row(sequence, heads, position as usize),
    }
}
