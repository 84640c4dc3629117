//! Values for requests that come from the command line instead of the model's files.

use std::path::PathBuf;

use serde_json::{Map, Value};

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
    /// Variables of the chat template. A request overrides each of them.
    pub template_variables: Map<String, Value>,
}

/// The inputs of a chat template that are not variables, with the reasons.
pub(crate) const TEMPLATE_INPUTS: [(&str, &str); 4] = [
    ("messages", "it is the conversation itself"),
    ("tools", "use the field tools"),
    ("documents", "documents are not supported"),
    (
        "add_generation_prompt",
        "a last message of the assistant is continued, and any other one is answered",
    ),
];

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
    /// Returns the reason if a value is out of range, if the template is not valid Jinja, or if a
    /// variable is an input of the template.
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
        for (name, instead) in TEMPLATE_INPUTS {
            if self.template_variables.contains_key(name) {
                return Err(format!(
                    "the template variable {name} cannot be set: {instead}"
                ));
            }
        }
        defaults.template_variables = self.template_variables.clone();
        if let Some(template) = &self.template {
            model.set_template(&template.path, &template.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn inputs_of_a_template_are_no_variables() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../assets/rustdoc-7m-Q4_K_M.gguf"
        );
        let mut model = OpenedModel::open(Path::new(file)).unwrap();
        let overrides = RequestOverrides {
            template_variables: Map::from_iter([("tools".to_owned(), json!([]))]),
            ..RequestOverrides::default()
        };
        assert_eq!(
            overrides.apply(&mut model).unwrap_err(),
            "the template variable tools cannot be set: use the field tools"
        );
    }
}
