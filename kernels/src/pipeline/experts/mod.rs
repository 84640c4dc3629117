//! A mixture of experts for one token: `y += sum over the chosen experts e of p_e Wdown_e (f(Wgate_e
//! x) * Wup_e x)`. `x` is the norm of the residual stream, and `p_e` the weight of expert `e`.
//!
//! - [`logits::ExpertLogits`] computes the router's logits, one expert per block.
//! - [`gate_up::ExpertGateUp`] chooses the experts, in each block again. That is faster than a
//!   choice by the last block of the router, because the exchange between blocks would take longer
//!   than the choice.
//! - [`down::ExpertDown`] multiplies the chosen experts as one matrix. It learns the choice from the
//!   running [`gate_up::ExpertGateUp`], as soon as that has requested its last tile.
//!
//! The two GEMVs read only the chosen experts, so a token costs the bytes of these. Mixture of
//! experts with a router: Shazeer et al., "Outrageously Large Neural Networks: The
//! Sparsely-Gated Mixture-of-Experts Layer", 2017, arXiv:1701.06538.

mod case;
pub(crate) mod down;
pub(crate) mod gate_up;
pub(crate) mod logits;
