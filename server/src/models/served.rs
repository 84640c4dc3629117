//! A loaded model.

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};
use warpwright_engine::Sampling;
use warpwright_model::chat::ChatTemplate;
use warpwright_model::{GrammarCompiler, Tokenizer};

use crate::scheduler::Scheduler;

/// A model that is loaded, with everything that requests need.
pub struct ServedModel {
    /// The name in requests and responses.
    pub name: String,
    /// The time of loading, in seconds since 1970.
    pub created: u64,
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The chat template, if the model has one.
    pub template: Option<Arc<ChatTemplate>>,
    /// The chat template for conversations with tools. Usually it is the same.
    pub tool_template: Option<Arc<ChatTemplate>>,
    /// The compiler of grammars for the model's vocabulary.
    pub grammars: GrammarCompiler,
    /// The tokens that end a text.
    pub stop: Vec<u32>,
    /// The sampling parameters of requests that set none.
    pub defaults: Sampling,
    /// The seed of requests that set none, or `None` for a random one.
    pub seed: Option<u64>,
    /// The maximum number of tokens of a reply. It limits every request.
    pub max_tokens: Option<u32>,
    /// Variables of the chat template. A request overrides each of them.
    pub template_variables: Map<String, Value>,
    /// Facts that the server shows.
    pub description: ModelDescription,
    /// The scheduler of the model's engine.
    pub scheduler: Scheduler,
    /// The tokenizer for which names of control tokens are text, once it was needed.
    pub(super) literal: OnceLock<Result<Tokenizer, String>>,
}

impl ServedModel {
    /// Returns a tokenizer for which names of control tokens are text like any other. The first call
    /// opens the model's files again.
    ///
    /// # Errors
    /// Returns the reason if the files cannot be read any more.
    pub fn literal_tokenizer(&self) -> Result<&Tokenizer, String> {
        let open = || {
            let tokenizer = Tokenizer::open(self.description.path.as_ref());
            tokenizer
                .map(Tokenizer::literal)
                .map_err(|error| error.to_string())
        };
        self.literal
            .get_or_init(open)
            .as_ref()
            .map_err(Clone::clone)
    }
}

/// Facts about a model that the server shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelDescription {
    /// The path of its file or folder.
    pub path: String,
    /// The family, such as `llama`.
    pub family: String,
    /// The number of weights.
    pub parameters: u64,
    /// The size of its files in bytes.
    pub bytes: u64,
    /// The context length that it was trained with.
    pub trained_ctx: u32,
    /// The size of the vocabulary.
    pub vocab: u32,
    /// The length of hidden states.
    pub hidden: u32,
    /// The engine that computes its tokens, for example "batches on the device".
    pub engine: String,
}

/// The values of requests that set none.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestDefaults {
    /// The sampling parameters.
    pub sampling: Sampling,
    /// The seed, or `None` for a random one.
    pub seed: Option<u64>,
    /// The maximum number of tokens of a reply. It limits every request.
    pub max_tokens: Option<u32>,
    /// Variables of the chat template. A request overrides each of them.
    pub template_variables: Map<String, Value>,
}
