//! Chat templates: from messages to the text that a model was trained on.
//!
//! A model's files carry the template, in the language Jinja, for Python. It is rendered as
//! transformers renders it (`_compile_jinja_template` in `utils/chat_template_utils.py`): with
//! `trim_blocks`, `lstrip_blocks`, loop controls, `tojson` as Python's `json.dumps`,
//! `raise_exception`, `strftime_now`, and `{% generation %}` around replies.

mod bounded;
mod calls;
mod jinja;
mod source;
mod template;
mod value;

pub use calls::{CallStream, Part, ReplyEnd, ToolCall, Tools};
pub use jiff::civil::Date;
pub use template::{ChatTemplate, Conversation, Rendered, Then, today};
pub use value::{Serde, Value};

use std::path::Path;

use crate::Error;
use crate::model::Model;

impl Model {
    /// The chat template of the model's files, if there is one.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, and a template that is no Jinja.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        self.template_named(&[source::DEFAULT])
    }

    /// The chat template for conversations with tools: the one that is named `tool_use`, if the
    /// files have several.
    ///
    /// # Errors
    ///
    /// As [`chat_template`](Model::chat_template).
    pub fn chat_template_with_tools(&self) -> Result<Option<ChatTemplate>, Error> {
        self.template_named(&[source::TOOL_USE, source::DEFAULT])
    }

    /// The first of these names that there is.
    fn template_named(&self, names: &[&str]) -> Result<Option<ChatTemplate>, Error> {
        let Some(found) = source::of(&self.files, names)? else {
            return Ok(None);
        };
        ChatTemplate::compiled(&found.text, found.special)
            .map(Some)
            .map_err(|problem| Error::ChatTemplate {
                path: found.path,
                problem,
            })
    }

    /// A template that is not of the model's files, with the spellings of the model's tokens.
    /// `path` is for errors.
    ///
    /// # Errors
    ///
    /// As [`chat_template`](Model::chat_template).
    pub fn chat_template_from(&self, path: &Path, text: &str) -> Result<ChatTemplate, Error> {
        let special = source::special(&self.files)?;
        ChatTemplate::compiled(text, special).map_err(|problem| Error::ChatTemplate {
            path: path.to_owned(),
            problem,
        })
    }
}
