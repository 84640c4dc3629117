//! Tool calls: finds the functions that a model wants to call in the text of its reply.
//!
//! Each family of models was trained on its own format of calls, and its chat template writes the
//! calls of earlier turns in that format:
//!
//! - `probe` finds the format of a template, and `syntax` has a row for each format.
//! - `stream` reads a reply while it arrives. It also separates `thoughts` from text.
//! - `frame` has the text around a call, for grammars that force one.
//! - `body` (JSON), `python`, `marked` and `elements` (tags) read the text of calls.
//! - `readings` decides between several readings of a text with tags, and `foreign` has the text of
//!   the conversation that it needs for that.
//!
//! A wrong call is worse than a missing one, because a program acts on it. So the readers follow
//! two rules: a text that is not a call is never searched for another call, and a text with several
//! readings is reported as a problem.

mod body;
mod call;
mod context;
mod cursor;
mod elements;
mod foreign;
mod frame;
mod marked;
mod probe;
mod python;
mod readings;
pub(super) mod stream;
mod syntax;
mod thoughts;
mod tools;

pub use call::{ReplyPart, ToolCall};
pub(super) use foreign::ForeignText;
pub(super) use frame::CallFrame;
pub(super) use probe::formats;
pub use stream::{CallStream, ReplyEnd};
pub use syntax::ArgumentsForm;
pub(super) use syntax::CallFormats;
pub(super) use thoughts::ThoughtMarks;
pub use tools::Tools;
