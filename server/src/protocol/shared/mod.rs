//! Pieces that several protocols use: lenient JSON, texts in parts, server-sent events, ids.

mod body;
mod content;
mod history;
mod id;
mod ranges;
mod refused;
mod sse;
mod whole;

pub use body::Body;
pub use content::{Content, Joint, TextPart};
pub use history::{call_arguments, name_answers};
pub use id::{random_id, unix_seconds};
pub use ranges::{number_in, whole_in};
pub use refused::{Refused, Unless};
pub use sse::{SseEvent, sse_response};
pub use whole::Whole;
