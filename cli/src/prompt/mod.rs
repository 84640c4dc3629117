//! The text that a model reads: prompts, messages and chat templates.

pub(crate) mod limited;
pub(crate) mod message;
pub(crate) mod source;
pub(crate) mod template;
