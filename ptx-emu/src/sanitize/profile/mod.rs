//! Profiles, and records of single threads.

pub(crate) mod observer;
