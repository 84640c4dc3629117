//! The interface between the scheduler and the engine that computes tokens.

use std::sync::Arc;

use thiserror::Error;
use warpwright_engine::{LogProbabilities, PreparedAdapter, Sampling};
use warpwright_model::{Adapter, Matcher};

/// The id of a sequence in an engine. An engine never uses an id twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SequenceKey(pub u64);

/// The sizes of an engine, which do not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineLimits {
    /// The maximum number of sequences at a time.
    pub sequences: u32,
    /// The maximum number of positions of a sequence.
    pub ctx: u32,
    /// The maximum number of tokens in a step, over all sequences.
    pub tokens_per_step: u32,
    /// The number of pages of the cache.
    pub pages: u32,
    /// The number of positions per page.
    pub page_len: u32,
    /// The size of the vocabulary.
    pub vocab: u32,
    /// The maximum number of best log-probabilities per token.
    pub logprobs: u32,
}

/// The pages of an engine's cache, by their use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageCounts {
    /// Pages that sequences use.
    pub used: u32,
    /// Pages without a sequence that are kept for later prompts with the same prefix. They are
    /// freed when pages are needed.
    pub kept: u32,
    /// Pages that contain nothing.
    pub free: u32,
}

/// The beginning of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct SequenceStart<'a> {
    /// The tokens of its prompt. They are not processed by joining; they only serve to find a
    /// prefix in the cache.
    pub prompt: &'a [u32],
    /// A number that cached prefixes must share. Requests with different API keys have different
    /// salts.
    pub salt: u64,
    /// The parameters by which tokens are chosen.
    pub sampling: &'a Sampling,
    /// The key of a loaded adapter, or `None`.
    pub adapter: Option<&'a str>,
}

/// A sequence that has joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The id of the sequence.
    pub key: SequenceKey,
    /// The number of first tokens of the prompt whose keys and values were in the cache. It is less
    /// than the length of the prompt, because the last token must be processed.
    pub cached: u32,
}

/// The origin of tokens that a step processes. In deterministic mode, kernels are selected by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenOrigin {
    /// Tokens of a prompt, and tokens that are recomputed like a prompt.
    Prompt,
    /// One token that the model has chosen.
    Model,
}

/// The results that a step returns for a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Nothing: the step processes a part of a prompt that is not the last one.
    Nothing,
    /// The next token after the given ones.
    Next,
    /// The tokens after the first given one and after each of the following ones, which are drafts,
    /// up to the first draft that is not chosen. Only the first given token and the drafts before
    /// that one become tokens of the sequence. The sequence must not follow a grammar.
    Verified,
    /// The log-probabilities of the token that follows each given one.
    Scored {
        /// The number of best tokens per position.
        best: u32,
        /// The token after the last given one, if the next step will be given it. Otherwise, the
        /// next token is returned as for [`Next`](Wanted::Next).
        following: Option<u32>,
    },
}

impl Wanted {
    /// Returns true if the next token is returned.
    pub fn chooses(self) -> bool {
        match self {
            Wanted::Nothing => false,
            Wanted::Next | Wanted::Verified => true,
            Wanted::Scored { following, .. } => following.is_none(),
        }
    }
}

/// The work of a sequence in a step.
pub struct StepWork<'a> {
    /// The sequence.
    pub key: SequenceKey,
    /// The next tokens of the sequence, at least one.
    pub tokens: &'a [u32],
    /// The origin of the tokens.
    pub origin: TokenOrigin,
    /// The results to return.
    pub wanted: Wanted,
    /// The grammar of the next token, or `None`. The engine advances it by the chosen token.
    pub matcher: Option<&'a mut Matcher>,
}

/// A chosen token.
#[derive(Debug, Clone, PartialEq)]
pub struct ChosenToken {
    /// The id of the token.
    pub token: u32,
    /// The log-probabilities at its position, if the sequence's sampling parameters ask for them.
    pub probabilities: Option<LogProbabilities>,
}

/// The results of a step for one sequence.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stepped {
    /// The next token, if it was wanted.
    pub next: Option<ChosenToken>,
    /// The accepted drafts and the token after them, for [`Wanted::Verified`].
    pub verified: Vec<ChosenToken>,
    /// The log-probabilities of the given tokens but the first, and of the following token if there
    /// is one, for [`Wanted::Scored`].
    pub scored: Vec<LogProbabilities>,
}

/// A sequence whose next tokens are to be guessed.
#[derive(Clone, Copy, Debug)]
pub struct DraftRequest<'a> {
    /// The sequence.
    pub key: SequenceKey,
    /// All its tokens, including the one that the next step processes.
    pub tokens: &'a [u32],
    /// The maximum number of drafts.
    pub most: usize,
}

/// The reason why an engine loads no adapter.
pub(crate) const NO_ADAPTERS: &str =
    "this engine has no adapters: it decodes one sequence at a time";

/// Prepares an adapter for an engine. It takes most of the time of loading, and runs on another
/// thread than the engine.
pub type PrepareAdapter =
    Arc<dyn Fn(&Adapter) -> Result<PreparedAdapter, EngineError> + Send + Sync>;

