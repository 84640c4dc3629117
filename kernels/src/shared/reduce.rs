//! Sums and maxima over lanes, warps and blocks. Every thread gets the result.
//!
//! The order of the operations is fixed, so equal inputs give bit-identical results.

use ptx_gen::{Builder, F32, U32};

/// The mask that covers all lane bits of a warp.
const WARP: u32 = 31;

/// Returns the sum of `v` over the warp, in every lane, in five butterfly steps. The whole warp
/// must call it.
#[track_caller]
pub fn warp_sum(v: F32<'_>) -> F32<'_> {
    lanes_sum(WARP, v)
}

/// Returns the maximum of `v` over the warp, in every lane. A NaN is ignored if another lane has a
/// number. The whole warp must call it.
#[track_caller]
pub fn warp_max(v: F32<'_>) -> F32<'_> {
    lanes_max(WARP, v)
}

/// Returns the sum of `v` over the lanes whose lane numbers differ only in the bits of the mask
/// `bits`. The whole warp must call it.
#[track_caller]
pub fn lanes_sum(bits: u32, v: F32<'_>) -> F32<'_> {
    butterfly(bits, v, |a, b| a + b)
}

/// Returns the maximum of `v` over the lanes whose lane numbers differ only in the bits of the mask
/// `bits`. The whole warp must call it.
#[track_caller]
pub fn lanes_max(bits: u32, v: F32<'_>) -> F32<'_> {
    butterfly(bits, v, |a, b| a.max(b))
}

/// Returns the maximum of `v` over the lanes whose lane numbers differ only in the bits of the mask
/// `bits`. The whole warp must call it.
///
/// You can pass the bits of non-negative floats, because their bit patterns are ordered like their
/// values. A NaN then compares greater than every number.
#[track_caller]
pub fn lanes_max_u32(bits: u32, v: U32<'_>) -> U32<'_> {
    steps(bits).fold(v, |v, step| v.max(v.shfl_bfly(step)))
}

/// Returns the sum of `v` over a block of `warps` warps, in every thread.
///
/// The whole block must call it, outside of loops. Each call declares its own shared memory. A
/// second iteration would overwrite that memory while slow warps still read it.
#[track_caller]
pub fn block_sum<'k>(k: Builder<'k>, warps: u32, v: F32<'k>) -> F32<'k> {
    across_warps(k, warps, warp_sum(v), 0.0, warp_sum)
}

/// Returns the maximum of `v` over a block of `warps` warps, in every thread.
///
/// The whole block must call it, outside of loops, for the reason given at [`block_sum`].
#[track_caller]
pub fn block_max<'k>(k: Builder<'k>, warps: u32, v: F32<'k>) -> F32<'k> {
    across_warps(k, warps, warp_max(v), f32::NEG_INFINITY, warp_max)
}

/// Returns two sums and one maximum over a block of `warps` warps, in every thread, with a single
/// barrier.
///
/// The bits are equal to the results of [`block_sum`] and [`block_max`]. The whole block must call
/// it, outside of loops, for the reason given at [`block_sum`].
#[track_caller]
pub fn block_sums_and_max<'k>(
    k: Builder<'k>,
    warps: u32,
    sums: [F32<'k>; 2],
    largest: F32<'k>,
) -> [F32<'k>; 3] {
    // One barrier serves all three values.
    let partial = k.shared::<f32>("partials", 3 * warps);
    let lane = k.lane();
    let warp = k.warp();
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

/// Combines neighbors, then their results, and so on. A tree has a shorter chain of dependencies
/// than a sum from left to right.
#[track_caller]
pub(crate) fn tree<'k>(
    mut all: Vec<F32<'k>>,
    combine: impl Fn(F32<'k>, F32<'k>) -> F32<'k>,
) -> F32<'k> {
    while all.len() > 1 {
        all = all
            .chunks(2)
            .map(|two| two.iter().copied().reduce(&combine).expect("one or two"))
            .collect();
    }
    all[0]
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

/// Reduces across warps: each warp stores its result in shared memory, then every warp reduces the
/// `warps` results.
#[track_caller]
fn across_warps<'k>(
    k: Builder<'k>,
    warps: u32,
    v: F32<'k>,
    neutral: f32,
    warp_reduce: impl Fn(F32<'k>) -> F32<'k>,
) -> F32<'k> {
    let partial = k.shared::<f32>("partial", warps);
    let lane = k.lane();
    let warp = k.warp();
    k.when(lane.eq(0), || partial.at(warp).st(v));
    k.barrier();
    let mut all = k.var(neutral);
    k.when(lane.lt(warps), || all.set(partial.at(lane).ld()));
    warp_reduce(all.get())
}
