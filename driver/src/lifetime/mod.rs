//! The shared state below all other modules: the driver, the progress and order of streams,
//! deferred free, captures and locks.
//!
//! Queued work uses memory, kernels and graphs by address. The files here ensure that a destructor
//! releases an object only when no queued work can use it:
//!
//! - `driver` opens the driver, which stays open until the process ends.
//! - `stream_progress` counts the operations of each stream, and those that are known to be
//!   complete.
//! - `stream_order` records the accesses of each stream, and refuses conflicting work of two streams
//!   that the program has not ordered.
//! - `deferred_free` keeps the raw handles of dropped objects until every stream has passed the
//!   operations that were queued at that time.
//! - `work_wait` waits for a stream and does not return before its work is complete.
//! - `active_captures` and `capture_gate` know the captures in progress. The former refuses calls
//!   that would invalidate one, the latter defers the calls of destructors.
//! - `host_functions` keeps functions that the driver may call late, and catches their panics.
//! - `reserved_range` unmaps memory before its addresses are returned.
//! - `unpoisoned_lock` takes all locks of the crate.
//!
//! Nothing here knows contexts, streams, buffers or graphs. Those types call this module, never the
//! reverse. `device` re-exports [`Driver`](driver::Driver).

pub(crate) mod active_captures;
pub(crate) mod capture_gate;
pub(crate) mod deferred_free;
pub(crate) mod driver;
pub(crate) mod host_functions;
pub(crate) mod reserved_range;
pub(crate) mod stream_order;
pub(crate) mod stream_progress;
pub(crate) mod unpoisoned_lock;
pub(crate) mod work_wait;
