//! Sequences of different lengths that are stepped together.
//!
//! [`Batch`] has the weights of a model and one cache of pages. Sequences join and leave at any time, share pages where
//! they begin alike, and are rolled back, and no graph is made again: a graph is of a number of rows, its *bucket*, and
//! which sequence a row is of, at which position, is data that the kernels read.
//!
//! | file | is |
//! |---|---|
//! | `pages`, `sequences` | which pages are whose, on the host |
//! | `device` | the buffers, what the host writes to them, and the launches of a step |
//! | `head` | from the residual stream to the next tokens |
//! | `engine` | the public type |
//! | `sampled`, `within` | how its sequences are sampled, and the grammars that they follow |
//! | `profile` | the kernels of a step, one after the other |

mod device;
mod engine;
mod head;
mod memory;
mod options;
mod pages;
mod profile;
mod sampled;
mod sequences;
mod within;

pub use engine::Batch;
pub use options::BatchOptions;
pub use sequences::SequenceId;
pub use within::Within;
