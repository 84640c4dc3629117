//! Accesses of warps to shared memory.
pub(crate) mod cluster_window;
pub(crate) mod landing;
pub(crate) mod lockstep_loads;
pub(crate) mod shared_access;
pub(crate) mod shared_checks;
pub(crate) mod shared_warp_access;
