//! Vector registers: `.reg .v4 .f32 v;` declares the registers `v.x`, `v.y`, `v.z` and `v.w`, and
//! `v` stands for all of them in braces.

use std::collections::HashMap;

use crate::syntax::ast::{DeclaredSpace, DeclaredVariable, RegisterName};
use crate::syntax::lexer::{PtxLexer, PtxToken};
use crate::syntax::parser::PtxParser;
use crate::syntax::{Parsed, error};

/// The maximum number of vectors with named elements in a text.
const MOST_VECTORS: usize = 1 << 16;

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
fn declared(lexer: &mut PtxLexer<'_>, names: &mut VectorNames) {
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

fn add(names: &mut VectorNames, name: String) {
    if names.len() < MOST_VECTORS {
        let elements = ["x", "y", "z", "w"].map(|part| format!("{name}.{part}"));
        names.insert(name, elements);
    }
}

/// A vector register, or a register without elements that hides one of an outer scope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector<'a> {
    name: &'a str,
    elements: &'a [String],
    depth: usize,
}

impl<'a> PtxParser<'a> {
    /// Returns the elements of a register if it is a vector here.
    pub(crate) fn vector(&self, name: &str) -> Option<&'a [String]> {
        let known = self.vectors.iter().rev().find(|v| v.name == name)?;
        (!known.elements.is_empty()).then_some(known.elements)
    }

    /// Removes the vectors of scopes deeper than `depth`.
    pub(crate) fn leave(&mut self, depth: usize) {
        self.vectors.retain(|v| v.depth <= depth);
    }

    /// Records registers of `size` elements each. Returns the declarations that replace the vector.
    pub(crate) fn split(
        &mut self,
        size: usize,
        names: Vec<RegisterName<'a>>,
    ) -> Parsed<Vec<RegisterName<'a>>> {
        let table = self.names;
        let mut split = Vec::new();
        for register in names {
            // The names of the elements must live as long as the tree, so they were created before
            // parsing.
            let own = |name: &str| table.get_key_value(name);
            let numbers = (0..register.count.unwrap_or(0)).map(|i| format!("{}{i}", register.name));
            let all: Vec<_> = match register.count {
                Some(_) => numbers.map_while(|name| own(&name)).collect(),
                None => own(register.name).into_iter().collect(),
            };
            if size > 1 && all.len() != register.count.unwrap_or(1) as usize {
                return error(
                    register.at,
                    format!("more than {MOST_VECTORS} registers that are vectors"),
                );
            }
            for (name, elements) in all {
                // A scalar register that hides a vector of an outer scope is recorded without
                // elements.
                let elements = if size > 1 { &elements[..size] } else { &[] };
                self.vectors.push(Vector {
                    name,
                    elements,
                    depth: self.depth,
                });
                split.extend(elements.iter().map(|name| RegisterName {
                    name,
                    at: register.at,
                    count: None,
                }));
            }
            if size == 1 {
                split.push(register);
            }
        }
        Ok(split)
    }

    /// Returns a register parameter, or the parameters for the elements of a vector.
    pub(crate) fn split_formal(
        &mut self,
        v: DeclaredVariable<'a>,
        size: usize,
    ) -> Vec<DeclaredVariable<'a>> {
        let Some((name, elements)) = self.names.get_key_value(v.name).filter(|_| size > 1) else {
            return vec![v];
        };
        self.vectors.push(Vector {
            name,
            elements: &elements[..size],
            depth: 1,
        });
        let element = |name: &'a String| DeclaredVariable {
            space: DeclaredSpace::Reg,
            ty: v.ty,
            vector: 1,
            name,
            at: v.at,
            align: 0,
            count: Some(1),
            array: false,
            external: false,
            init: Vec::new(),
        };
        elements[..size].iter().map(element).collect()
    }
}
