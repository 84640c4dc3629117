//! Keys and values that outlive their sequence: in kept pages, in host memory and on disk.

mod joining;
mod swap;
mod transfer;

pub use joining::BatchPages;
pub use swap::SwappedSequence;
