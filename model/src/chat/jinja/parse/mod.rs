//! The text of a template becomes a tree.

pub(super) mod escapes;
pub(super) mod lexer;
pub(super) mod parser;
pub(super) mod symbols;
pub(super) mod syntax;
