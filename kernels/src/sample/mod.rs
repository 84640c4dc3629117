//! Sampling: the next token is drawn from the logits on the device, in three kernels after the LM head.
//!
//! ```text
//! z = penalize(logits + bias)                     SampleAdjust: z, its largest, a histogram of z
//! top-k, typical-p, top-p, min-p: what is kept    SampleGather: masses of chunks, a mask of the first tokens
//! token ~ exp(z / temperature) over what is kept  SampleToken:  the choice, and the step of the state
//! ```
//!
//! Where a grammar says which tokens may come, [`AllowTokens`] lowers the logits of all others before.
//!
//! The order of the filters and what each means is llama.cpp's. Each works on what those before it left.
//!
//! *Exact sums.* A token's mass is a function of a few `f32` operations, each correctly rounded, and an integer
//! ([`weight`]). Sums of integers do not depend on their order, so threads may add in any, and the same logits,
//! parameters and position give the same token on every device, on the emulator and in the reference on the CPU.
//!
//! *Exact borders.* A filter is a border in an order of the tokens: the first token at which a sum of integers exceeds a
//! number (`select`). Equal numbers are in the order of the tokens. The draw is such a border, too: in the order of
//! the tokens, at a random share of the mass.
//!
//! *Few tokens.* Most filters keep few of the tokens. If top-k does, and they are at most 128, each is compared with each
//! (`few`). A histogram with logarithmic bins says how far down the first
//! [`LISTED`] tokens or fewer reach that decide; the last kernel, one block for a row, then needs only these. Where
//! nothing is filtered but by min-p, it needs one chunk of the tokens. Elsewhere it reads all of them several times,
//! which is right, and slow.
//!
//! Parameters are words in device memory ([`SampleParams`]), so a graph of launches stays valid while they change. Each
//! sequence has its own. The random word is Philox of seed and position ([`philox`](crate::train::philox)).

mod adjust;
mod allow;
mod block;
mod case;
mod choose;
mod draw;
mod few;
mod gather;
mod params;
pub mod reference;
mod rows;
mod select;
pub mod weight;

pub use adjust::{SampleAdjust, SampleAdjustArgs};
pub use allow::{AllowTokens, AllowTokensArgs};
pub use choose::{SampleToken, SampleTokenArgs};
pub use gather::{SampleGather, SampleGatherArgs, mask_words};
pub use params::SampleParams;
pub use rows::{RowsArgs, blocks};

/// Threads of a block.
pub(crate) const THREADS: u32 = 1024;
/// Tokens of a block.
pub const CHUNK: u32 = 2048;
/// Bins of the histogram: one a thread.
pub const BINS: u32 = THREADS;
/// Tokens that the last kernel keeps in shared memory.
pub const LISTED: u32 = 1024;
/// The largest vocabulary: a token is `ID_BITS` bits.
pub const MAX_VOCAB: u32 = 1 << ID_BITS;
/// Bits of a token.
pub(crate) const ID_BITS: u32 = 18;
/// Biased tokens of a sequence, at most.
pub const MAX_BIASES: u32 = 256;
/// Tokens that penalties look back, at most.
pub const MAX_WINDOW: u32 = 1024;
/// Best tokens whose log-probabilities are recorded, at most.
pub const MAX_BEST: u32 = 32;
/// Words of a record before those of the best tokens: see [`SampleTokenArgs`].
pub const RECORD_HEAD: u32 = 4;
