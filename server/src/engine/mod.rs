//! Engines: computing tokens from tokens.
//!
//! An [`Engine`] owns the weights and the cache of one model and steps sequences of tokens. One
//! thread owns it, and it knows nothing of requests, texts or HTTP.

mod batch;
mod decoder;
mod interface;
mod log_softmax;
pub mod scripted;

pub use batch::{BatchEngine, DraftSource};
pub use decoder::DecoderEngine;
pub(crate) use interface::NO_ADAPTERS;
pub use interface::{
    ChosenToken, DraftRequest, Engine, EngineError, EngineLimits, Joined, PageCounts,
    PrepareAdapter, SequenceKey, SequenceStart, StepWork, Stepped, TokenOrigin, Wanted,
};
pub use scripted::ScriptedEngine;
