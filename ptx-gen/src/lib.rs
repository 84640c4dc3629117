//! A typed language for writing PTX kernels in Rust, without nvcc or LLVM.
