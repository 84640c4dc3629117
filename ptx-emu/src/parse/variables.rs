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
        if self.token == Token::Mark('[') {
            self.bank()?;
        }
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
                // What a reference holds is the handle of a texture, surface or sampler.
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
                    let at = self.at;
                    let n = match self.number()? {
                        Number::Int(n) if (0..=1 << 40).contains(&n) => n as u64,
                        _ => return error(at, "an array size is an integer from 0 to 2^40"),
                    };
                    count.and_then(|c: u64| c.checked_mul(n))
                }
            };
            self.expect(']')?;
        }
        let init = if self.eat('=')? { self.initialiser()? } else { Vec::new() };
        if count.is_none() && !init.is_empty() {
            count = Some(init.len() as u64 / u64::from(vector));
        }
        Ok(Variable { space, ty, vector, name, at, align, count, array, external, init })
    }

    /// `[2]` behind `.const`: a bank of constants, which all lie in one here.
    pub(super) fn bank(&mut self) -> Parsed<()> {
        self.advance()?;
        self.int("a bank", 10)?;
        self.expect(']')
    }

    /// A value, or values in braces nested one or two deep; the shape is not kept.
    fn initialiser(&mut self) -> Parsed<Vec<Initial<'a>>> {
        let (mut depth, mut values) = (0, Vec::new());
        if self.is_description() {
            self.step_over('}');
            return Ok(values);
        }
        loop {
            match self.token {
                Token::Mark('{') => depth += 1,
                Token::Mark('}') if depth > 0 => depth -= 1,
                Token::Mark(',') if depth > 0 => {}
                _ => {
                    values.push(self.initial()?);
                    if depth == 0 {
                        return Ok(values);
                    }
                    continue;
                }
            }
            self.advance()?;
            if depth == 0 {
                return Ok(values);
            }
        }
    }

    /// Whether the properties of a texture or sampler come next: `{ width = 4, filter_mode = linear }`.
    fn is_description(&self) -> bool {
        let rest = self.lexer.text().get(self.at as usize..).unwrap_or("");
        let Some(rest) = rest.strip_prefix('{') else { return false };
        let name = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        name.trim_start().starts_with('=')
    }

    /// A number, an address such as `a`, `a+8` or `generic(a)+8`, or one byte of it: `0xff00(a)`.
    fn initial(&mut self) -> Parsed<Initial<'a>> {
        match self.token {
            Token::Name(_) => self.address_of(u64::MAX),
            Token::Number(_) | Token::Mark('-' | '~' | '!' | '(') => self.number_or_byte(),
            _ => self.unexpected("a value"),
        }
    }

    fn number_or_byte(&mut self) -> Parsed<Initial<'a>> {
        let at = self.at;
        let number = self.number()?;
        if !self.eat('(')? {
            return Ok(Initial::Number(number));
        }
        let Number::Int(mask) = number else { return error(at, "a mask is an integer") };
        let Ok(mask) = u64::try_from(mask) else { return error(at, "a mask is a positive integer") };
        let address = self.address_of(mask)?;
        self.expect(')')?;
        Ok(address)
    }

    /// `name`, `generic(name)`, each with an offset or without.
    fn address_of(&mut self, mask: u64) -> Parsed<Initial<'a>> {
        let (mut name, mut at) = self.name("a variable or function")?;
        let mut offset = 0;
        if name == "generic" && self.eat('(')? {
            (name, at) = self.name("a variable or function")?;
            offset = self.added()?;
            self.expect(')')?;
        }
        let offset = self.added()?.wrapping_add(offset);
        Ok(Initial::Address { name, at, offset, mask })
    }

    fn added(&mut self) -> Parsed<i64> {
        if matches!(self.token, Token::Mark('+' | '-')) { self.offset() } else { Ok(0) }
    }
}
