//! Constant expressions (PTX ISA, "Constant Expressions"): the operators of C on 64-bit integers
//! and on `f64`.
//!
//! Integers are signed or unsigned, as in C. For example, `-7/2` is -3, and `-7/2U` is
//! 0x7ffffffffffffffc. The rules are those of ptxas 13.5. It differs from the manual in `?:`, whose
//! result keeps the type of the chosen operand.

use crate::syntax::ast::{Number, WARP_SIZE};
use crate::syntax::lexer::PtxToken;
use crate::syntax::parser::PtxParser;
use crate::syntax::{At, Parsed, error};

/// The maximum nesting depth of parentheses and signs.
const MOST_DEPTH: usize = 32;

/// The binary operators in groups of increasing precedence.
const BINARY: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// A value with the type that selects the rules of an operator.
#[derive(Clone, Copy, Debug)]
enum TypedConstant {
    Signed(i64),
    Unsigned(u64),
    /// The bits of a hexadecimal `f32`, `0fXXXXXXXX`, which no operator accepts.
    Single(u32),
    Double(f64),
}

/// Two integers of their common type, which is unsigned if either of them is.
enum Integers {
    Signed(i64, i64),
    Unsigned(u64, u64),
}

impl TypedConstant {
    /// Returns the value of a literal. It is signed unless it has the suffix `U` or does not fit.
    fn from_literal(n: Number, text: &str) -> TypedConstant {
        match n {
            Number::Int(v) => match i64::try_from(v) {
                Ok(v) if !text.ends_with('U') => TypedConstant::Signed(v),
                _ => TypedConstant::Unsigned(v as u64),
            },
            Number::F32(bits) => TypedConstant::Single(bits),
            Number::F64(bits) => TypedConstant::Double(f64::from_bits(bits)),
        }
    }

    fn number(self) -> Number {
        match self {
            TypedConstant::Signed(v) => Number::Int(v.into()),
            TypedConstant::Unsigned(v) => Number::Int(v.into()),
            TypedConstant::Single(bits) => Number::F32(bits),
            TypedConstant::Double(v) => Number::F64(v.to_bits()),
        }
    }

    /// Returns the 64 bits of an integer.
    fn bits(self) -> Option<u64> {
        match self {
            TypedConstant::Signed(v) => Some(v as u64),
            TypedConstant::Unsigned(v) => Some(v),
            TypedConstant::Single(_) | TypedConstant::Double(_) => None,
        }
    }

    /// Returns the result of a comparison, which is a signed integer.
    fn truth(holds: bool) -> TypedConstant {
        TypedConstant::Signed(holds.into())
    }
}

impl<'a> PtxParser<'a> {
    /// Parses a constant expression.
    pub(crate) fn number(&mut self) -> Parsed<Number> {
        Ok(self.choice(0)?.number())
    }

    /// Returns true if the next token starts a constant expression.
    pub(crate) fn at_constant(&self) -> bool {
        let mut token = self.token;
        let mut ahead = self.lexer.clone();
        loop {
            match token {
                PtxToken::Number(_) | PtxToken::Name(WARP_SIZE) | PtxToken::Mark('(' | '~') => {
                    return true;
                }
                // A sign or `!` in front of a name belongs to an operand, such as `!p`.
                PtxToken::Mark('-' | '+' | '!') => token = ahead.next(&mut Vec::new()).0,
                PtxToken::Dot(word) => return is_fraction(word),
                _ => return false,
            }
        }
    }

    /// Parses `condition ? a : b`, or an expression without it.
    fn choice(&mut self, depth: usize) -> Parsed<TypedConstant> {
        let at = self.at;
        if depth > MOST_DEPTH {
            return error(at, format!("parentheses nested deeper than {MOST_DEPTH}"));
        }

        let condition = self.binary(0, depth)?;
        if !self.eat('?')? {
            return Ok(condition);
        }
        let Some(condition) = condition.bits() else {
            return error(at, "a condition is an integer");
        };

        let yes = self.choice(depth + 1)?;
        self.expect(':')?;
        let no = self.choice(depth + 1)?;
        if yes.bits().is_none() || no.bits().is_none() {
            return error(at, "`?:` chooses between integers");
        }

        Ok(if condition != 0 { yes } else { no })
    }

