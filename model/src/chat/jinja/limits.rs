//! Limits of a text and of nesting.

/// The maximum length of a text in bytes.
pub(super) const LONGEST: usize = 64 << 20;

/// The maximum nesting of a value that is written or compared.
pub(super) const DEEPEST_VALUE: usize = 200;

/// The maximum nesting of expressions and statements in a template.
pub(super) const DEEPEST_SYNTAX: usize = 1000;

/// The maximum nesting of calls and expressions at run time, for which the stack of a rendering
/// thread is large enough.
pub(super) const DEEPEST_RUN: usize = 10_000;
