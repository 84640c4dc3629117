//! Speculative decoding: something cheap guesses tokens, the model verifies several in one step, and what it would have
//! chosen itself is all that counts (Leviathan et al. 2023, <https://arxiv.org/abs/2211.17192>).
//!
//! A guess is right if it is the token that the model chooses at its position, by the sampler that it would use anyhow:
//! random words are functions of seed and position. So texts are those of decoding without guesses, token by token.
//! Guesses come from the text itself ([`lookup`]) or from a smaller model ([`draft_model`]).

pub(crate) mod draft_model;
pub(crate) mod drafter;
pub(crate) mod lookup;
pub(crate) mod pace;
pub(crate) mod speculation;
pub(crate) mod vocabulary;
