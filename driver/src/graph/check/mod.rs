//! Checks of graphs before they run: races, stale reads, overlap, and memory that a graph
//! allocates.
//!
//! A check only reads nodes and edges. It calls the driver at most to compare the edges.

pub(crate) mod by_memory;
pub(crate) mod coherence;
pub(crate) mod memory_order;
pub(crate) mod node_order;
pub(crate) mod overlap;
pub(crate) mod races;
pub(crate) mod writers;
