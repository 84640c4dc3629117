//! The thread of a scheduler, its handle, and what they share.

mod handle;
mod run;
mod shared;

pub use handle::Scheduler;
