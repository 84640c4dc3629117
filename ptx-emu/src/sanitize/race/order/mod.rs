//! Happens-before, within a block and between blocks.

pub(crate) mod block_order;
pub(crate) mod vector_clocks;
