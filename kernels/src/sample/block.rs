//! Sums of 64-bit integers over a block of [`THREADS`] threads, which are exact in any order; values that its threads
//! share.

use super::THREADS;
use super::weight::halves;
use crate::reduce::block_max;
use ptx_gen::*;

const WARPS: u32 = THREADS / 32;

/// The sum over the block, known to be the same in every thread. Whole block, and not in a loop: each call has shared
/// memory of its own.
pub(super) fn sum<'k>(k: Builder<'k>, v: U64<'k>) -> U64<'k> {
    let all = k.shared("sum", 1);
    sum_to(k, v, all);
    all.ld()
}

/// The same, in `all`.
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

/// The largest of the block, known to be the same in every thread. Whole block, and not in a loop.
pub(super) fn max<'k>(k: Builder<'k>, v: F32<'k>) -> F32<'k> {
    let all = k.shared::<f32>("most", 1);
    let most = block_max(k, WARPS, v);
    k.when(k.tid().eq(0), || all.st(most));
    k.barrier();
    all.ld()
}

/// The sum of this thread's and those before it. Whole block; it overwrites `totals`, of which there is one a warp,
/// before its barrier, and reads them after it.
pub(super) fn scan<'k>(k: Builder<'k>, totals: Ptr<'k, u64, Shared>, v: U64<'k>) -> U64<'k> {
    let own = warp_scan(k, v);
    k.when(k.lane().eq(31), || totals.at(k.warp()).st(own));
    k.barrier();
    let all = warp_scan(k, totals.at(k.lane()).ld());
    let warp = k.warp();
    let before = shuffle(all, |word| word.shfl_idx(warp.max(1) - 1));
    warp.gt(0).select(own + before, own)
}

/// Shared memory for [`scan`].
pub(super) fn totals(k: Builder<'_>) -> Ptr<'_, u64, Shared> {
    k.shared("totals", WARPS)
}

fn warp_sum(v: U64<'_>) -> U64<'_> {
    lanes_sum(31, v)
}

/// The sum over the lanes whose numbers differ in no other bits than `bits`. Whole warp.
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

/// The largest of the warp, in every lane.
pub(super) fn warp_max(v: U64<'_>) -> U64<'_> {
    [16, 8, 4, 2, 1].into_iter().fold(v, |v, lanes| {
        v.max(shuffle(v, |word| word.shfl_bfly(lanes)))
    })
}

fn shuffle<'k>(v: U64<'k>, by: impl Fn(U32<'k>) -> U32<'k>) -> U64<'k> {
    let [low, high] = halves(v).map(by);
    join(low, high)
}

/// The number of these words.
pub(super) fn join<'k>(low: U32<'k>, high: U32<'k>) -> U64<'k> {
    (high.cvt::<u64>() << 32) + low.cvt::<u64>()
}
