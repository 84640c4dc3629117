//! Values for requests that come from the command line instead of the model's files.

use std::path::PathBuf;

use super::opened::OpenedModel;

/// Values for requests that set none. Those that are absent come from the model's files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestOverrides {
    /// The temperature.
    pub temperature: Option<f64>,
    /// The number of most likely tokens to keep.
    pub top_k: Option<u32>,
    /// The probability mass to keep.
    pub top_p: Option<f64>,
    /// The minimum relative probability.
    pub min_p: Option<f64>,
    /// The seed, or `None` for a new one for each request.
    pub seed: Option<u64>,
    /// The maximum number of tokens of a reply. It limits every request.
    pub max_tokens: Option<u32>,
    /// The chat template instead of the model's.
    pub template: Option<LoadedTemplate>,
}

/// A chat template that is not in the model's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedTemplate {
    /// The file, for errors.
    pub path: PathBuf,
    /// The text.
    pub text: String,
}

impl RequestOverrides {
    /// Changes the values of a model.
    ///
    /// # Errors
    /// Returns the reason if a value is out of range, or if the template is not valid Jinja.
    pub(super) fn apply(&self, model: &mut OpenedModel) -> Result<(), String> {
        let defaults = &mut model.defaults;
        let sampling = &mut defaults.sampling;
        sampling.temperature = self.temperature.unwrap_or(sampling.temperature);
        sampling.top_k = self.top_k.unwrap_or(sampling.top_k);
        sampling.top_p = self.top_p.unwrap_or(sampling.top_p);
        sampling.min_p = self.min_p.unwrap_or(sampling.min_p);
        defaults.seed = self.seed;
        defaults.max_tokens = self.max_tokens;
        let vocab = model.model.outline.config.vocab;
        sampling.check(vocab).map_err(|error| error.to_string())?;
        if let Some(template) = &self.template {
            model.set_template(&template.path, &template.text)?;
        }
        Ok(())
    }
}
