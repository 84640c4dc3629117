//! Chat templates: turn the messages of a conversation into the text that a model was trained on.
//!
//! A model's files contain the template in the language Jinja, written for Python. It is rendered
//! as transformers renders it (`_compile_jinja_template` in `utils/chat_template_utils.py`): with
//! `trim_blocks`, `lstrip_blocks`, loop controls, `tojson` like Python's `json.dumps`,
//! `raise_exception`, `strftime_now`, and `{% generation %}` around replies.
//!
//! The other direction is [`ChatTemplate::calls`], which finds tool calls in the text of a reply.

mod bounded;
mod calls;
mod jinja;
mod renderer;
mod reply_grammar;
mod source;
mod template;
mod value;

pub use calls::{ArgumentsForm, CallStream, ReplyEnd, ReplyPart, ToolCall, Tools};
pub use jiff::civil::Date;
pub use renderer::{Conversation, Rendered, Then};
pub use reply_grammar::{AnswerForm, CallCount, CallForms, ReplyForms, ReplyFrame};
pub use template::{ChatTemplate, today};
pub use value::{Serde, Value};

use std::path::Path;

use crate::Error;
use crate::Model;

impl Model {
    /// Returns the chat template of the model's files, if there is one.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the template is not valid Jinja.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        self.template_named(&[source::DEFAULT])
    }

    /// Returns the chat template for conversations with tools. If the files have several templates,
    /// it is the one with the name `tool_use`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the template is not valid Jinja.
    pub fn chat_template_with_tools(&self) -> Result<Option<ChatTemplate>, Error> {
        self.template_named(&[source::TOOL_USE, source::DEFAULT])
    }

    /// Returns the template with the first of these names that exists.
    fn template_named(&self, names: &[&str]) -> Result<Option<ChatTemplate>, Error> {
        let Some(found) = source::find(&self.files, names)? else {
            return Ok(None);
        };
        ChatTemplate::compiled(&found.text, found.special)
            .map(Some)
            .map_err(|problem| Error::ChatTemplate {
                path: found.path,
                problem,
            })
    }

    /// Compiles a template that is not in the model's files, with the spellings of the model's
    /// tokens. Errors name `path`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the template is not valid Jinja.
    pub fn chat_template_from(&self, path: &Path, text: &str) -> Result<ChatTemplate, Error> {
        let special = source::special(&self.files)?;
        ChatTemplate::compiled(text, special).map_err(|problem| Error::ChatTemplate {
            path: path.to_owned(),
            problem,
        })
    }
}
