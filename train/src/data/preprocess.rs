//! What lines of a file become tokens by.

use warpwright_engine::Tokenizer;
use warpwright_engine::chat::ChatTemplate;

/// What makes tokens of a line.
#[derive(Clone, Copy, Debug)]
pub struct Preprocess<'a> {
    /// The model's.
    pub tokenizer: &'a Tokenizer,
    /// The model's, if it has one: for conversations.
    pub template: Option<&'a ChatTemplate>,
    /// No sample becomes longer than so many tokens.
    pub len: usize,
    /// Whether prompts are learned too.
    pub train_on_prompt: bool,
}
