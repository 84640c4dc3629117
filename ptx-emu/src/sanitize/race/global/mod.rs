//! Races on global memory in traced launches.
//!
//! [`launch_recorder`] has the state. Accesses within the running block are compared word by word
//! ([`word_accesses`]), and those of different blocks element by element ([`element_owners`]).

pub(crate) mod element_owners;
pub(crate) mod late_stores;
pub(crate) mod launch_accesses;
pub(crate) mod launch_recorder;
pub(crate) mod word_accesses;
