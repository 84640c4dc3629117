//! Barriers, mbarriers, clusters, and exchanges between the lanes of a warp.

pub(crate) mod barrier;
pub(crate) mod cluster;
pub(crate) mod mbarrier;
pub(crate) mod warp_exchange;
