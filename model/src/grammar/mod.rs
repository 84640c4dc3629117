//! Constrained decoding: restricts a reply to a JSON schema, a Lark grammar or a regular
//! expression.
//!
//! The crate [llguidance](https://github.com/guidance-ai/llguidance) parses the reply and decides
//! which bytes may follow. The modules here adapt it:
//!
//! - `tokens` describes the vocabulary of a model to it.
//! - `schema`, `references`, `excluded` and `spellings` check a JSON schema and change what it would
//!   read differently.
//! - `endless` rejects compiled grammars that a text could enter and never complete.
//! - `masks`, `plain` and `stays` find the allowed tokens faster than it does, with the same
//!   result.
//! - `fault` and `place` turn its error messages into sentences for the author of a grammar.
//! - `matcher` is the interface for a decoder: allowed tokens, forced tokens and the end of the
//!   text.

mod compiler;
mod costs;
mod endless;
mod excluded;
pub(crate) mod fault;
mod masks;
pub(crate) mod matcher;
mod place;
mod plain;
mod references;
mod schema;
mod spellings;
mod stays;
mod tokens;

pub(crate) use compiler::SPACE;
pub use compiler::{Grammar, GrammarCompiler, GrammarText};
pub use costs::{GrammarCosts, percentile};
pub use fault::GrammarFault;
pub use matcher::Matcher;
