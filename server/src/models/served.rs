//! A loaded model.

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};
use warpwright_engine::Sampling;
use warpwright_model::chat::ChatTemplate;
use warpwright_model::{GrammarCompiler, TokenBound, Tokenizer};

use super::adapters::{AdapterLease, AdapterTable, ServedAdapter};
use crate::error::{ErrorKind, RequestError};
use crate::scheduler::Scheduler;

/// A model that is loaded, with everything that requests need.
pub struct ServedModel {
    /// The name in requests and responses.
    pub name: String,
    /// The time of loading, in seconds since 1970.
    pub created: u64,
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// A lower bound of the number of tokens of texts.
    pub token_bound: TokenBound,
    /// The chat template, if the model has one.
    pub template: Option<Arc<ChatTemplate>>,
    /// The chat template for conversations with tools. Usually it is the same.
    pub tool_template: Option<Arc<ChatTemplate>>,
    /// The compiler of grammars for the model's vocabulary.
    pub grammars: Arc<GrammarCompiler>,
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
    /// The adapters that requests can choose, or `None` if the server has none.
    pub adapters: Option<Arc<AdapterTable>>,
    /// The adapter that requests to this model use, if it is an adapter of a base model.
    pub adapter: Option<Arc<AdapterLease>>,
    /// The tokenizer for which names of control tokens are text, once it was needed.
    pub(super) literal: Arc<OnceLock<Result<Tokenizer, String>>>,
}

impl ServedModel {
    /// Returns the model or the adapter with a name.
    ///
    /// A model without adapters answers to every name, because clients such as Claude Code send
    /// names of other models. With adapters, another name could be that of an adapter that is not
    /// loaded any more, so it is refused.
    ///
    /// # Errors
    /// Returns [`ErrorKind::NotFound`] if the model has adapters, and none of this name.
    pub fn named(
        self: Arc<ServedModel>,
        name: Option<&str>,
    ) -> Result<Arc<ServedModel>, RequestError> {
        let (Some(adapters), Some(name)) = (&self.adapters, name) else {
            return Ok(self);
        };
        if name == self.name {
            return Ok(self);
        }
        if let Some(adapter) = adapters.find(name) {
            return Ok(Arc::new(self.with_adapter(adapter)));
        }

        let adapters = adapters.list();
        let names = adapters.iter().map(|adapter| &*adapter.name);
        let names: Vec<&str> = std::iter::once(&*self.name).chain(names).collect();
        Err(RequestError {
            kind: ErrorKind::NotFound,
            message: format!(
                "no model or adapter {name:?}: use one of {}",
                names.join(", ")
            ),
            param: Some("model".to_owned()),
        })
    }

    /// Returns the model whose requests use an adapter.
    fn with_adapter(&self, adapter: ServedAdapter) -> ServedModel {
        ServedModel {
            name: adapter.name,
            created: adapter.created,
            tokenizer: Arc::clone(&self.tokenizer),
            token_bound: self.token_bound,
            template: self.template.clone(),
            tool_template: self.tool_template.clone(),
            grammars: Arc::clone(&self.grammars),
            stop: self.stop.clone(),
            defaults: self.defaults.clone(),
            seed: self.seed,
            max_tokens: self.max_tokens,
            template_variables: self.template_variables.clone(),
            description: self.description.clone(),
            scheduler: self.scheduler.clone(),
            adapters: self.adapters.clone(),
            adapter: Some(adapter.lease),
            literal: Arc::clone(&self.literal),
        }
    }

    /// Returns an error if the requests to this model use an adapter, for work that adapters are not
    /// applied to.
    ///
    /// # Errors
    /// Returns an error that names the field `model`.
    pub fn refuse_adapter(&self, work: &str) -> Result<(), RequestError> {
        if self.adapter.is_none() {
            return Ok(());
        }
        let message = format!(
            "{work} with an adapter are not supported: use the base model instead of {}",
            self.name
        );
        Err(RequestError::invalid("model", message))
    }

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
