//! Pieces that several protocols use: lenient JSON, texts in parts, server-sent events, ids.

mod body;
mod content;
mod format;
mod gbnf;
mod history;
mod prompt_schema;
mod ranges;
mod refused;
mod sampling;
mod sse;
mod text_or;
mod texts;
mod turns;
mod whole;
mod written;

pub use crate::id::{random_id, random_salt, unix_seconds};
pub use body::Body;
pub use content::{Content, Joint, TextPart};
pub use format::{
    FormatRequest, NamedSchema, ResponseFormat, StructuredOutputs, any_object, json_schema,
};
pub use history::{call_arguments, name_answers};
pub use prompt_schema::{prompts_schema, text_prompt_schema};
pub use ranges::{number_in, whole_in};
pub use refused::{Refused, Unless};
pub use sampling::{REFUSED_SAMPLING, SamplingRequest};
pub use sse::{SseEvent, sse_response};
pub use text_or::TextOr;
pub use texts::Texts;
pub use turns::{Turns, fit_chat, fit_later_system};
pub use whole::Whole;
pub use written::{StreamWriter, written};
