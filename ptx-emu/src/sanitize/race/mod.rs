//! Data races.
//!
//! Two accesses race if they touch a common byte, at least one of them writes, at least one is not
//! strong, and neither happens before the other. The order in which they ran does not matter, so a
//! race is also found under a schedule in which it is harmless.
//!
//! The algorithm is a variant of FastTrack (Flanagan and Freund, "FastTrack: Efficient and Precise
//! Dynamic Race Detection", PLDI 2009):
//!
//! - Happens-before is tracked by vector clocks (Fidge 1988, Mattern 1989), with one entry per warp
//!   instead of per thread. `bar.warp.sync` orders the lanes of a warp. See [`order`].
//! - The last write of a word is an epoch: a clock and a thread. FastTrack replaces the epoch of
//!   reads by a vector clock when reads are unordered. Here, a word keeps two reads, and a traced
//!   launch keeps one read per warp. See [`shared`] and [`global`].
//! - Strong accesses, fences and scopes follow the PTX memory model (Lustig, Sahasrabuddhe and
//!   Giroux, "A Formal Analysis of the NVIDIA PTX Memory Consistency Model", ASPLOS 2019).
//!
//! Limits: a lane fences for its whole warp, and loads never run early. The crate page has the
//! complete list.

pub(crate) mod global;
pub(crate) mod last_access;
pub(crate) mod order;
pub(crate) mod same_address_stores;
pub(crate) mod shared;
pub(crate) mod tolerated_races;
pub(crate) mod warp_view;
