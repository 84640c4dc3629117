//! The state of a launch while it runs: the grid, its blocks, their warps, and the work that is
//! pending.
//!
//! The other folders of the machine are functions that change it.
pub(crate) mod barrier_state;
pub(crate) mod block;
pub(crate) mod cluster_state;
pub(crate) mod grid;
pub(crate) mod local_slice;
pub(crate) mod mbarrier_state;
pub(crate) mod pending;
pub(crate) mod shared_words;
pub(crate) mod standstill;
pub(crate) mod standstill_verdict;
pub(crate) mod turn_state;
pub(crate) mod warp;
pub(crate) mod warp_parts;
