//! The order in which blocks and warps run, and the detection of launches that stand still.

pub(crate) mod block_rotation;
pub(crate) mod launch_grid;
pub(crate) mod stationary_loops;
pub(crate) mod wait_reasons;
pub(crate) mod warp_end;
pub(crate) mod warp_steps;
pub(crate) mod warp_turns;
