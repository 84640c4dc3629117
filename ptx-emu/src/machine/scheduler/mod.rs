//! The grid, its blocks and its warps, and the order in which they run.

pub(crate) mod block;
pub(crate) mod block_rotation;
pub(crate) mod diverged_lanes;
pub(crate) mod grid;
pub(crate) mod lane_meetings;
pub(crate) mod launch_grid;
pub(crate) mod standstill;
pub(crate) mod standstill_verdict;
pub(crate) mod stationary_loops;
pub(crate) mod turn_state;
pub(crate) mod wait_reasons;
pub(crate) mod warp;
pub(crate) mod warp_parts;
pub(crate) mod warp_steps;
pub(crate) mod warp_turns;
