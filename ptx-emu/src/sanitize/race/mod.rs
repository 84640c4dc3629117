//! Data races.

pub(crate) mod access_history;
pub(crate) mod block_order;
pub(crate) mod element_owners;
pub(crate) mod last_access;
pub(crate) mod late_stores;
pub(crate) mod launch_accesses;
pub(crate) mod launch_recorder;
pub(crate) mod lazy_reads;
pub(crate) mod lockstep;
pub(crate) mod same_address_stores;
pub(crate) mod shared_shadow;
pub(crate) mod tolerated_races;
pub(crate) mod vector_clocks;
pub(crate) mod warp_view;
pub(crate) mod word_accesses;