/// An error of an engine.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The cache has too few pages. No sequence has advanced.
    #[error("the cache has no free page: {needed} more needed, {free} free")]
    NoPages {
        /// The number of pages that are missing.
        needed: u32,
        /// The number of pages that are free or kept.
        free: u32,
    },
    /// One sequence cannot go on, for example because a logit is not finite. The others have not
    /// advanced, and can be stepped again without it.
    #[error("{reason}")]
    Sequence {
        /// The sequence.
        key: SequenceKey,
        /// The reason, as a sentence.
        reason: String,
    },
    /// The engine does not have an ability that was asked for.
    #[error("{0}")]
    Unsupported(String),
    /// The device has failed. The engine cannot be used any more.
    #[error("the device has failed: {0}")]
    Lost(String),
}

/// Computes the tokens of several sequences.
///
/// All methods block until their results are there. After [`EngineError::Lost`], every method
/// returns that error again.
pub trait Engine: Send {
    /// Returns the sizes of the engine.
    fn limits(&self) -> EngineLimits;

    /// Returns the tokens that end texts.
    fn stop(&self) -> &[u32];

    /// Returns the use of the cache's pages.
    fn pages(&self) -> PageCounts;

    /// Adds a sequence. The longest cached prefix of its prompt becomes its first tokens.
    ///
    /// # Errors
    /// Returns [`EngineError::Unsupported`] if the engine has no adapter with the given key, or
    /// [`EngineError::Lost`].
    ///
    /// # Panics
    /// Panics if the engine already has the maximum number of sequences.
    fn join(&mut self, start: &SequenceStart<'_>) -> Result<Joined, EngineError>;

    /// Removes a sequence. Its full pages are kept for later prompts while there is space.
    fn leave(&mut self, key: SequenceKey);

    /// Processes the given tokens of some sequences in one step. The results are in the order of
    /// `work`.
    ///
    /// # Errors
    /// Returns any [`EngineError`]. After all but [`EngineError::Lost`], no sequence and no grammar
    /// has advanced.
    fn step(&mut self, work: &mut [StepWork<'_>]) -> Result<Vec<Stepped>, EngineError>;

    /// Works like [`step`](Engine::step), and calls `meanwhile` at most once, if possible while the
    /// device computes.
    ///
    /// # Errors
    /// Returns the errors of [`step`](Engine::step).
    fn step_with(
        &mut self,
        work: &mut [StepWork<'_>],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Vec<Stepped>, EngineError> {
        meanwhile();
        self.step(work)
    }

    /// Returns the maximum number of tokens that a step with drafts chooses, over all sequences, or
    /// 0 if the engine verifies no drafts: see [`Wanted::Verified`]. It is not less than the maximum
    /// number of sequences.
    fn verified_per_step(&self) -> u32 {
        0
    }

    /// Proposes the next tokens of some sequences, in the order of `work`. The drafts need not be
    /// right, and there may be fewer than requested or none.
    ///
    /// # Errors
    /// Returns [`EngineError::Lost`] if the device has failed.
    fn draft(&mut self, work: &[DraftRequest<'_>]) -> Result<Vec<Vec<u32>>, EngineError> {
        Ok(vec![vec![]; work.len()])
    }

    /// Returns the time of one draft, as a fraction of a step of one sequence. It is 0 for drafts
    /// that take no noticeable time.
    fn draft_cost(&self) -> f64 {
        0.0
    }

    /// Generates up to `steps` tokens of each sequence, which is given with its next token. A
    /// sequence ends early after a token that ends texts, which is the last one returned.
    ///
    /// # Errors
    /// Returns the errors of [`step`](Engine::step).
    fn decode(
        &mut self,
        work: &[(SequenceKey, u32)],
        steps: u32,
    ) -> Result<Vec<Vec<ChosenToken>>, EngineError>;

    /// Returns the mean of the hidden states of each text's tokens after the last norm, scaled to
    /// length 1.
    ///
    /// # Errors
    /// Returns [`EngineError::Unsupported`] if the engine cannot compute embeddings.
    fn embed(&mut self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, EngineError>;

    /// Returns the function that prepares adapters for [`load_adapter`](Engine::load_adapter), or
    /// `None` if the engine has no adapters. The function returns [`EngineError::Unsupported`] if an
    /// adapter does not fit the model.
    fn adapter_preparation(&self) -> Option<PrepareAdapter> {
        None
    }

    /// Loads an adapter, and returns the key by which sequences choose it. Adapters with equal values
    /// have the same key, and are unloaded as often as they were loaded.
    ///
    /// # Errors
    /// Returns [`EngineError::Unsupported`] if the engine has no adapters, or if this one does not
    /// fit into the free memory. Returns [`EngineError::Lost`] if the device has failed.
    fn load_adapter(&mut self, adapter: Arc<PreparedAdapter>) -> Result<String, EngineError> {
        drop(adapter);
        Err(EngineError::Unsupported(NO_ADAPTERS.to_owned()))
    }

    /// Unloads an adapter that no sequence uses.
    ///
    /// # Errors
    /// Returns [`EngineError::Unsupported`] if no such adapter is loaded or a sequence uses it, or
    /// [`EngineError::Lost`].
    fn unload_adapter(&mut self, key: &str) -> Result<(), EngineError> {
        let reason = format!("no adapter with the key {key} is loaded");
        Err(EngineError::Unsupported(reason))
    }

    /// Saves what outlives the process, such as pages for prompts after a restart. It is called
    /// once, without sequences, before the engine is dropped by a server that shuts down.
    ///
    /// # Errors
    /// Returns the reason as a sentence if something is not saved.
    fn save(&mut self) -> Result<(), String> {
        Ok(())
    }
}
