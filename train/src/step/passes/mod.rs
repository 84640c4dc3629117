//! The forward and backward passes of a micro-batch, in any precision.
//!
//! The passes are written once, over the operations of [`StepOperations`]. They decide which
//! operations run, in which order and on which buffers. A precision decides which kernels compute
//! an operation.
//!
//! Each block of a layer has one file, which contains its norm, its projections and their order,
//! forward and backward:
//!
//! | file | contents |
//! |---|---|
//! | `operations.rs` | the operations that a precision implements |
//! | `run.rs` | the order of layers and blocks, and the units of work that a trainer launches |
//! | `attention.rs` | the attention block |
//! | `feed_forward.rs` | the feed-forward block |
//! | `head.rs` | the LM head and the losses |
//! | `adapter.rs` | the adapter of a projection |

pub(super) mod adapter;
mod attention;
mod feed_forward;
pub(super) mod head;
pub(super) mod operations;
pub(super) mod run;
