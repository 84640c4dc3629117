//! Completions of texts.

mod call;
pub(super) mod endpoint;
pub(super) mod prompts;
mod response;
mod stream;

pub use call::{CompletionBody, CompletionCall, Echo, TextCompletionRequest, completion_call};
pub use response::{Completion, CompletionChoice, CompletionCollector, CompletionTexts};
pub use stream::CompletionStream;
