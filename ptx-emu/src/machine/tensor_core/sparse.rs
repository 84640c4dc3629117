//! `mma.sp` and `wgmma.mma_async.sp`: left matrices of which half the elements are stored. Metadata
//! contains their columns (manual, "Sparse matrix storage").
//!
//! A chunk of a row has four bits of metadata: two indices of its quarters, the lower one first. A
//! quarter is one element, a pair of 4-bit elements, or half of a 32-bit element, which both
//! indices then select. Let g = lane / 4.
//!
//! - For 16-bit and 32-bit elements, row g has the lower 16 bits of the metadata, and row g + 8 has
//!   the upper 16 bits. If two threads have metadata, the second one has the later columns.
//! - For narrower elements, a thread has the metadata of one row. The first of two threads has row
//!   g and the second has row g + 8. The third and the fourth have the later columns of these rows.
//!
//! The manual shows this in figures only. CUTLASS stores metadata in this order, and results for
//! random metadata agree with an H100. The rows of a warp in `wgmma` have the metadata that they
//! would have in `mma.sp` of the same depth.
//!
//! Elements of b whose partner is not stored take no part, even if they are infinite.

use crate::machine::memory::lane_access;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::code::{MatrixElement, ProductShape, Sparsity};
use crate::module::lane_mask::lanes;
use crate::{Class, Fault};

/// The number of metadata bits per chunk.
const BITS: usize = 4;

/// Returns the columns of the stored elements of each row. `above` rows of the matrix belong to
/// other warps.
pub(crate) fn stored_columns(
    block: &Block<'_, '_>,
    w: &Warp,
    (shape, item): (ProductShape, MatrixElement),
    s: Sparsity,
    above: usize,
) -> Checked<Vec<Vec<usize>>> {
    let threads = Sparsity::threads(shape, item);
    let first = s.selector * threads;
    if first + threads > 4 {
        let what = format!(
            "a sparsity selector of {}, where {threads} threads of each four hold metadata: up to {} was expected",
            s.selector,
            4 / threads - 1
        );
        return Err(block.fault(w, u32::MAX, Class::Descriptor, what));
    }

    let holds = |lane: &usize| (first..first + threads).contains(&(lane % 4));
    let mask = lanes(u32::MAX)
        .filter(holds)
        .fold(0, crate::module::lane_mask::set_bit);
    let metadata = lane_access::words(block, w, mask, s.metadata)?;
    let chunk = Sparsity::chunk(item);
    let of_row = |row: usize| {
        let mut columns = Vec::new();
        for i in 0..shape.depth / chunk {
            let (thread, at) = place(item, row, i);
            let lane = row % 8 * 4 + first + thread;
            let bits = metadata[lane] >> at & 15;
            match stored(item, bits, s.ordered) {
                Some(within) => columns.extend(within.iter().map(|column| i * chunk + column)),
                None => return Err(bad_metadata(block, w, lane, (above + row, i * chunk), bits)),
            }
        }
        Ok(columns)
    };
    (0..shape.rows).map(of_row).collect()
}

#[cold]
fn bad_metadata(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    (row, column): (usize, usize),
    bits: u32,
) -> Box<Fault> {
    let what = format!(
        "metadata 0b{bits:04b} of row {row} of a from column {column} on, which means nothing"
    );
    let mut fault = block.fault(w, 1 << lane, Class::Descriptor, what);
    fault.instead = "give two different indices, ascending for .sp::ordered_metadata and wgmma; of .tf32, 0b0100 or 0b1110";
    fault
}

/// Returns the thread with the metadata of a chunk, and the first bit of the chunk.
fn place(item: MatrixElement, row: usize, chunk: usize) -> (usize, usize) {
    match item.bits() {
        16 | 32 => (chunk / 4, BITS * (chunk % 4) + 16 * (row / 8)),
        _ => (chunk / 8 * 2 + row / 8, BITS * (chunk % 8)),
    }
}

/// Returns the columns of the stored elements of a chunk, or `None` if the metadata is invalid.
fn stored(item: MatrixElement, bits: u32, ordered: bool) -> Option<Vec<usize>> {
    let [low, high] = [bits & 3, bits >> 2].map(|index| index as usize);
    match item.bits() {
        32 => matches!(bits, 0b0100 | 0b1110).then(|| vec![low / 2]),
        _ if low == high || ordered && low > high => None,
        4 => Some(vec![2 * low, 2 * low + 1, 2 * high, 2 * high + 1]),
        _ => Some(vec![low, high]),
    }
}
