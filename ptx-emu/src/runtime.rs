//! Functions of CUDA's device runtime (`libcudadevrt`) that compilers declare and call: the barrier of a grid.
//!
//! A text that declares them and defines none gets their definitions behind it. They do what the headers of cooperative
//! groups do since CUDA 11 without a call: blocks count in the workspace of the grid, whose highest bit turns over when
//! the last one has come.

use std::borrow::Cow;

use crate::parse::{ast, parser, vectors};

/// The functions, by name.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        "cudaCGGetIntrinsicHandle",
        include_str!("runtime/handle.ptx"),
    ),
    ("cudaCGSynchronize", include_str!("runtime/synchronize.ptx")),
];

/// The text, with what it needs of the runtime.
pub(crate) fn linked(text: &str) -> Cow<'_, str> {
    if !FUNCTIONS.iter().any(|(name, _)| text.contains(name)) {
        return Cow::Borrowed(text);
    }
    let names = vectors::names(text);
    let Ok(module) = parser::parse(text, &names) else {
        return Cow::Borrowed(text);
    };
    let found = |name: &str, defined| {
        let functions: &[ast::Entry<'_>] = &module.functions;
        functions
            .iter()
            .any(|f| f.name == name && f.defined == defined)
    };
    let needed = FUNCTIONS
        .iter()
        .filter(|(name, _)| found(name, false) && !found(name, true));
    let mut linked = text.to_string();
    needed.for_each(|(_, definition)| {
        linked.push('\n');
        linked.push_str(definition);
    });
    Cow::Owned(linked)
}
