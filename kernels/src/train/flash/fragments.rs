//! Matmuls of a warp: the sums of each 16 of its rows and each eight columns.

use super::block::ROWS;
use crate::shared::shared_rows::Matrices;
use ptx_gen::*;

/// The sums of 16 rows, for each eight columns. A lane has the rows `g` and `g + 8` and the columns
/// `2t` and `2t + 1`.
pub(super) type Tile<'k> = Vec<Sums<'k, f32>>;

/// Returns the sums of a warpgroup as a tile. Each warp has 16 rows of them.
pub(super) fn of_warpgroup<'k>(sums: Accumulators<'k, f32>) -> Tile<'k> {
    let mut vars = sums.0.into_iter();
    std::iter::from_fn(|| {
        Some(Sums([
            vars.next()?,
            vars.next()?,
            vars.next()?,
            vars.next()?,
        ]))
    })
    .collect()
}

/// Returns a tile as the sums of a warpgroup.
pub(super) fn to_warpgroup(tile: Tile<'_>) -> Accumulators<'_, f32> {
    Accumulators(tile.into_iter().flat_map(|sums| sums.0).collect())
}

/// Adds `left right` with `wgmma`, and commits the matmuls as one group.
///
/// `left` has an operand for each 16 rows of `right`.
pub(super) fn add_together<'k>(
    k: Builder<'k>,
    sums: &mut Accumulators<'k, f32>,
    left: Vec<LeftFragment<'k>>,
    right: Descriptor<'k, bf16>,
) {
    k.wgmma_fence();
    for (i, left) in (0..).zip(left) {
        sums.multiply_registers::<bf16, bf16>(left, right.inner(16 * i), k.always());
    }
    k.wgmma_commit();
}

/// Returns tiles of zeros with this number of columns.
pub(super) fn zeros(k: Builder<'_>, tiles: usize, columns: u32) -> Vec<Tile<'_>> {
    (0..tiles)
        .map(|_| (0..columns / 8).map(|_| Sums::zero(k)).collect())
        .collect()
}

/// Adds `left right^T`, a sum over the dimensions of a head.
pub(super) fn add_transposed<'k>(
    sums: &mut [Tile<'k>],
    left: &Matrices<'k>,
    right: &Matrices<'k>,
    head_dim: u32,
) {
    for pair in 0..head_dim / 16 {
        // The left operands are loaded once per 16 dimensions and used for all columns.
        let load = |i: usize| LeftFragment(left.at(ROWS * i as u32, pair).ldmatrix4());
        let left: Vec<LeftFragment> = (0..sums.len()).map(load).collect();
        for sixteen in 0..sums[0].len() / 2 {
            let [b0, b1, b2, b3] = right.at(16 * sixteen as u32, pair).ldmatrix4();
            for (sums, &a) in sums.iter_mut().zip(&left) {
                sums[2 * sixteen].add_bf16(a, RightFragment([b0, b1]));
                sums[2 * sixteen + 1].add_bf16(a, RightFragment([b2, b3]));
            }
        }
    }
}

/// Adds `left right`. `left` has operands for each tile and each 16 rows of `right`.
pub(super) fn add<'k>(sums: &mut [Tile<'k>], left: &[Vec<LeftFragment<'k>>], right: &Matrices<'k>) {
    for sixteen in 0..left[0].len() {
        for pair in 0..sums[0].len() / 2 {
            let [b0, b1, b2, b3] = right.at(16 * sixteen as u32, pair as u32).ldmatrix4_trans();
            for (sums, left) in sums.iter_mut().zip(left) {
                sums[2 * pair].add_bf16(left[sixteen], RightFragment([b0, b1]));
                sums[2 * pair + 1].add_bf16(left[sixteen], RightFragment([b2, b3]));
            }
        }
    }
}

/// Returns the numbers of a tile, rounded to bf16, as a left operand for each 16 columns.
///
/// The sums of two groups of eight columns have the layout of a left operand with 16 columns.
pub(super) fn rounded<'k>(numbers: &[[F32<'k>; 4]]) -> Vec<LeftFragment<'k>> {
    let words = |n: &[F32<'k>; 4]| [n[0].pack_bf16(n[1]), n[2].pack_bf16(n[3])];
    let left = |two: &[[F32<'k>; 4]]| {
        let [a0, a1] = words(&two[0]);
        let [a2, a3] = words(&two[1]);
        LeftFragment([a0, a1, a2, a3])
    };
    numbers.chunks_exact(2).map(left).collect()
}

/// Returns `f` of each number of a tile. The other arguments of `f` are the index among the lane's
/// four numbers and the distance of the column from the lane's first column.
pub(super) fn map<'k>(
    tile: &Tile<'k>,
    f: impl Fn(F32<'k>, usize, u32) -> F32<'k>,
) -> Vec<[F32<'k>; 4]> {
    let eight = |(sums, eight): (&Sums<'k, f32>, u32)| {
        [0, 1, 2, 3].map(|i| f(sums.0[i].get(), i, 8 * eight + i as u32 % 2))
    };
    tile.iter().zip(0..).map(eight).collect()
}

/// Stores the sums of row `g + 8 r`: two neighboring columns of each eight, the first at `to`.
pub(super) fn store<'k>(tile: &Tile<'k>, r: usize, to: Ptr<'k, f32, WriteOnly>) {
    for (sums, eight) in tile.iter().zip(0..) {
        let to = to.at(8 * eight);
        let pair = [0, 1].map(|i| sums.0[2 * r + i].get());
        to.st2(pair);
    }
}

/// Returns the products of the numbers at equal places.
pub(super) fn times<'k>(x: &[[F32<'k>; 4]], y: &[[F32<'k>; 4]]) -> Vec<[F32<'k>; 4]> {
    x.iter()
        .zip(y)
        .map(|(x, y)| std::array::from_fn(|i| x[i] * y[i]))
        .collect()
}
