//! The CUDA driver API as a table of functions, loaded at run time.
