//! Loads, stores, atomics and moves.

pub(crate) mod atomic;
pub(crate) mod load_store;
pub(crate) mod multimem;
pub(crate) mod vector_moves;
pub(crate) mod wide;
