//! Speculative decoding: a drafter guesses tokens, and the model verifies several in one step.
//!
//! The method is due to Leviathan, Kalman and Matias (ICML 2023,
//! <https://arxiv.org/abs/2211.17192>). A guess is accepted if it equals the token that the model
//! chooses at its position. The choice depends only on the logits and on a random word, and the
//! random word only on the seed and the position. The output is therefore the same as without
//! guesses, token by token.
//!
//! Guesses come from the text itself ([`lookup`]) or from a smaller model ([`draft_model`], and
//! [`batch_draft_model`] for several texts).

pub(crate) mod batch_draft_model;
pub(crate) mod draft_length;
pub(crate) mod draft_model;
pub(crate) mod drafter;
pub(crate) mod lookup;
pub(crate) mod speculation;
pub(crate) mod vocabulary;
