//! The description of a decoder layer as data.
//!
//! A family makes one [`Layer`] for each layer of a file. Loading, memory estimates, every forward
//! pass and training follow these descriptions, and no other part of the program asks for the
//! family. A pass is a `match` over [`Mixer`] and [`FeedForward`] without a wildcard, so the
//! compiler names every pass that does not handle a new kind.

pub(crate) mod attention;
pub(crate) mod description;
pub(crate) mod feed_forward;
pub(crate) mod rope_pairing;

pub use attention::{Attention, HeadNorms, QkvBias, ScoreScale};
pub use description::{FeedForward, Layer, Mixer, NormKind, NormPositions};
pub use feed_forward::{Dense, DenseForm, ExpertWeighting, Experts, GateActivation, SharedExpert};
pub use rope_pairing::RopePairing;
