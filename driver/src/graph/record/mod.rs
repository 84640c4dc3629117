//! Queues that make graphs: recorders, and captures of a stream.

pub(crate) mod capture;
pub(crate) mod captured_graph;
pub(crate) mod recorder;
