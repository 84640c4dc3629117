//! Tests of the kernels on the emulator, against their references in `f64`.

mod batch;
mod comparison;
mod composition;
mod contracts;
mod emulator;
mod experts;
mod flash;
mod formats;
mod gpt_oss;
mod machine;
mod matmul;
mod matmul_sync;
mod not_numbers;
mod paged;
mod prompt;
mod rows;
mod sampling;
mod shapes;
mod token_experts;