    fn binary(&mut self, level: usize, depth: usize) -> Parsed<TypedConstant> {
        let Some(operators) = BINARY.get(level) else {
            return self.unary(depth);
        };
        let mut left = self.binary(level + 1, depth)?;
        loop {
            let at = self.at;
            let Some(operator) = self.operator(operators)? else {
                return Ok(left);
            };
            let right = self.binary(level + 1, depth)?;
            left = combine(left, operator, right, at)?;
        }
    }

    /// Consumes the next token if it is one of `operators`.
    fn operator(&mut self, operators: &[&'static str]) -> Parsed<Option<&'static str>> {
        // `%3` is a name, so `5%3` contains no operator.
        if !matches!(self.token, PtxToken::Mark(_)) {
            return Ok(None);
        }

        let rest = self.lexer.text().get(self.at as usize..).unwrap_or("");
        let longer = ["||", "&&", "<<", ">>", "<=", ">=", "==", "!="];
        let next = longer.iter().find(|long| rest.starts_with(**long));
        let Some(found) = operators.iter().find(|operator| match next {
            Some(next) => *operator == next,
            None => rest.starts_with(**operator),
        }) else {
            return Ok(None);
        };

        for _ in 0..found.len() {
            self.advance()?;
        }

        Ok(Some(found))
    }

    fn unary(&mut self, depth: usize) -> Parsed<TypedConstant> {
        let at = self.at;
        if depth > MOST_DEPTH {
            return error(at, format!("signs nested deeper than {MOST_DEPTH}"));
        }
        match self.token {
            PtxToken::Mark(sign @ ('-' | '+' | '~' | '!')) => {
                self.advance()?;
                let value = self.unary(depth + 1)?;
                signed(sign, value, at)
            }
            PtxToken::Mark('(') => self.parentheses(depth),
            PtxToken::Number(n) => {
                // The token has lost the suffix `U`, which decides the type, so the text of the
                // literal is read again.
                let rest = self.lexer.text().get(at as usize..).unwrap_or("");
                let end = rest
                    .find(|c: char| !c.is_ascii_alphanumeric())
                    .unwrap_or(rest.len());
                self.advance()?;
                Ok(TypedConstant::from_literal(n, &rest[..end]))
            }
            PtxToken::Name(WARP_SIZE) => {
                self.advance()?;
                Ok(TypedConstant::Signed(32))
            }
            PtxToken::Dot(word) if is_fraction(word) => {
                self.advance()?;
                Ok(TypedConstant::Double(word.parse().unwrap_or_default()))
            }
            _ => self.unexpected("a number"),
        }
    }

    /// Parses `(expression)`, or a cast: `(.s64) operand` or `(.u64) operand`.
    fn parentheses(&mut self, depth: usize) -> Parsed<TypedConstant> {
        self.advance()?;
        let at = self.at;
        let PtxToken::Dot(cast @ (".s64" | ".u64")) = self.token else {
            let value = self.choice(depth + 1)?;
            self.expect(')')?;
            return Ok(value);
        };

        self.advance()?;
        self.expect(')')?;
        let Some(bits) = self.unary(depth + 1)?.bits() else {
            return error(at, format!("`({cast})` takes an integer"));
        };

        Ok(if cast == ".s64" {
            TypedConstant::Signed(bits as i64)
        } else {
            TypedConstant::Unsigned(bits)
        })
    }
}

/// Returns true if `word` is a decimal float without digits before its point, such as `.5` or
/// `.5e3`.
fn is_fraction(word: &str) -> bool {
    word.as_bytes().get(1).is_some_and(u8::is_ascii_digit) && word.parse::<f64>().is_ok()
}

fn signed(sign: char, value: TypedConstant, at: At) -> Parsed<TypedConstant> {
    Ok(match (sign, value) {
        ('+', TypedConstant::Signed(_) | TypedConstant::Unsigned(_) | TypedConstant::Double(_)) => {
            value
        }
        // Integers wrap around like the 64-bit integers of C, and `-9223372036854775808` must be
        // possible.
        ('-', TypedConstant::Signed(v)) => TypedConstant::Signed(v.wrapping_neg()),
        ('-', TypedConstant::Unsigned(v)) => TypedConstant::Unsigned(v.wrapping_neg()),
        ('-', TypedConstant::Double(v)) => TypedConstant::Double(-v),
        ('~', TypedConstant::Signed(v)) => TypedConstant::Unsigned(!v as u64),
        ('~', TypedConstant::Unsigned(v)) => TypedConstant::Unsigned(!v),
        ('!', TypedConstant::Signed(v)) => TypedConstant::truth(v == 0),
        ('!', TypedConstant::Unsigned(v)) => TypedConstant::truth(v == 0),
        ('-' | '+', _) => {
            return error(
                at,
                format!("`{sign}` in front of a hexadecimal single such as 0f3f800000"),
            );
        }
        _ => return error(at, format!("`{sign}` takes an integer")),
    })
}

fn combine(
    left: TypedConstant,
    operator: &str,
    right: TypedConstant,
    at: At,
) -> Parsed<TypedConstant> {
    let integers = match (left, right) {
        (TypedConstant::Double(a), TypedConstant::Double(b)) => return doubles(a, operator, b, at),
        (TypedConstant::Signed(a), TypedConstant::Signed(b)) => Integers::Signed(a, b),
        (TypedConstant::Single(_), _) | (_, TypedConstant::Single(_)) => {
            return error(
                at,
                format!("`{operator}` with a hexadecimal single such as 0f3f800000"),
            );
        }
        _ => match (left.bits(), right.bits()) {
            (Some(a), Some(b)) => Integers::Unsigned(a, b),
            _ => return error(at, format!("`{operator}` between an integer and a float")),
        },
    };
    let bits = left.bits().zip(right.bits());
    match (operator, bits, left) {
        // Only the type of the left operand selects the kind of shift.
        ("<<", Some((_, n)), TypedConstant::Signed(v)) => {
            return Ok(TypedConstant::Signed(v.wrapping_shl(n as u32)));
        }
        (">>", Some((_, n)), TypedConstant::Signed(v)) => {
            return Ok(TypedConstant::Signed(v.wrapping_shr(n as u32)));
        }
        ("<<", Some((v, n)), _) => return Ok(TypedConstant::Unsigned(v.wrapping_shl(n as u32))),
        (">>", Some((v, n)), _) => return Ok(TypedConstant::Unsigned(v.wrapping_shr(n as u32))),
        ("&&", Some((a, b)), _) => return Ok(TypedConstant::truth(a != 0 && b != 0)),
        ("||", Some((a, b)), _) => return Ok(TypedConstant::truth(a != 0 || b != 0)),
        ("/" | "%", Some((_, 0)), _) => return error(at, "a constant is divided by zero"),
        ("%", Some((a, b)), _) => return Ok(TypedConstant::Unsigned(a % b)),
        _ => {}
    }

    Ok(match integers {
        Integers::Signed(a, b) => match operator {
            "+" => TypedConstant::Signed(a.wrapping_add(b)),
            "-" => TypedConstant::Signed(a.wrapping_sub(b)),
            "*" => TypedConstant::Signed(a.wrapping_mul(b)),
            "/" => TypedConstant::Signed(a.wrapping_div(b)),
            "&" => TypedConstant::Signed(a & b),
            "|" => TypedConstant::Signed(a | b),
            "^" => TypedConstant::Signed(a ^ b),
            _ => TypedConstant::truth(compare(a.cmp(&b), operator)),
        },
        Integers::Unsigned(a, b) => match operator {
            "+" => TypedConstant::Unsigned(a.wrapping_add(b)),
            "-" => TypedConstant::Unsigned(a.wrapping_sub(b)),
            "*" => TypedConstant::Unsigned(a.wrapping_mul(b)),
            "/" => TypedConstant::Unsigned(a / b),
            "&" => TypedConstant::Unsigned(a & b),
            "|" => TypedConstant::Unsigned(a | b),
            "^" => TypedConstant::Unsigned(a ^ b),
            _ => TypedConstant::truth(compare(a.cmp(&b), operator)),
        },
    })
}

fn doubles(a: f64, operator: &str, b: f64, at: At) -> Parsed<TypedConstant> {
    let value = match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" if b == 0.0 => return error(at, "a constant is divided by zero"),
        "/" => a / b,
        "==" | "!=" | "<" | "<=" | ">" | ">=" => {
            let holds = a
                .partial_cmp(&b)
                .map_or(operator == "!=", |order| compare(order, operator));
            return Ok(TypedConstant::truth(holds));
        }
        _ => return error(at, format!("`{operator}` takes integers")),
    };
    Ok(TypedConstant::Double(value))
}

fn compare(order: std::cmp::Ordering, operator: &str) -> bool {
    match operator {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    }
}
