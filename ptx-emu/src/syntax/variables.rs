//! Variables and parameters: types, alignments, array sizes and initial values.

use crate::syntax::ast::*;
use crate::syntax::lexer::PtxToken;
use crate::syntax::parser::{PtxParser, space};
use crate::syntax::types::Type;
use crate::syntax::vector_names::{MOST_VECTORS, Vector};
use crate::syntax::{Parsed, error, unsupported};

/// The maximum number of dimensions of an array.
const MOST_DIMENSIONS: usize = 16;

/// The extent of a list of initial values.
struct Extent {
    /// The number of elements in the dimension of the list.
    elements: u64,
    /// The number of scalars in all elements, including the zeros between them.
    values: u64,
}

impl<'a> PtxParser<'a> {
    /// Parses the variables of a declaration that starts with a state space.
    pub(crate) fn variables(&mut self, external: bool) -> Parsed<Vec<DeclaredVariable<'a>>> {
        let PtxToken::Dot(word) = self.token else {
            return self.unexpected("a state space");
        };
        let Some(space) = space(word) else {
            return self.unexpected("a state space");
        };

        self.advance()?;
        if self.token == PtxToken::Mark('[') {
            self.bank()?;
        }

        let (ty, vector, align) = self.variable_type()?;
        let variables = self.list(|p| p.variable(space, ty, vector, align, external))?;
        self.expect(';')?;
        Ok(variables)
    }

    /// Parses attributes, an alignment and a type, for example `.align 16 .v4 .f32`.
    ///
    /// The type of a parameter may be followed by `.ptr .global .align 16`.
    pub(crate) fn variable_type(&mut self) -> Parsed<(Type, u32, u32)> {
        let mut align = 0;
        let mut vector = 1;
        let mut ty = None;
        while let PtxToken::Dot(word) = self.token {
            let at = self.at;
            if word == ".attribute" && ty.is_none() {
                self.attributes()?;
                continue;
            }

            self.advance()?;
            match word {
                ".align" if ty.is_none() => align = self.alignment()?,
                // The alignment of the memory that a pointer refers to is a promise of the caller.
                ".align" => _ = self.alignment()?,
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                ".ptr" | ".global" | ".shared" | ".const" | ".local" if ty.is_some() => {}
                // A reference contains the handle of a texture, surface or sampler.
                ".texref" | ".surfref" | ".samplerref" if ty.is_none() => ty = Some(Type::B64),
                _ => match Type::parse(word) {
                    Some(t) if ty.is_none() && t != Type::Pred => ty = Some(t),
                    _ => return error(at, format!("`{word}` is not a type of a variable")),
                },
            }
        }

        match ty {
            Some(ty) => Ok((ty, vector, align)),
            None => self.unexpected("a type such as .b32"),
        }
    }

    /// Parses `.attribute(.managed, .unified(1, 2))` of variables and functions.
    ///
    /// The emulator has one memory for the host and the devices, so all global memory is managed
    /// memory. No attribute changes what a kernel reads or writes.
    pub(crate) fn attributes(&mut self) -> Parsed<()> {
        while self.eat_dot(".attribute")? {
            self.expect('(')?;
            self.list(|p| {
                let at = p.at;
                let PtxToken::Dot(word) = p.token else {
                    return p.unexpected("an attribute such as .managed");
                };

                p.advance()?;
                match word {
                    ".managed" => Ok(()),
                    ".unified" => {
                        p.expect('(')?;
                        p.list(|p| p.int("half of a 128-bit identifier", u64::MAX))?;
                        p.expect(')')
                    }
                    _ => unsupported(at, format!("attribute `{word}`")),
                }
            })?;
            self.expect(')')?;
        }
        Ok(())
    }

    fn alignment(&mut self) -> Parsed<u32> {
        let at = self.at;
        let align = self.int("an alignment", 1 << 20)? as u32;
        if align.is_power_of_two() {
            Ok(align)
        } else {
            error(at, format!("alignment {align} is not a power of two"))
        }
    }

    pub(crate) fn variable(
        &mut self,
        space: DeclaredSpace,
        ty: Type,
        vector: u32,
        align: u32,
        external: bool,
    ) -> Parsed<DeclaredVariable<'a>> {
        let (name, at) = self.name("a variable name")?;
        if self.token == PtxToken::Mark('<') {
            return unsupported(at, format!("`{name}<..>`, a family of variables"));
        }

        let mut sizes: Vec<Option<u64>> = Vec::new();
        while self.eat('[')? {
            let at = self.at;
            let size = match self.token {
                // Only the first dimension may lack a size. It then comes from the initial values
                // or from the launch.
                PtxToken::Mark(']') if sizes.is_empty() => None,
                _ => match self.number()? {
                    Number::Int(n) if (0..=1 << 40).contains(&n) => Some(n as u64),
                    _ => return error(at, "an array size is an integer from 0 to 2^40"),
                },
            };
            sizes.push(size);
            self.expect(']')?;
            if sizes.len() > MOST_DIMENSIONS {
                return error(at, format!("more than {MOST_DIMENSIONS} dimensions"));
            }
        }

        let array = !sizes.is_empty();
        let init = if self.eat('=')? {
            self.initializer(&mut sizes, vector)?
        } else {
            Vec::new()
        };
        let count = sizes
            .iter()
            .try_fold(1, |count: u64, size| count.checked_mul((*size)?));
        let variable = DeclaredVariable {
            space,
            ty,
            vector,
            name,
            at,
            align,
            count,
            array,
            external,
            init,
        };
        self.declare_array(&variable);
        Ok(variable)
    }

    /// Parses `[2]` after `.const`, a bank of constants. All banks are one memory here.
    pub(crate) fn bank(&mut self) -> Parsed<()> {
        self.advance()?;
        self.int("a bank", 10)?;
        self.expect(']')
    }

    /// Parses the initial value of a variable, or the values of an array in one pair of braces per
    /// dimension.
    ///
    /// An array without a first size has as many elements as there are values.
    fn initializer(&mut self, sizes: &mut [Option<u64>], vector: u32) -> Parsed<Vec<Initial<'a>>> {
        let mut values = Vec::new();
        if self.is_description() {
            self.step_over('}');
            return Ok(values);
        }

        let mut dimensions: Vec<Option<u64>> = sizes.to_vec();
        if vector > 1 {
            dimensions.push(Some(vector.into()));
        }

        let extent = self.nested(&dimensions, &mut values)?;
        if let Some(size @ None) = sizes.first_mut() {
            *size = Some(extent.elements);
        }

        Ok(values)
    }

    /// Parses the values of the outermost of some dimensions. Zeros replace missing values, except
    /// at the end.
    fn nested(
        &mut self,
        dimensions: &[Option<u64>],
        values: &mut Vec<Initial<'a>>,
    ) -> Parsed<Extent> {
        let Some((size, inner)) = dimensions.split_first() else {
            values.push(self.initial()?);
            return Ok(Extent {
                elements: 1,
                values: 1,
            });
        };

        // Only the first size may be missing. The product of the others is the size of an element.
        let each = inner
            .iter()
            .try_fold(1, |each: u64, size| each.checked_mul((*size)?))
            .unwrap_or(u64::MAX);
        self.expect('{')?;
        let mut extent = Extent {
            elements: 0,
            values: 0,
        };
        if self.eat('}')? {
            return Ok(extent);
        }

        let mut missing = 0;
        loop {
            if size.is_some_and(|size| extent.elements >= size) {
                return error(
                    self.at,
                    format!("more initial values than the {} elements", extent.elements),
                );
            }

            if missing > 0 {
                values.push(Initial::Zeros(missing));
            }

            let found = self.nested(inner, values)?;
            extent.values = extent
                .values
                .saturating_add(missing)
                .saturating_add(found.values);
            extent.elements += 1;
            missing = each.saturating_sub(found.values);
            if !self.eat(',')? {
                self.expect('}')?;
                return Ok(extent);
            }
        }
    }

    /// Returns true if the properties of a texture or sampler are next: `{ width = 4, filter_mode =
    /// linear }`.
    fn is_description(&self) -> bool {
        let rest = self.lexer.text().get(self.at as usize..).unwrap_or("");
        let Some(rest) = rest.strip_prefix('{') else {
            return false;
        };
        let name = rest
            .trim_start()
            .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        name.trim_start().starts_with('=')
    }

    /// Parses a number, an address such as `a`, `a+8` or `generic(a)+8`, or one byte of it:
    /// `0xff00(a)`.
    fn initial(&mut self) -> Parsed<Initial<'a>> {
        match self.token {
            _ if self.at_constant() => self.number_or_byte(),
            PtxToken::Name(_) => self.address_of(u64::MAX),
            _ => self.unexpected("a value"),
        }
    }

    fn number_or_byte(&mut self) -> Parsed<Initial<'a>> {
        let at = self.at;
        let number = self.number()?;
        if !self.eat('(')? {
            return Ok(Initial::Number(number));
        }
        let Number::Int(mask) = number else {
            return error(at, "a mask is an integer");
        };
        let Ok(mask) = u64::try_from(mask) else {
            return error(at, "a mask is a positive integer");
        };

        let address = self.address_of(mask)?;
        self.expect(')')?;
        Ok(address)
    }

    /// Parses `name` or `generic(name)`, optionally with an offset.
    fn address_of(&mut self, mask: u64) -> Parsed<Initial<'a>> {
        let (mut name, mut at) = self.name("a variable or function")?;
        let mut offset = 0;
        if name == "generic" && self.eat('(')? {
            (name, at) = self.name("a variable or function")?;
            offset = self.added()?;
            self.expect(')')?;
        }

        let offset = self.added()?.wrapping_add(offset);
        Ok(Initial::Address {
            name,
            at,
            offset,
            mask,
        })
    }

    fn added(&mut self) -> Parsed<i64> {
        if matches!(self.token, PtxToken::Mark('+' | '-')) {
            self.offset()
        } else {
            Ok(0)
        }
    }
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
