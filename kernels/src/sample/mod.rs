//! Sampling of the next token on the device, in three kernels after the LM head.
//!
//! ```text
//! SampleAdjust   z = penalize(logits + bias), the maximum of each chunk, a histogram of z
//! SampleGather   masses of the chunks, a mask of the first tokens
//! SampleToken    filters (top-k, typical-p, top-p, min-p),
//!                draw of a token with probability ~ exp(z / temperature), step of the state
//! ```
//!
//! If a grammar restricts the tokens, [`AllowTokens`] lowers the logits of all others first.
//!
//! The filters have the order and the meaning of llama.cpp's. Each filter sees only the tokens that
//! the filters before it kept. Their sources are top-k (Fan et al. 2018), locally typical sampling
//! (Meister et al. 2022), top-p or nucleus sampling (Holtzman et al. 2020) and min-p (Nguyen et al.
//! 2024). The penalties are the repetition penalty of CTRL (Keskar et al. 2019) and OpenAI's
//! presence and frequency penalties.
//!
//! # Exact sums
//!
//! A token's mass is an integer that follows from a few correctly rounded `f32` operations
//! ([`weight`]). A sum of integers does not depend on the order of the additions, so threads may
//! add in any order. Therefore equal logits, parameters and positions give the same token on every
//! device, on the emulator and in the reference on the CPU.
//!
//! # Exact borders
//!
//! A filter is a border in an order of the tokens: the first token at which a sum of integers
//! exceeds a number (`select`). Equal logits are ordered by token. The draw is a border too: in the
//! order of the tokens, at a random share of the mass.
//!
//! # Fast paths
//!
//! - Most filters keep few tokens. A histogram with logarithmic bins shows which bins hold the
//!   first tokens. If these are at most [`LISTED`] and decide the draw, the last kernel, one block
//!   per row, reads only them.
//! - If top-k keeps at most 128 tokens, each of them is compared with each other one (`few`).
//! - If only min-p filters, the last kernel reads one chunk of the tokens.
//! - In all other cases it reads all tokens several times, which is correct but slow.
//!
//! Parameters are words in device memory ([`SampleParams`]), so a captured graph stays valid while
//! they change. Each sequence has separate parameters. The random word is Philox of the seed and
//! the position ([`philox`](crate::shared::philox)).

mod adjust;
mod allow;
mod block;
mod case;
mod choose;
mod draw;
mod few;
mod gather;
mod limits;
mod params;
pub mod reference;
mod rows;
mod select;
mod token_args;
pub(crate) mod variants;
pub mod weight;

pub use adjust::{SampleAdjust, SampleAdjustArgs};
pub use allow::{AllowTokens, AllowTokensArgs};
pub use choose::SampleToken;
pub use gather::{SampleGather, SampleGatherArgs, mask_words};
pub use limits::{BINS, CHUNK, LISTED, MAX_BEST, MAX_BIASES, MAX_VOCAB, MAX_WINDOW, RECORD_HEAD};
pub use params::SampleParams;
pub use rows::{RowsArgs, blocks};
pub use token_args::SampleTokenArgs;
