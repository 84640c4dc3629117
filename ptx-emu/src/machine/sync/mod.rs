//! Barriers, mbarriers, clusters, and exchanges between the lanes of a warp.

pub(crate) mod barrier;
pub(crate) mod barrier_state;
pub(crate) mod cluster;
pub(crate) mod cluster_state;
pub(crate) mod mbarrier;
pub(crate) mod mbarrier_state;
pub(crate) mod warp_exchange;
