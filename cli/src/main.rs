//! Decodes language models with PTX kernels written in Rust.
fn main() {}
