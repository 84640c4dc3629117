//! The sizes and limits of sampling.

/// The number of threads of a block.
pub(crate) const THREADS: u32 = 1024;

/// The number of tokens that a block processes: two per thread.
pub const CHUNK: u32 = 2048;

/// The number of bins of the histogram: one per thread.
pub const BINS: u32 = THREADS;

/// The largest number of tokens that the last kernel keeps in shared memory.
pub const LISTED: u32 = 1024;

/// The largest vocabulary, because a token takes `ID_BITS` bits of a sort key.
pub const MAX_VOCAB: u32 = 1 << ID_BITS;

/// The number of bits of a token.
pub(crate) const ID_BITS: u32 = 18;

/// The largest number of biased tokens of a sequence.
pub const MAX_BIASES: u32 = 256;

/// The largest number of tokens to which penalties look back.
pub const MAX_WINDOW: u32 = 1024;

/// The largest number of best tokens whose log-probabilities are recorded.
pub const MAX_BEST: u32 = 32;

/// The number of words of a record before the entries of the best tokens. See
/// [`SampleTokenArgs`](super::SampleTokenArgs).
pub const RECORD_HEAD: u32 = 4;
