//! Safe CUDA driver handles, typed launches and hand-built graphs.
