//! Keys as the cache has them: `f16`, in which a number beyond its range is NaN.
//!
//! Infinite, a key could be lost: the score of its position is minus infinity where the query has the other sign, and
//! attention then leaves that position out. NaN reaches the logits whatever the query is.
//! A value may be infinite: its share of a sum is infinite or NaN.
//!
//! Keys, and values, of a layer are pages of [`PAGE`] positions: `[pages, kv_heads, PAGE, head_dim]`. Which pages a
//! sequence has, in the order of its positions, is a row of the page table, `[sequences, max_pages]`. The only sequence
//! of a decoder has all pages in their order, and needs no table.
//!
//! A row is a key, or value, of a head: `head_dim` numbers. Rows are counted from the cache's first.

use crate::contract::Contract;
use ptx_gen::*;

/// Positions of a page.
pub const PAGE: u32 = 64;

/// Pages that hold so many positions.
pub const fn pages(positions: u32) -> u32 {
    positions.div_ceil(PAGE)
}

/// The row of a position in a cache of `kv_heads` heads, on the CPU: `page` is the page that has it.
pub const fn row(page: usize, kv_heads: usize, head: usize, position: usize) -> usize {
    let page_len = PAGE as usize;
    (page * kv_heads + head) * page_len + position % page_len
}

/// The same for the only sequence of a decoder, whose pages are in their order.
pub const fn own_row(kv_heads: usize, head: usize, position: usize) -> usize {
    row(position / PAGE as usize, kv_heads, head, position)
}

/// The rows of a head, for the only sequence of a decoder; or the same unit of each, counted in units.
#[derive(Clone, Copy)]
pub(crate) struct OwnRows<'k> {
    /// The head's first.
    first: U32<'k>,
    /// For a position of a page, those of the other heads.
    others: U32<'k>,
}

impl<'k> OwnRows<'k> {
    pub(crate) fn new(kv_heads: U32<'k>, head: U32<'k>) -> Self {
        OwnRows {
            first: head * PAGE,
            others: kv_heads - 1,
        }
    }

    /// Unit `unit` of each row of so many units.
    pub(crate) fn units(self, of_row: u32, unit: U32<'k>) -> Self {
        OwnRows {
            first: self.first.mad(of_row, unit),
            others: self.others * of_row,
        }
    }

    /// The row of a position.
    pub(crate) fn at(self, position: U32<'k>) -> U32<'k> {
        position + self.before(position)
    }

    /// What to add to a position, times the units of a row: the same in all of a page.
    pub(crate) fn before(self, position: U32<'k>) -> U32<'k> {
        (position & !(PAGE - 1)).mad(self.others, self.first)
    }
}

/// The row of a position by the page table, on the CPU; `None` if the table, or the cache, does not have it. `table`:
/// sequences, pages of one, pages of the cache; `heads`: their number, and which.
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

/// `found` is the length of a page table.
pub(crate) fn check_table(
    kernel: &impl Contract,
    found: usize,
    [sequences, max_pages]: [u32; 2],
) -> Result<(), ShapeError> {
    kernel.range("sequences", sequences, 1, 1 << 16)?;
    // A position is exact as an f32 up to here.
    kernel.range("max_pages", max_pages, 1, (1 << 24) / PAGE)?;
    kernel.length(
        "pages",
        found,
        "sequences * max_pages",
        &[sequences, max_pages],
    )
}

/// `found` is the length of a cache of so many pages.
pub(crate) fn check_pages(
    kernel: &impl Contract,
    (name, found): (&str, usize),
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

/// `found` is the length of the cache of a decoder's only sequence of `ctx` positions.
pub(crate) fn check_own(
    kernel: &impl Contract,
    (name, found): (&str, usize),
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

/// A key on the CPU.
pub(crate) fn key(x: f32) -> f16 {
    let x = f16::from_f32(x);
    if x.to_f32().is_infinite() {
        f16::from_f32(f32::NAN)
    } else {
        x
    }
}

/// Two keys.
pub(crate) fn keys<'k>(k: Builder<'k>, pair: [F32<'k>; 2]) -> [Val<'k, f16>; 2] {
    key_pair(k, pair).unpack()
}

/// Two keys in a register: `x * 0 + x` is `x`, and NaN where `x` is infinite.
pub(crate) fn key_pair<'k>(k: Builder<'k>, [x, y]: [F32<'k>; 2]) -> Val<'k, f16x2> {
    let pair = x.cvt::<f16>().pack(y.cvt::<f16>());
    let zero = k.val(0u32).bits::<f16x2>();
    pair.fma(zero, pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_positions_are_those_of_all_pages() {
        let (heads, positions) = (3, 2 * PAGE as usize);
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
