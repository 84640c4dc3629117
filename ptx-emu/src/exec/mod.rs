//! Executes a launch: blocks on worker threads, the warps of a block in turn, 32 lanes at once.

mod barrier;
mod block;
mod block_order;
mod call;
mod claims;
mod clocks;
mod cluster;
mod copy;
mod dot;
mod global;
mod grid;
mod hand_on;
mod history;
mod image;
mod in_one_store;
mod in_step;
mod late;
mod local;
mod loops;
mod marks;
mod matrix;
mod mbarrier;
mod meet;
mod memory;
mod observer;
mod origins;
mod owners;
mod parameters;
mod pattern;
mod print;
mod provenance;
mod reads;
mod record;
pub(crate) mod regs;
mod rotation;
mod rules;
mod shared;
mod sparse;
mod standstill;
mod step;
mod store;
mod strands;
mod sync;
mod system;
mod tensor;
mod tensor_map;
mod together;
mod tolerated;
mod trace;
mod turns;
mod uses;
mod values;
mod video;
mod view;
mod waits;
mod warp;
mod warpgroup;
mod wgmma;
mod wide;
mod wmma;
mod words;

pub(crate) use grid::run;
pub use uses::ParameterUse;
pub(crate) use uses::{parameter_loads, parameter_uses};

/// The first generic address of the shared window.
pub(crate) const SHARED_WINDOW: u64 = 0x1_0000_0000;
/// The first generic address of the local window.
pub(crate) const LOCAL_WINDOW: u64 = 0x2_0000_0000;
/// The first generic address of the kernel parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x3_0000_0000;
/// The size of a window.
pub(crate) const WINDOW: u64 = 0x2000_0000;

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
