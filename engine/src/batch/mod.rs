//! Batches: sequences of different lengths that are stepped together over one copy of the weights.
//!
//! A [`Batch`] has a paged cache of keys and values, as in vLLM (Kwon et al., "Efficient Memory
//! Management for Large Language Model Serving with PagedAttention", SOSP 2023,
//! <https://arxiv.org/abs/2309.06180>). Sequences join and leave at any time, share the pages of a
//! common prefix, and can be rolled back. Pages of sequences that have left are kept for prompts with
//! the same prefix. None of this needs a new graph. A graph is built for a
//! number of rows, its *bucket*. The sequence and the position of each row are data that the
//! kernels read.
//!
//! Results are batch-invariant. A sequence's logits depend on its own tokens, on its chunk
//! boundaries and on the bucket, and never on its neighbors or its page numbers. Few sequences are
//! decoded by other kernels, which round differently: see [`BatchOptions::lone_rows`]. With
//! [`BatchRounding::Same`], they do not depend on chunk boundaries and the bucket either.
//!
//! | file | contents |
//! |---|---|
//! | `pages`, `sequences` | the owners of pages, on the host |
//! | `kept` | keys and values that outlive their sequence |
//! | `stored` | the files of pages |
//! | `device` | the buffers, the data that the host writes to them, and the launches of a step |
//! | `head` | the last norm, the LM head and the choice of the next tokens |
//! | `lone`, `lone_launch` | the decode steps of few sequences, with other kernels |
//! | `engine` | the public type |
//! | `compiled` | the compilation of all kernels before the first step |
//! | `steps` | steps, also under grammars, the scores of known tokens, and embeddings of texts |
//! | `sampled` | the sampling parameters of sequences |
//! | `adapters` | the adapters of sequences |
//! | `profile` | the kernels of a step with their times |

mod adapters;
mod compiled;
mod device;
mod engine;
mod head;
mod kept;
mod latest_tokens;
mod lone;
mod lone_launch;
mod memory;
mod options;
mod pages;
mod profile;
mod sampled;
pub(crate) mod sequence_id;
mod sequences;
mod steps;
mod stored;

pub use adapters::identity::AdapterId;
pub use adapters::prepared::{AdapterPreparer, PreparedAdapter};
pub use engine::Batch;
pub use kept::{BatchPages, LoadablePages, PageFolder, SavedPages, SwappedSequence};
pub use options::{BatchOptions, BatchRounding};
pub use pages::prefixes::{PrefixReuse, PrefixScope};
pub use sequence_id::SequenceId;
pub use steps::constrained::ConstrainedSequence;
pub use steps::row_class::RowClass;
pub use steps::stepped::{BatchItem, BatchStepped, BatchWanted};
pub use stored::page_folder::IgnoredFile;
