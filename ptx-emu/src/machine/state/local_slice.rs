//! The memory of each thread in the local window.

use crate::machine::state::warp::Warp;

/// The size of a thread's section of the local window. Threads of a block have different generic
/// addresses.
pub(crate) const SLICE: u64 = 512 << 10;

/// Returns the start of a thread's section of the local window.
pub(crate) fn slice(w: &Warp, lane: usize) -> u64 {
    (u64::from(w.number) * 32 + lane as u64) * SLICE
}

/// Returns the local address of a window address that belongs to the thread.
pub(crate) fn own(w: &Warp, lane: usize, address: u64) -> Option<u64> {
    address
        .checked_sub(slice(w, lane))
        .filter(|own| *own < SLICE)
}
