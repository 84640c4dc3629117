//! Exact sums of 64-bit integers over a block of [`THREADS`] threads, and values that its threads
//! share.

use super::limits::THREADS;
use super::weight::halves;
use crate::shared::reduce::block_max;
use ptx_gen::*;

const WARPS: u32 = THREADS / 32;

/// Returns the sum of `v` over the block. The result is known to be uniform.
///
/// All threads of the block must call it. Each call declares separate shared memory, so do not call
/// it in a loop.
pub(super) fn sum<'k>(k: Builder<'k>, v: U64<'k>) -> U64<'k> {
    let all = k.shared("sum", 1);
    sum_to(k, v, all);
    all.ld()
}

/// Stores the sum of `v` over the block at `all`. All threads of the block must call it.
pub(super) fn sum_to<'k>(k: Builder<'k>, v: U64<'k>, all: Ptr<'k, u64, Shared>) {
    let totals = totals(k);
    let v = warp_sum(v);
    k.when(k.lane().eq(0), || totals.at(k.warp()).st(v));
    k.barrier();
    k.when(k.warp().eq(0), || {
        let v = warp_sum(totals.at(k.lane()).ld());
        k.when(k.lane().eq(0), || all.st(v));
    });
    k.barrier();
}

/// Returns the maximum of `v` over the block. The result is known to be uniform.
///
/// All threads of the block must call it, and not in a loop.
pub(super) fn max<'k>(k: Builder<'k>, v: F32<'k>) -> F32<'k> {
    let all = k.shared::<f32>("most", 1);
    let most = block_max(k, WARPS, v);
    k.when(k.tid().eq(0), || all.st(most));
    k.barrier();
    all.ld()
}

/// Returns the inclusive prefix sum of `v` over the threads of the block.
///
/// All threads of the block must call it. `totals` has one word per warp. It is written before the
/// only barrier of the function and read after it, so the caller needs a barrier between two calls.
pub(super) fn scan<'k>(k: Builder<'k>, totals: Ptr<'k, u64, Shared>, v: U64<'k>) -> U64<'k> {
    let own = warp_scan(k, v);
    k.when(k.lane().eq(31), || totals.at(k.warp()).st(own));
    k.barrier();
    // Each warp scans the totals again, which costs less than a second barrier.
    let all = warp_scan(k, totals.at(k.lane()).ld());
    let warp = k.warp();
    // The first warp has no warp before it. Its index is clamped, and the value is not used.
    let before = shuffle(all, |word| word.shfl_idx(warp.max(1) - 1));
    warp.gt(0).select(own + before, own)
}

/// Declares the shared memory for [`scan`].
pub(super) fn totals(k: Builder<'_>) -> Ptr<'_, u64, Shared> {
    k.shared("totals", WARPS)
}

fn warp_sum(v: U64<'_>) -> U64<'_> {
    lanes_sum(31, v)
}

/// Returns the sum over the lanes whose numbers differ only in the bits `bits`. All lanes of the
/// warp must call it.
pub(super) fn lanes_sum(bits: u32, v: U64<'_>) -> U64<'_> {
    let steps = [16, 8, 4, 2, 1].into_iter().filter(|step| step & bits != 0);
    steps.fold(v, |v, lanes| v + shuffle(v, |word| word.shfl_bfly(lanes)))
}

fn warp_scan<'k>(k: Builder<'k>, v: U64<'k>) -> U64<'k> {
    [1, 2, 4, 8, 16].into_iter().fold(v, |v, lanes| {
        let below = shuffle(v, |word| word.shfl_up(lanes));
        k.lane().ge(lanes).select(v + below, v)
    })
}

/// Returns the maximum over the warp, in every lane.
pub(super) fn warp_max(v: U64<'_>) -> U64<'_> {
    [16, 8, 4, 2, 1].into_iter().fold(v, |v, lanes| {
        v.max(shuffle(v, |word| word.shfl_bfly(lanes)))
    })
}

/// Applies a shuffle to both words of a value, because `shfl` has 32 bits.
fn shuffle<'k>(v: U64<'k>, by: impl Fn(U32<'k>) -> U32<'k>) -> U64<'k> {
    let [low, high] = halves(v).map(by);
    join(low, high)
}

/// Returns the integer with these words.
pub(super) fn join<'k>(low: U32<'k>, high: U32<'k>) -> U64<'k> {
    (high.cvt::<u64>() << 32) + low.cvt::<u64>()
}
