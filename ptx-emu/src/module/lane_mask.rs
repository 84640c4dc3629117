//! Sets of lanes.

/// Returns the lanes of a mask, lowest first.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

/// Returns a mask with one more lane.
pub(crate) fn set_bit(mask: u32, lane: usize) -> u32 {
    mask | 1 << lane
}
