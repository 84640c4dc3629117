//! Sums and maxima over a warp and over a block, in every thread.
//!
//! The order of the operations is fixed, so the same values give the same bits.

use ptx_gen::{Builder, F32};

/// The sum of `v` over the warp, in every lane: five butterfly steps. Whole warp.
#[track_caller]
pub fn warp_sum(v: F32<'_>) -> F32<'_> {
    butterfly(v, |a, b| a + b)
}

/// The largest `v` of the warp, in every lane. NaN loses to any number. Whole warp.
#[track_caller]
pub fn warp_max(v: F32<'_>) -> F32<'_> {
    butterfly(v, |a, b| a.max(b))
}

/// The sum of `v` over a block of `warps` warps, in every thread. Whole block, and not in a loop: each call has
/// shared memory of its own, which a second round would overwrite while slow warps still read it.
#[track_caller]
pub fn block_sum<'k>(k: Builder<'k>, warps: u32, v: F32<'k>) -> F32<'k> {
    across_warps(k, warps, warp_sum(v), 0.0, warp_sum)
}

/// The largest `v` of a block of `warps` warps, in every thread. Whole block, and not in a loop: see [`block_sum`].
#[track_caller]
pub fn block_max<'k>(k: Builder<'k>, warps: u32, v: F32<'k>) -> F32<'k> {
    across_warps(k, warps, warp_max(v), f32::NEG_INFINITY, warp_max)
}

fn butterfly<'k>(v: F32<'k>, combine: impl Fn(F32<'k>, F32<'k>) -> F32<'k>) -> F32<'k> {
    [16, 8, 4, 2, 1].into_iter().fold(v, |v, lanes| combine(v, v.shfl_bfly(lanes)))
}

/// Each warp leaves its result in shared memory; then every warp reduces the `warps` results.
fn across_warps<'k>(
    k: Builder<'k>,
    warps: u32,
    v: F32<'k>,
    neutral: f32,
    warp_reduce: impl Fn(F32<'k>) -> F32<'k>,
) -> F32<'k> {
    let partial = k.shared::<f32>("partial", warps);
    let (lane, warp) = (k.lane(), k.warp());
    k.when(lane.eq(0), || partial.at(warp).st(v));
    k.barrier();
    let mut all = k.var(neutral);
    k.when(lane.lt(warps), || all.set(partial.at(lane).ld()));
    warp_reduce(all.get())
}
