//! A mixture of experts for many tokens: `x[t] += sum over the chosen experts e of p_e Wdown_e
//! (f(Wgate_e y) * Wup_e y)`, where `y` is the norm of `x[t]`.
//!
//! The tokens are sorted by expert, so that each expert's matrix is multiplied by all tokens that
//! chose it:
//!
//! 1. [`RouterLogits`] computes the logits of the router from the residual stream.
//! 2. [`ChooseTokenExperts`] chooses the experts of each token and their weights.
//! 3. [`SortTokens`] assigns a sorted row to each token and slot. The rows of an expert begin at a
//!    multiple of the matmul's tokens.
//! 4. [`GatherTokens`] copies the normed activations into sorted rows.
//! 5. [`MatmulExperts`] with [`Epilogue::Gated`](super::Epilogue::Gated) computes gate and up.
//! 6. [`MatmulExperts`] with [`Epilogue::Store`](super::Epilogue::Store) computes down.
//! 7. [`CombineTokens`] adds the weighted results to the residual stream.
//!
//! A token's results do not depend on the other tokens: each step either works on one token, or
//! computes a sorted row from that row and its expert.
//!
//! Mixture of experts with a router: Shazeer et al., "Outrageously Large Neural Networks: The
//! Sparsely-Gated Mixture-of-Experts Layer", 2017, arXiv:1701.06538. Groups of rows with one expert
//! each: Gale et al., "MegaBlocks: Efficient Sparse Training with Mixture-of-Experts", 2022,
//! arXiv:2211.15841.

mod case;
mod choose;
mod combine;
mod gather;
mod matmul;
mod plan;
mod router;
mod sort;
pub(crate) mod variants;

pub use choose::{ChooseTokenExperts, ChooseTokenExpertsArgs};
pub use combine::{CombineTokens, CombineTokensArgs};
pub use gather::{GatherTokens, GatherTokensArgs};
pub use matmul::{MatmulExperts, MatmulExpertsArgs, MatmulSyncExperts};
pub use plan::group_width;
pub use router::{RouterLogits, RouterLogitsArgs, RouterTile};
pub use sort::{SortTokens, SortTokensArgs};
