//! Variables and parameters: types, alignments, array sizes and initial values.

use super::ast::*;
use super::lexer::Token;
use super::parser::{Parser, space};
use super::types::Type;
use super::{Parsed, error};

impl<'a> Parser<'a> {
    pub(super) fn variables(&mut self, external: bool) -> Parsed<Vec<Variable<'a>>> {
        let Token::Dot(word) = self.token else { return self.unexpected("a state space") };
        let Some(space) = space(word) else { return self.unexpected("a state space") };
        self.advance()?;
        let (ty, vector, align) = self.variable_type()?;
        let variables = self.list(|p| p.variable(space, ty, vector, align, external))?;
        self.expect(';')?;
        Ok(variables)
    }

    /// `.align 16 .v4 .f32`, and for parameters `.ptr .global .align 16` after the type.
    pub(super) fn variable_type(&mut self) -> Parsed<(Type, u32, u32)> {
        let (mut align, mut vector, mut ty) = (0, 1, None);
        while let Token::Dot(word) = self.token {
            let at = self.at;
            self.advance()?;
            match word {
                ".align" if ty.is_none() => align = self.alignment()?,
                // The alignment of what a pointer points to is a promise of the caller.
                ".align" => _ = self.alignment()?,
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                ".ptr" | ".global" | ".shared" | ".const" | ".local" if ty.is_some() => {}
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

    fn alignment(&mut self) -> Parsed<u32> {
        let at = self.at;
        let align = self.int("an alignment", 1 << 20)? as u32;
        if align.is_power_of_two() {
            Ok(align)
        } else {
            error(at, format!("alignment {align} is not a power of two"))
        }
    }

    pub(super) fn variable(
        &mut self,
        space: StateSpace,
        ty: Type,
        vector: u32,
        align: u32,
        external: bool,
    ) -> Parsed<Variable<'a>> {
        let (name, at) = self.name("a variable name")?;
        let (mut count, mut array) = (Some(1), false);
        while self.eat('[')? {
            array = true;
            count = match self.token {
                Token::Mark(']') => None,
                _ => {
                    let n = self.int("an array size", 1 << 40)?;
                    count.and_then(|c: u64| c.checked_mul(n))
                }
            };
            self.expect(']')?;
        }
        let init = if self.eat('=')? { self.initialiser()? } else { Vec::new() };
        Ok(Variable { space, ty, vector, name, at, align, count, array, external, init })
    }

    /// A number, or numbers in braces nested one or two deep; the shape is not kept.
    fn initialiser(&mut self) -> Parsed<Vec<Number>> {
        let (mut depth, mut values) = (0, Vec::new());
        loop {
            match self.token {
                Token::Mark('{') => depth += 1,
                Token::Mark('}') if depth > 0 => depth -= 1,
                Token::Mark(',') if depth > 0 => {}
                Token::Number(_) | Token::Mark('-') => {
                    values.push(self.number()?);
                    if depth == 0 {
                        return Ok(values);
                    }
                    continue;
                }
                Token::Name(_) => return error(self.at, "unsupported in ptx-emu: addresses in initialisers"),
                _ => return self.unexpected("a value"),
            }
            self.advance()?;
            if depth == 0 {
                return Ok(values);
            }
        }
    }
}
