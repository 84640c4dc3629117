//! Adapters in files that others read: added to the weights of their model, or alone as llama.cpp has them.
//!
//! Merged weights are `W + s B A`, where A is `[rank, in]`, B is `[out, rank]` and `s` is `alpha / rank`, or what PEFT has
//! in its place. The sum is made in F64 and rounded once, to the format of `W`, which has at least 16 bits: rounded to
//! four bits, it could be `W` again. A merged file is the base's, byte for byte, but for these weights, so that whoever
//! read the one reads the other. It is made a few MiB at a time, whatever its size.

pub(crate) mod fault;
pub(crate) mod files;
pub(crate) mod lora_gguf;
pub(crate) mod others;
pub(crate) mod sum;
pub(crate) mod wide;

pub use fault::Fault;
pub use files::{Merge, WeightFile};
pub use lora_gguf::write_lora;
pub use others::Others;
pub use sum::Change;
