//! The layout of the KV cache: `f16` keys and values in pages of [`PAGE`] positions.
//!
//! The keys of a layer have the shape `[pages, kv_heads, PAGE, head_dim]`, and so have the values.
//! The page table, `[sequences, max_pages]`, lists the pages of each sequence in the order of their
//! positions, as in PagedAttention (Kwon et al., SOSP 2023). A decoder with a single sequence uses
//! all pages in order and needs no table.
//!
//! A row is the key or value of one head at one position: `head_dim` elements. Rows are counted
//! from the start of the cache.
//!
//! A key element beyond the range of `f16` is stored as NaN. An infinite key could be lost
//! silently: if the query has the opposite sign, the score is minus infinity, and attention leaves
//! the position out. NaN reaches the logits for every query. A value needs no such rule, because an
//! infinite value makes the weighted sum infinite or NaN.

use super::contract::Contract;
use ptx_gen::*;

/// The number of positions of a page.
pub const PAGE: u32 = 64;

/// Returns the number of pages that hold `positions` positions.
pub const fn pages(positions: u32) -> u32 {
    positions.div_ceil(PAGE)
}

/// Returns the cache row of a position on the CPU. `page` is the page that contains the position,
/// and the cache has `kv_heads` heads.
pub const fn row(page: usize, kv_heads: usize, head: usize, position: usize) -> usize {
    let page_len = PAGE as usize;
    (page * kv_heads + head) * page_len + position % page_len
}

/// Returns the cache row of a position of a decoder with a single sequence, whose pages are in
/// order.
pub const fn own_row(kv_heads: usize, head: usize, position: usize) -> usize {
    row(position / PAGE as usize, kv_heads, head, position)
}

/// The cache rows of one head of a decoder with a single sequence. After [`units`](OwnRows::units),
/// it computes the index of one unit of each row instead.
#[derive(Clone, Copy)]
pub(crate) struct OwnRows<'k> {
    /// The row of the head's first position.
    first: U32<'k>,
    /// The number of rows of the other heads per position of a page.
    others: U32<'k>,
}

impl<'k> OwnRows<'k> {
    pub(crate) fn new(kv_heads: U32<'k>, head: U32<'k>) -> Self {
        OwnRows {
            first: head * PAGE,
            others: kv_heads - 1,
        }
    }

    /// Returns the index of unit `unit` of each row, if a row has `of_row` units.
    pub(crate) fn units(self, of_row: u32, unit: U32<'k>) -> Self {
        OwnRows {
            first: self.first.mad(of_row, unit),
            others: self.others * of_row,
        }
    }

