//! Grammars: what a text may be, as a JSON schema, a grammar in Lark's form or a regular expression, and which tokens may
//! come next in it.
//!
//! The library `llguidance` parses; it sees tokens as bytes. Of this crate's own is what it is told of a vocabulary
//! (`tokens`), how its tokens are tried (`masks`, `plain`, `stays`), what its errors say to whoever wrote a grammar (`fault`,
//! `place`), and the small face that a decoder needs (`matcher`): the tokens that are allowed, those that are forced, and
//! where the text ends.

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

pub use compiler::{Grammar, GrammarCompiler, GrammarText};
pub use costs::{Costs, percentile};
pub use fault::Fault;
pub use matcher::Matcher;
