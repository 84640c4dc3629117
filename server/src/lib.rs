//! A server for language models, over the protocols of OpenAI and Anthropic.
//!
//! ```text
//! http       connections, keys, limits, errors, metrics
//! protocol   JSON of each protocol <-> ReplyRequest, ReplyEvent
//! reply      conversation -> prompt; tokens -> text, reasoning, tool calls
//! scheduler  requests -> steps of a batch; owns the engine on one thread
//! engine     tokens -> tokens
//! ```
//!
//! Each layer knows only the ones below it.

#![forbid(unsafe_code)]

pub mod engine;
pub mod error;
pub mod http;
pub mod models;
pub mod protocol;
pub mod reply;
pub mod scheduler;
