//! Constant expressions (manual, "Constant Expressions"): C's operators over 64-bit integers, and arithmetic of floats.

use super::ast::Number;
use super::lexer::Token;
use super::parser::Parser;
use super::{At, Parsed, error};

/// Parentheses and signs accepted within each other.
const MOST_DEPTH: usize = 32;

/// Operators of two operands, those that bind least first.
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

impl<'a> Parser<'a> {
    /// A literal, or an expression of literals.
    pub(super) fn number(&mut self) -> Parsed<Number> {
        self.choice(0)
    }

    /// `condition ? a : b`
    fn choice(&mut self, depth: usize) -> Parsed<Number> {
        let at = self.at;
        if depth > MOST_DEPTH {
            return error(at, format!("parentheses nested deeper than {MOST_DEPTH}"));
        }
        let condition = self.binary(0, depth)?;
        if !self.eat('?')? {
            return Ok(condition);
        }
        let Number::Int(holds) = condition else { return error(at, "a condition is an integer") };
        let yes = self.choice(depth + 1)?;
        self.expect(':')?;
        let no = self.choice(depth + 1)?;
        Ok(if holds != 0 { yes } else { no })
    }

    fn binary(&mut self, level: usize, depth: usize) -> Parsed<Number> {
        let Some(operators) = BINARY.get(level) else { return self.unary(depth) };
        let mut left = self.binary(level + 1, depth)?;
        loop {
            let at = self.at;
            let Some(operator) = self.operator(operators)? else { return Ok(left) };
            let right = self.binary(level + 1, depth)?;
            left = combine(left, operator, right, at)?;
        }
    }

    /// Goes past one of some operators, if it comes next.
    fn operator(&mut self, operators: &[&'static str]) -> Parsed<Option<&'static str>> {
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

    fn unary(&mut self, depth: usize) -> Parsed<Number> {
        let at = self.at;
        if depth > MOST_DEPTH {
            return error(at, format!("signs nested deeper than {MOST_DEPTH}"));
        }
        match self.token {
            Token::Mark(sign @ ('-' | '+' | '~' | '!')) => {
                self.advance()?;
                let value = self.unary(depth + 1)?;
                signed(sign, value, at)
            }
            Token::Mark('(') => self.parentheses(depth),
            Token::Number(n) => {
                self.advance()?;
                Ok(n)
            }
            Token::Dot(word) if is_fraction(word) => {
                self.advance()?;
                let value: f64 = word.parse().unwrap_or_default();
                Ok(Number::F64(value.to_bits()))
            }
            _ => self.unexpected("a number"),
        }
    }

    /// `(expression)`, and a cast: `(.s64) operand` or `(.u64) operand`.
    fn parentheses(&mut self, depth: usize) -> Parsed<Number> {
        self.advance()?;
        let Token::Dot(cast @ (".s64" | ".u64")) = self.token else {
            let value = self.choice(depth + 1)?;
            self.expect(')')?;
            return Ok(value);
        };
        self.advance()?;
        self.expect(')')?;
        let value = self.unary(depth + 1)?;
        Ok(match value {
            Number::Int(v) if cast == ".s64" => Number::Int(i128::from(v as i64)),
            Number::Int(v) => Number::Int(i128::from(v as u64)),
            other => other,
        })
    }
}

/// Whether a word is a float without digits before its point.
pub(super) fn is_fraction(word: &str) -> bool {
    word[1..].bytes().all(|b| b.is_ascii_digit())
}

fn signed(sign: char, value: Number, at: At) -> Parsed<Number> {
    Ok(match (sign, value) {
        ('-', Number::Int(v)) => Number::Int(-v),
        ('-', Number::F32(bits)) => Number::F32(bits ^ 1 << 31),
        ('-', Number::F64(bits)) => Number::F64(bits ^ 1 << 63),
        ('~', Number::Int(v)) => Number::Int(!v).wrapped(),
        ('!', Number::Int(v)) => Number::Int((v == 0).into()),
        ('+', value) => value,
        _ => return error(at, format!("`{sign}` takes an integer")),
    })
}

impl Number {
    /// As 64 bits hold it: signed, unless it is too large.
    fn wrapped(self) -> Number {
        match self {
            Number::Int(v) if i64::try_from(v).is_err() && u64::try_from(v).is_err() => {
                Number::Int(i128::from(v as i64))
            }
            other => other,
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Int(v) => v as f64,
            Number::F32(bits) => f32::from_bits(bits).into(),
            Number::F64(bits) => f64::from_bits(bits),
        }
    }
}

fn combine(left: Number, operator: &str, right: Number, at: At) -> Parsed<Number> {
    match (left, right) {
        (Number::Int(a), Number::Int(b)) => integers(a, operator, b, at),
        _ => floats(left.float(), operator, right.float(), at),
    }
}

fn integers(a: i128, operator: &str, b: i128, at: At) -> Parsed<Number> {
    if matches!(operator, "/" | "%") && b == 0 {
        return error(at, "a constant is divided by zero");
    }
    let shift = (b & 63) as u32;
    let value = match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a.wrapping_mul(b),
        "/" => a / b,
        "%" => a % b,
        "<<" => a << shift,
        ">>" => a >> shift,
        "&" => a & b,
        "|" => a | b,
        "^" => a ^ b,
        "&&" => (a != 0 && b != 0).into(),
        "||" => (a != 0 || b != 0).into(),
        _ => compare(a.cmp(&b), operator).into(),
    };
    Ok(Number::Int(value).wrapped())
}

fn floats(a: f64, operator: &str, b: f64, at: At) -> Parsed<Number> {
    let value = match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        _ => match a.partial_cmp(&b) {
            Some(order) if matches!(operator, "==" | "!=" | "<" | "<=" | ">" | ">=") => {
                return Ok(Number::Int(compare(order, operator).into()));
            }
            _ => return error(at, format!("`{operator}` takes integers")),
        },
    };
    Ok(Number::F64(value.to_bits()))
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
