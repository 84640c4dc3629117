//! Model files, the forward pass and the decode graph.
