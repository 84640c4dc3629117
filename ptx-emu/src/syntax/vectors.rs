//! Vector registers: `.reg .v4 .f32 v;` declares the registers `v.x`, `v.y`, `v.z` and `v.w`, and
//! `v` stands for all of them in braces.

use crate::syntax::ast::{DeclaredSpace, DeclaredVariable, RegisterName};
use crate::syntax::parser::PtxParser;
use crate::syntax::vector_names::{MOST_VECTORS, Vector};
use crate::syntax::{Parsed, error};

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
