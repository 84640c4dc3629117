//! Accesses of warps to memory. [`load_store`] selects the state space of each lane.

pub(crate) mod global;
pub(crate) mod lane_access;
pub(crate) mod load_store;
pub(crate) mod local;
pub(crate) mod parameter_space;
pub(crate) mod same_address;
pub(crate) mod shared;
pub(crate) mod tolerance;
