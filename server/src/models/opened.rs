//! A model whose files are open, but whose weights are not loaded.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Map;
use warpwright_engine::{GenerationConfig, Sampling};
use warpwright_model::chat::ChatTemplate;
use warpwright_model::{GrammarCompiler, Model, Tokenizer, info};

use super::served::{ModelDescription, RequestDefaults, ServedModel};
use crate::scheduler::Scheduler;

/// A model whose files are open: everything that requests need, except for the weights on a device.
pub struct OpenedModel {
    /// The files.
    pub model: Model,
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Sentences about parts of the files that are ignored.
    pub warnings: Vec<String>,
    template: Option<Arc<ChatTemplate>>,
    tool_template: Option<Arc<ChatTemplate>>,
    grammars: Arc<GrammarCompiler>,
    /// The values of requests that set none.
    pub defaults: RequestDefaults,
    /// Facts that the server shows.
    pub description: ModelDescription,
}

impl OpenedModel {
    /// Opens a GGUF file or a Hugging Face folder.
    ///
    /// # Errors
    /// Returns the reason as a sentence if a file cannot be read or is damaged, or if the model or
    /// its vocabulary is not supported.
    pub fn open(path: &Path) -> Result<OpenedModel, String> {
        let model = Model::open(path).map_err(|error| error.to_string())?;
        let tokenizer = Arc::new(model.tokenizer().map_err(|error| error.to_string())?);
        let mut warnings = tokenizer.warnings().to_vec();

        // A model can serve completions without a template, so a wrong one is not fatal.
        let template = template(model.chat_template(), &mut warnings);
        let tool_template = template_for_tools(&model, &mut warnings);
        let grammars = GrammarCompiler::new(tokenizer.clone(), &model.outline)
            .map_err(|error| error.to_string())?;
        let config = GenerationConfig::for_model(&model).map_err(|error| error.to_string())?;
        warnings.extend(config.warning());
        let description = description(&model);
        Ok(OpenedModel {
            defaults: RequestDefaults {
                sampling: config.over(Sampling::default()),
                seed: None,
                max_tokens: None,
                template_variables: Map::new(),
            },
            model,
            tokenizer,
            warnings,
            template,
            tool_template,
            grammars: Arc::new(grammars),
            description,
        })
    }

    /// Replaces the chat templates by one that is not in the model's files. Errors name `path`.
    ///
    /// # Errors
    /// Returns the reason as a sentence if the template is not valid Jinja.
    pub fn set_template(&mut self, path: &Path, text: &str) -> Result<(), String> {
        let template = self
            .model
            .chat_template_from(path, text)
            .map_err(|error| error.to_string())?;
        // Any text is a template, for example a file of another kind that was named by mistake.
        if !template.mentions("messages") {
            self.warnings.push(format!(
                "{}: the chat template does not use `messages`, so every conversation has the same prompt",
                path.display()
            ));
        }
        let template = Arc::new(template);
        self.template = Some(Arc::clone(&template));
        self.tool_template = Some(template);
        Ok(())
    }

    /// Returns the model, served by a scheduler.
    pub fn serve(self, name: String, scheduler: Scheduler) -> ServedModel {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        ServedModel {
            name,
            created: now.map_or(0, |since| since.as_secs()),
            token_bound: self.tokenizer.token_bound(),
            tokenizer: self.tokenizer,
            template: self.template,
            tool_template: self.tool_template,
            grammars: self.grammars,
            stop: self.model.outline.stop,
            defaults: self.defaults.sampling,
            seed: self.defaults.seed,
            max_tokens: self.defaults.max_tokens,
            template_variables: self.defaults.template_variables,
            description: self.description,
            scheduler,
            adapters: None,
            adapter: None,
            literal: Arc::default(),
        }
    }
}

/// Returns the template for conversations with tools.
fn template_for_tools(model: &Model, warnings: &mut Vec<String>) -> Option<Arc<ChatTemplate>> {
    let mut repeated = vec![];
    let found = template(model.chat_template_with_tools(), &mut repeated);

    // Usually it is the same template, with the same problem.
    for warning in repeated {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    found
}

/// Returns a template, or turns its error into a warning. Each request sets the date of the day.
fn template(
    found: Result<Option<ChatTemplate>, warpwright_model::Error>,
    warnings: &mut Vec<String>,
) -> Option<Arc<ChatTemplate>> {
    match found {
        Ok(found) => found.map(Arc::new),
        Err(error) => {
            warnings.push(format!(
                "the chat template cannot be used, so the model serves no conversations: {error}"
            ));
            None
        }
    }
}

fn description(model: &Model) -> ModelDescription {
    let config = &model.outline.config;
    let totals = info::format_totals(&model.outline);
    let sizes = model.files.paths().into_iter().map(|path| {
        // A file that has just been opened has a size. Without one, the sum is only shown smaller.
        path.metadata().map_or(0, |metadata| metadata.len())
    });
    ModelDescription {
        path: model.files.path().display().to_string(),
        family: config.architecture.name.to_owned(),
        parameters: totals.values().map(|total| total.numbers).sum(),
        bytes: sizes.sum(),
        trained_ctx: config.context,
        vocab: config.vocab,
        hidden: config.hidden,
        engine: String::new(),
    }
}
