//! The grid, its blocks and its warps, and the order in which they run.

pub(crate) mod block_rotation;
pub(crate) mod diverged_lanes;
pub(crate) mod grid;
pub(crate) mod lane_meetings;
pub(crate) mod standstill;
pub(crate) mod stationary_loops;
pub(crate) mod wait_reasons;
pub(crate) mod warp;
pub(crate) mod warp_turns;
pub(crate) mod worker;
