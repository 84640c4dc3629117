//! A loaded model.

use std::sync::Arc;

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
    /// Facts that the server shows.
    pub description: ModelDescription,
    /// The scheduler of the model's engine.
    pub scheduler: Scheduler,
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
}
