//! Vector registers: `.reg .v4 .f32 v;` declares the registers `v.x`, `v.y`, `v.z` and `v.w`, and
//! `v` stands for all of them in braces.
//!
//! The names of the elements are collected before the text is parsed, because the syntax tree
//! borrows them.

use std::collections::HashMap;

use crate::syntax::lexer::{PtxLexer, PtxToken};

/// The maximum number of vectors with named elements in a text.
pub(crate) const MOST_VECTORS: usize = 1 << 16;

/// The names of the elements of all registers that a text declares as vectors in some scope.
pub(crate) type VectorNames = HashMap<String, [String; 4]>;

/// Returns the index of an element: `.x` and `.r` are the first.
pub(crate) fn element(part: &str) -> Option<usize> {
    [".x", ".y", ".z", ".w"]
        .iter()
        .position(|p| *p == part)
        .or_else(|| [".r", ".g", ".b", ".a"].iter().position(|p| *p == part))
}

/// Returns the number of elements of a vector type.
pub(crate) fn size(word: &str) -> Option<usize> {
    match word {
        ".v2" => Some(2),
        ".v4" => Some(4),
        _ => None,
    }
}

/// Returns all declarations of vectors in a text.
pub(crate) fn names(text: &str) -> VectorNames {
    let mut names = VectorNames::new();
    if !text.contains(".v2") && !text.contains(".v4") {
        return names;
    }

    let mut lexer = PtxLexer::new(text);
    let mut before = PtxToken::End;
    loop {
        let (token, _) = lexer.next(&mut Vec::new());
        match token {
            PtxToken::End => return names,
            PtxToken::Dot(word) if before == PtxToken::Dot(".reg") && size(word).is_some() => {
                declared(&mut lexer, &mut names);
            }
            _ => {}
        }
        before = token;
    }
}

/// Collects the names of a declaration up to its end.
pub(crate) fn declared(lexer: &mut PtxLexer<'_>, names: &mut VectorNames) {
    let mut name = None;
    loop {
        match lexer.next(&mut Vec::new()).0 {
            PtxToken::Mark(';' | ')') | PtxToken::End => return,
            PtxToken::Name(next) => {
                name = Some(next);
                add(names, next.to_string());
            }
            PtxToken::Number(crate::syntax::ast::Number::Int(count)) => {
                let numbered = |i| Some(format!("{}{i}", name?));
                for name in (0..count).map_while(numbered).take(MOST_VECTORS) {
                    add(names, name);
                }
            }
            _ => {}
        }
    }
}

pub(crate) fn add(names: &mut VectorNames, name: String) {
    if names.len() < MOST_VECTORS {
        let elements = ["x", "y", "z", "w"].map(|part| format!("{name}.{part}"));
        names.insert(name, elements);
    }
}

/// A vector register, or a register without elements that hides one of an outer scope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector<'a> {
    pub(crate) name: &'a str,
    pub(crate) elements: &'a [String],
    pub(crate) depth: usize,
}