    /// Returns the row of a position.
    pub(crate) fn at(self, position: U32<'k>) -> U32<'k> {
        position + self.before(position)
    }

    /// Returns the difference between a position's row and the position. It is equal for all
    /// positions of a page.
    pub(crate) fn before(self, position: U32<'k>) -> U32<'k> {
        (position & !(PAGE - 1)).mad(self.others, self.first)
    }
}

/// Returns the cache row of a position on the CPU, by the page table. Returns `None` if the page
/// table or the cache does not contain it.
///
/// The first array is the number of sequences, the pages per sequence and the pages of the cache.
/// The second array is the number of heads and the head.
pub fn paged_row(
    pages: &[u32],
    [sequences, max_pages, cache_pages]: [u32; 3],
    sequence: u32,
    [kv_heads, head]: [usize; 2],
    position: usize,
) -> Option<usize> {
    let index = position / PAGE as usize;
    let known = sequence < sequences && index < max_pages as usize;
    let page = known.then(|| pages[sequence as usize * max_pages as usize + index]);
    page.filter(|&page| page < cache_pages)
        .map(|page| row(page as usize, kv_heads, head, position))
}

/// Checks the length `found` of a page table.
pub(crate) fn check_table(
    kernel: &impl Contract,
    found: usize,
    [sequences, max_pages]: [u32; 2],
) -> Result<(), ShapeError> {
    kernel.range("sequences", sequences, 1, 1 << 16)?;
    // Every position below 2^24 is exact as an f32.
    kernel.range("max_pages", max_pages, 1, (1 << 24) / PAGE)?;
    kernel.length(
        "pages",
        found,
        "sequences * max_pages",
        &[sequences, max_pages],
    )
}

/// Checks the length `found` of a paged cache.
pub(crate) fn check_pages(
    kernel: &impl Contract,
    name: &str,
    found: usize,
    [pages, kv_heads, head_dim]: [u32; 3],
) -> Result<(), ShapeError> {
    kernel.range("cache_pages", pages, 1, 1 << 24)?;
    kernel.length(
        name,
        found,
        "cache_pages * kv_heads * 64 * head_dim",
        &[pages, kv_heads, PAGE, head_dim],
    )
}

/// The pages of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachePages {
    /// The pages of a single sequence, in order.
    Own,
    /// This many pages, which sequences share by a page table.
    Shared(u32),
}

impl CachePages {
    /// Checks the length `found` of a cache for sequences of `ctx` positions.
    pub(crate) fn check(
        self,
        kernel: &impl Contract,
        name: &str,
        found: usize,
        [ctx, kv_heads, head_dim]: [u32; 3],
    ) -> Result<(), ShapeError> {
        match self {
            CachePages::Own => check_own(kernel, name, found, [ctx, kv_heads, head_dim]),
            CachePages::Shared(pages) => {
                check_pages(kernel, name, found, [pages, kv_heads, head_dim])
            }
        }
    }
}

/// Checks the length `found` of the cache of a decoder with a single sequence of `ctx` positions.
pub(crate) fn check_own(
    kernel: &impl Contract,
    name: &str,
    found: usize,
    [ctx, kv_heads, head_dim]: [u32; 3],
) -> Result<(), ShapeError> {
    let formula = "ceil(ctx / 64) * kv_heads * 64 * head_dim";
    kernel.length(
        name,
        found,
        formula,
        &[pages(ctx), kv_heads, PAGE, head_dim],
    )
}

/// Converts an element of a key on the CPU.
pub(crate) fn key(x: f32) -> f16 {
    let x = f16::from_f32(x);
    if x.to_f32().is_infinite() {
        f16::from_f32(f32::NAN)
    } else {
        x
    }
}

/// Converts two elements of a key.
pub(crate) fn keys<'k>(k: Builder<'k>, pair: [F32<'k>; 2]) -> [Val<'k, f16>; 2] {
    key_pair(k, pair).unpack()
}

/// Converts two elements of a key into one register. `x * 0 + x` is `x` for a finite `x`, and NaN
/// for an infinite one.
pub(crate) fn key_pair<'k>(k: Builder<'k>, [x, y]: [F32<'k>; 2]) -> Val<'k, f16x2> {
    let pair = x.cvt::<f16>().pack(y.cvt::<f16>());
    let zero = k.val(0u32).bits::<f16x2>();
    // Infinity times zero is NaN, so the result is NaN exactly where the conversion overflowed.
    pair.fma(zero, pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_positions_are_those_of_all_pages() {
        let heads = 3;
        let positions = 2 * PAGE as usize;
        let of = |head| (0..positions).map(move |position| own_row(heads, head, position));
        let mut rows: Vec<usize> = (0..heads).flat_map(of).collect();
        assert_eq!(
            [rows[63], rows[64], rows[128 + 65]],
            [63, 3 * 64, 4 * 64 + 1]
        );
        rows.sort_unstable();
        assert!(rows.into_iter().eq(0..heads * positions));
        assert_eq!([0, 1, 64, 65].map(pages), [0, 1, 1, 2]);
    }

    #[test]
    fn beyond_the_range_of_f16_there_is_no_key() {
        for (x, found) in [(65504.0, 65504.0), (-65519.0, -65504.0), (-0.0, -0.0)] {
            assert_eq!(key(x).to_f32().to_bits(), f32::to_bits(found));
        }
        assert!(
            [65520.0, -1e9, f32::INFINITY, f32::NAN]
                .into_iter()
                .all(|x| key(x).to_f32().is_nan())
        );
    }
}
