//! Adapters in files for other programs: added to the weights of their model, or as a separate GGUF
//! file for llama.cpp.
//!
//! Merged weights are `W + s B A`, where A is `[rank, in]`, B is `[out, rank]` and `s` is the
//! scale, usually `alpha / rank`. The sum is computed in F64 and rounded once, to the format of
//! `W`. The format must have at least 16 bits, because a sum that is rounded to four bits could be
//! `W` again.
//!
//! A merged file equals the base file byte for byte, except for these weights. A program that can
//! read the base can therefore read the merged file. Files of any size are written a few MiB at a
//! time.

pub(crate) mod fault;
pub(crate) mod files;
pub(crate) mod lora_gguf;
pub(crate) mod side_files;
pub(crate) mod sum;

pub use fault::MergeFault;
pub use files::{Merge, WeightFile};
pub use lora_gguf::write_lora;
pub use side_files::SideFiles;
pub use sum::MergeStats;
