//! Functions of CUDA's device runtime (`libcudadevrt`) that compilers declare and call for the grid
//! barrier.
//!
//! If a text declares such a function without defining it, its definition is appended. The
//! definitions do the same as the inline code of the cooperative groups headers since CUDA 11. The
//! blocks count in the workspace of the grid, whose highest bit flips when the last block has
//! arrived.

use std::borrow::Cow;

use crate::syntax::{ast, parser, vector_names};

/// The definitions in PTX, by name.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        "cudaCGGetIntrinsicHandle",
        include_str!("device_runtime/handle.ptx"),
    ),
    (
        "cudaCGSynchronize",
        include_str!("device_runtime/synchronize.ptx"),
    ),
];

/// Returns the text with the definitions that it needs.
pub(crate) fn linked(text: &str) -> Cow<'_, str> {
    if !FUNCTIONS.iter().any(|(name, _)| text.contains(name)) {
        return Cow::Borrowed(text);
    }

    let names = vector_names::names(text);

    // The errors are reported when the text is parsed again.
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

    // Definitions are appended, so that the lines of the text keep their numbers.
    let mut linked = text.to_string();
    for (_, definition) in needed {
        linked.push('\n');
        linked.push_str(definition);
    }

    Cow::Owned(linked)
}
