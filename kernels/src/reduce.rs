//! Sums and maxima over lanes, warps and blocks, in every thread.
//!
//! The order of the operations is fixed, so the same values give the same bits.

use ptx_gen::{Builder, F32, U32};

/// The bits of a lane's number: all lanes of a warp.
const WARP: u32 = 31;

/// The sum of `v` over the warp, in every lane: five butterfly steps. Whole warp.
#[track_caller]
pub fn warp_sum(v: F32<'_>) -> F32<'_> {
    lanes_sum(WARP, v)
}

/// The largest `v` of the warp, in every lane. NaN loses to any number. Whole warp.
#[track_caller]
pub fn warp_max(v: F32<'_>) -> F32<'_> {
    lanes_max(WARP, v)
}

/// The sum of `v` over the lanes whose numbers differ in no other bits than `bits`. Whole warp.
#[track_caller]
pub fn lanes_sum(bits: u32, v: F32<'_>) -> F32<'_> {
    butterfly(bits, v, |a, b| a + b)
}

/// The largest `v` of the lanes whose numbers differ in no other bits than `bits`. Whole warp.
#[track_caller]
pub fn lanes_max(bits: u32, v: F32<'_>) -> F32<'_> {
    butterfly(bits, v, |a, b| a.max(b))
}

/// The largest `v` of the lanes whose numbers differ in no other bits than `bits`. Whole warp. Of floats that are not
/// negative the bits are in the order of the numbers, and those of NaN above all.
#[track_caller]
pub fn lanes_max_u32(bits: u32, v: U32<'_>) -> U32<'_> {
    steps(bits).fold(v, |v, step| v.max(v.shfl_bfly(step)))
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

/// The sums of two numbers and the largest of a third over a block of `warps` warps, in every thread, with one barrier. The
/// bits are those of [`block_sum`] and [`block_max`]. Whole block, and not in a loop: see [`block_sum`].
#[track_caller]
pub fn block_sums_and_max<'k>(
    k: Builder<'k>,
    warps: u32,
    sums: [F32<'k>; 2],
    largest: F32<'k>,
) -> [F32<'k>; 3] {
    let partial = k.shared::<f32>("partials", 3 * warps);
    let (lane, warp) = (k.lane(), k.warp());
    let of_warp = [warp_sum(sums[0]), warp_sum(sums[1]), warp_max(largest)];
    k.when(lane.eq(0), || {
        for (i, v) in (0..).zip(of_warp) {
            partial.at(warp).at(i * warps).st(v);
        }
    });
    k.barrier();
    let mut all = [0.0, 0.0, f32::NEG_INFINITY].map(|neutral| k.var(neutral));
    k.when(lane.lt(warps), || {
        for (i, all) in (0..).zip(&mut all) {
            all.set(partial.at(lane).at(i * warps).ld());
        }
    });
    let [a, b, c] = all.map(|v| v.get());
    [warp_sum(a), warp_sum(b), warp_max(c)]
}

#[track_caller]
fn butterfly<'k>(bits: u32, v: F32<'k>, combine: impl Fn(F32<'k>, F32<'k>) -> F32<'k>) -> F32<'k> {
    steps(bits).fold(v, |v, step| combine(v, v.shfl_bfly(step)))
}

fn steps(bits: u32) -> impl Iterator<Item = u32> {
    [16, 8, 4, 2, 1]
        .into_iter()
        .filter(move |step| bits & step != 0)
}

/// Each warp stores its result in shared memory; then every warp reduces the `warps` results.
#[track_caller]
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
