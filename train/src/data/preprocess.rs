//! The parameters by which lines of a file become tokens.

use warpwright_model::Tokenizer;
use warpwright_model::chat::ChatTemplate;

/// The parameters by which lines of a file become tokens.
#[derive(Clone, Copy, Debug)]
pub struct Preprocess<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The model's chat template, if it has one. Conversations need it.
    pub template: Option<&'a ChatTemplate>,
    /// The maximum number of tokens per sample. Longer samples are cut.
    pub len: usize,
    /// Whether prompts are learned too.
    pub train_on_prompt: bool,
}
