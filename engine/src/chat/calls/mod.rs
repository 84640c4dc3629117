//! Calls of tools: what a model writes when it wants a function to be called, found again in its text.
//!
//! Each family of models was trained on a way of its own to write a call, and its chat template writes the calls of
//! earlier turns in that way. So the template says which way it is: `syntax` has for each the text in the template that
//! tells it, and what opens and closes calls in a reply. The ways are those that the templates of published models show.

mod body;
mod call;
mod elements;
pub(super) mod stream;
mod syntax;
mod tools;

pub use call::ToolCall;
pub use stream::{CallStream, Part};
pub(super) use syntax::{Syntax, told};
pub use tools::Tools;
