//! Chat templates: from messages to the text that a model was trained on.
//!
//! A model's files carry the template, in the language Jinja, as transformers renders it
//! (`_compile_jinja_template` in `utils/chat_template_utils.py`): `trim_blocks`, `lstrip_blocks`, loop controls, `tojson`
//! as Python's `json.dumps`, `raise_exception`, `strftime_now`, Python's methods of strings and dictionaries, and
//! `{% generation %}` around what the assistant says.

mod json;
mod source;
mod tags;
mod template;

pub use jiff::civil::Date;
pub use minijinja::Value;
pub use template::{ChatTemplate, Conversation, Rendered, Then, today};

use crate::Error;
use crate::model::Model;

impl Model {
    /// The chat template of the model's files, if there is one.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, and a template that is no Jinja.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        let Some(found) = source::of(&self.files)? else { return Ok(None) };
        ChatTemplate::compiled(&found.text, found.special)
            .map(Some)
            .map_err(|problem| Error::ChatTemplate { path: found.path, problem })
    }
}
