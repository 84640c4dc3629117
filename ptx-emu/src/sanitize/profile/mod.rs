//! Profiles, and records of single threads.

pub(crate) mod counters;
pub(crate) mod followed_thread;
