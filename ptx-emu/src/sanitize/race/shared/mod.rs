//! Races on the shared memory of a block or cluster.
//!
//! [`shared_shadow`] has the state and checks single accesses. [`word_groups`] checks the lanes of
//! a warp at the same time, with the same results, and [`lazy_reads`] postpones the record of reads
//! that probably no write meets.

pub(crate) mod access_history;
pub(crate) mod claimed_words;
pub(crate) mod lazy_reads;
pub(crate) mod lockstep;
pub(crate) mod shared_shadow;
pub(crate) mod word_groups;
