//! Device, shared and local memory, and the accesses of warps to them.

pub(crate) mod device;
pub(crate) mod global;
pub(crate) mod lane_access;
pub(crate) mod load_store;
pub(crate) mod local;
pub(crate) mod same_address;
pub(crate) mod shared;
pub(crate) mod tolerance;
