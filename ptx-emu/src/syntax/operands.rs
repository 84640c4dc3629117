//! Operands of an instruction: registers, literals, vectors and addresses.

use crate::syntax::ast::*;
use crate::syntax::lexer::PtxToken;
use crate::syntax::parser::PtxParser;
use crate::syntax::vector_names::element;
use crate::syntax::{At, Parsed, error, unsupported};

/// The maximum number of elements of a vector operand, which the accumulators of `wgmma` need.
const MOST_VECTOR: usize = 128;

impl<'a> PtxParser<'a> {
    pub(crate) fn operand(&mut self) -> Parsed<ParsedOperand<'a>> {
        let at = self.at;
        let kind = match self.token {
            PtxToken::Mark('{') => {
                self.advance()?;
                let elements = self.list(Self::scalar)?;
                self.expect('}')?;
                if elements.len() > MOST_VECTOR {
                    return error(
                        at,
                        format!(
                            "a vector of {} elements, at most {MOST_VECTOR}",
                            elements.len()
                        ),
                    );
                }

                if self.eat('|')? {
                    OperandKind::Resident(elements, self.name("a predicate")?.0)
                } else {
                    OperandKind::Vector(elements)
                }
            }
            PtxToken::Mark('[') => {
                self.advance()?;
                self.address()?
            }
            _ => return self.scalar(),
        };
        Ok(ParsedOperand { at, kind })
    }

    /// Parses an operand of a call, which may be a list of arguments or results in parentheses.
    pub(crate) fn call_operand(&mut self) -> Parsed<ParsedOperand<'a>> {
        let at = self.at;
        if !self.eat('(')? {
            return self.operand();
        }
        let kind = OperandKind::List(self.passed()?);
        Ok(ParsedOperand { at, kind })
    }

    /// Parses the arguments of a call up to the closing parenthesis. A vector stands for its
    /// elements.
    fn passed(&mut self) -> Parsed<Vec<ParsedOperand<'a>>> {
        if self.eat(')')? {
            return Ok(Vec::new());
        }

        let mut passed = Vec::new();
        for operand in self.list(Self::scalar)? {
            match operand.kind {
                OperandKind::Vector(elements) => passed.extend(elements),
                _ => passed.push(operand),
            }
        }

        self.expect(')')?;
        Ok(passed)
    }

    fn address(&mut self) -> Parsed<OperandKind<'a>> {
        let base = match self.token {
            PtxToken::Name(name) => {
                self.advance()?;
                Some(name)
            }
            _ => None,
        };
        let offset = if base.is_none() || !matches!(self.token, PtxToken::Mark(']' | ',')) {
            self.offset()?
        } else {
            0
        };
        if self.token == PtxToken::Mark(',') {
            // `[map, {x, y}]` selects a tensor map or texture with coordinates.
            let Some(map) = base.filter(|_| offset == 0) else {
                return error(self.at, "the address of a tensor map is a register");
            };

            self.advance()?;
            let coordinates = self.operand()?;
            if self.token == PtxToken::Mark(',') {
                return unsupported(coordinates.at, "a texture and a sampler as two operands");
            }

            self.expect(']')?;
            return match coordinates.kind {
                OperandKind::Vector(coordinates) => Ok(OperandKind::Tensor(map, coordinates)),
                OperandKind::Name(_) | OperandKind::Number(_) => {
                    Ok(OperandKind::Tensor(map, vec![coordinates]))
                }
                _ => error(coordinates.at, "coordinates in braces were expected"),
            };
        }

        self.expect(']')?;
        Ok(OperandKind::Address(base, offset))
    }

    /// Parses an offset: `+4`, `-4`, `+-4` or `4`.
    ///
    /// ptxas 13.5 rejects `-4` after a name, which older versions of other tools print.
    pub(crate) fn offset(&mut self) -> Parsed<i64> {
        self.eat('+')?;
        let at = self.at;
        match self.number()? {
            // A constant that needs all 64 bits wraps around, as addresses do.
            Number::Int(n) => Ok(n as i64),
            Number::F32(_) | Number::F64(_) => error(at, "an offset is an integer"),
        }
    }

    fn scalar(&mut self) -> Parsed<ParsedOperand<'a>> {
        let at = self.at;
        if self.at_constant() {
            return Ok(ParsedOperand {
                at,
                kind: OperandKind::Number(self.number()?),
            });
        }

        let kind = match self.token {
            PtxToken::Mark('!') => {
                self.advance()?;
                OperandKind::Not(self.name("a predicate")?.0)
            }
            PtxToken::Mark('-') => {
                self.advance()?;
                let (name, at) = self.name("a register")?;
                match self.after_name(name, at)? {
                    OperandKind::Name(name) => OperandKind::Negative(name),
                    _ => return error(at, "`-` in front of an operand takes a register"),
                }
            }
            PtxToken::Name("_") => {
                self.advance()?;
                // `_|p` discards the first result and keeps the predicate.
                if self.token == PtxToken::Mark('|') {
                    self.after_name("_", at)?
                } else {
                    OperandKind::Sink
                }
            }
            PtxToken::Name(name) => {
                self.advance()?;
                self.after_name(name, at)?
            }
            _ => return self.unexpected("an operand"),
        };
        Ok(ParsedOperand { at, kind })
    }

    /// Parses the rest of an operand that starts with a name.
    fn after_name(&mut self, name: &'a str, at: At) -> Parsed<OperandKind<'a>> {
        match self.token {
            PtxToken::Dot(part) if self.vector(name).is_some() => {
                let elements = self.vector(name).unwrap_or_default();
                let element = element(part).and_then(|i| elements.get(i));
                let Some(element) = element else {
                    // ptxas 13.5 accepts elements that a vector of two does not have.
                    return match crate::syntax::vector_names::element(part) {
                        Some(_) => unsupported(
                            at,
                            format!("`{name}{part}`, beyond the elements of `{name}`"),
                        ),
                        None => self.unexpected("an element such as .x"),
                    };
                };

                self.advance()?;
                Ok(OperandKind::Name(element))
            }
            PtxToken::Dot(part) if selects(part) => {
                let whole = self
                    .lexer
                    .text()
                    .get(at as usize..self.at as usize + part.len());
                self.advance()?;
                whole
                    .filter(|w| w.len() == name.len() + part.len())
                    .map_or_else(
                        || error(at, format!("a blank between `{name}` and `{part}`")),
                        |w| Ok(OperandKind::Name(w)),
                    )
            }
            PtxToken::Mark('|') => {
                self.advance()?;
                Ok(OperandKind::Pair(name, self.name("a predicate")?.0))
            }
            PtxToken::Mark('+' | '-') => Ok(OperandKind::Sum(name, self.offset()?)),
            PtxToken::Mark('[') => self.element_of(name),
            _ => match self.vector(name) {
                Some(elements) => {
                    let element = |name: &'a String| ParsedOperand {
                        at,
                        kind: OperandKind::Name(name),
                    };
                    Ok(OperandKind::Vector(elements.iter().map(element).collect()))
                }
                None => Ok(OperandKind::Name(name)),
            },
        }
    }

    /// Parses the index of `array[1]`, `array[%r]` or `array[%r+1]`, in elements of the scalar
    /// type.
    fn element_of(&mut self, array: &'a str) -> Parsed<OperandKind<'a>> {
        let at = self.at;
        let Some(size) = self.element_size(array) else {
            return error(
                at,
                format!("`{array}` is not an array, so it has no elements"),
            );
        };

        self.advance()?;
        if self.at_constant() {
            let index = self.offset()?;
            self.expect(']')?;
            let offset = index.wrapping_mul(size.into());
            // `ld` and `st` access the element, and other instructions take its address.
            return Ok(match self.opcode {
                "ld" | "ldu" | "st" | "multimem" => OperandKind::Address(Some(array), offset),
                _ => OperandKind::Sum(array, offset),
            });
        }

        let (register, at) = self.name("an index")?;
        if self.token == PtxToken::Mark('+') {
            self.offset()?;
        }

        self.expect(']')?;
        unsupported(
            at,
            format!("`{array}[{register}]`, an array with a register as its index"),
        )
    }
}

/// Returns true if `part` selects a component of a special register, or elements of a register in a
/// video instruction.
fn selects(part: &str) -> bool {
    let digits = part.strip_prefix(".b").or(part.strip_prefix(".h"));
    matches!(part, ".x" | ".y" | ".z" | ".w" | ".r" | ".g" | ".b" | ".a")
        || digits
            .is_some_and(|digits| digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit()))
}
