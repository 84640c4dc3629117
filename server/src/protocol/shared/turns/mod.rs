//! The turns of a conversation, built from the smaller pieces that some protocols send.
//!
//! The Messages API sends a turn as blocks, and the Responses API as items: a text, a tool call and
//! a piece of reasoning are separate. Agents also send several messages of the user in a row, and
//! instructions after the first message. Chat templates know whole turns only, and many of them
//! refuse two turns of the same role.

mod builder;
mod later_system;

pub use builder::Turns;
pub use later_system::{fit_chat, fit_later_system};
