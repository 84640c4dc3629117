//! Tokens of PTX text.

use crate::syntax::ast::Number;
use crate::syntax::{At, Error, Parsed, error, unsupported};

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PtxToken<'a> {
    /// A name, including `%`.
    Name(&'a str),
    /// A dot and the word after it, including `::`, for example `.shared::cta`.
    Dot(&'a str),
    Number(Number),
    /// A string without its quotes.
    Text(&'a str),
    /// A single character.
    Mark(char),
    /// Invalid text, which was recorded as an error.
    Bad,
    End,
}

/// A position in the text.
#[derive(Clone, Debug)]
pub(crate) struct PtxLexer<'a> {
    text: &'a str,
    pos: usize,
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$'
}

impl<'a> PtxLexer<'a> {
    pub(crate) fn new(text: &'a str) -> PtxLexer<'a> {
        PtxLexer { text, pos: 0 }
    }

    /// Returns the whole text.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// Returns the next token and its offset. Invalid text is recorded and skipped.
    pub(crate) fn next(&mut self, errors: &mut Vec<Error>) -> (PtxToken<'a>, At) {
        self.blanks(errors);
        let start = self.pos;
        let token = self.token().unwrap_or_else(|e| {
            errors.push(e);
            PtxToken::Bad
        });
        (token, start as At)
    }

    fn token(&mut self) -> Parsed<PtxToken<'a>> {
        let start = self.pos;
        Ok(match self.peek(0) {
            0 if start >= self.text.len() => PtxToken::End,
            b'.' if is_word(self.peek(1)) => {
                self.pos += 1;
                self.dotted();

                // `.5e-3` is a number, although `.5` may also begin a suffix.
                let fraction = self.text[start + 1..self.pos].strip_suffix(['e', 'E']);
                let digits = fraction
                    .is_some_and(|f| !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()));
                if digits && matches!(self.peek(0), b'+' | b'-') && self.peek(1).is_ascii_digit() {
                    self.pos += 1;
                    self.word();
                }

                PtxToken::Dot(&self.text[start..self.pos])
            }
            b'0'..=b'9' => self.number()?,
            b'"' => self.string()?,
            b if is_word(b) || b == b'%' && is_word(self.peek(1)) => {
                self.pos += 1;
                self.word();
                PtxToken::Name(&self.text[start..self.pos])
            }
            b if b.is_ascii_graphic() => {
                self.pos += 1;
                PtxToken::Mark(b as char)
            }
            b => {
                let length = self.text[start..].chars().next().map_or(1, char::len_utf8);
                self.pos += length;
                return stray(start, b);
            }
        })
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text
            .as_bytes()
            .get(self.pos + ahead)
            .copied()
            .unwrap_or(0)
    }

    fn word(&mut self) {
        while is_word(self.peek(0)) {
            self.pos += 1;
        }
    }

    fn dotted(&mut self) {
        self.word();
        while self.peek(0) == b':' && self.peek(1) == b':' && is_word(self.peek(2)) {
            self.pos += 2;
            self.word();
        }
    }

    fn blanks(&mut self, errors: &mut Vec<Error>) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b' ' | b'\t' | b'\r' | b'\n', _) => self.pos += 1,
                (b'/', b'/') => errors.extend(self.comment("\n").err()),
                (b'/', b'*') => errors.extend(self.comment("*/").err()),
                _ => return,
            }
        }
    }

    fn comment(&mut self, end: &str) -> Parsed<()> {
        let start = self.pos;
        let rest = &self.text[self.pos..];
        let found = rest[2..].find(end);
        let length = found.map_or(rest.len(), |i| i + 2 + end.len());
        self.pos += length;
        match rest[..length].bytes().position(|b| b >= 0x80) {
            Some(i) => stray(start + i, 0x80),
            None if found.is_none() && end != "\n" => {
                error(start as At, "comment without an end, `*/` expected")
            }
            None => Ok(()),
        }
    }

    fn string(&mut self) -> Parsed<PtxToken<'a>> {
        let quote = self.pos;
        let start = self.pos + 1;
        let body = &self.text[start..];
        let end = body
            .bytes()
            .position(|b| b == b'"' || b == b'\n')
            .unwrap_or(body.len());
        self.pos = start + end;
        if body.as_bytes().get(end) != Some(&b'"') {
            return error(
                quote as At,
                "string without an end, `\"` expected on the same line",
            );
        }

        self.pos += 1;
        match body[..end].bytes().position(|b| b >= 0x80) {
            Some(i) => stray(start + i, 0x80),
            None => Ok(PtxToken::Text(&body[..end])),
        }
    }

    fn number(&mut self) -> Parsed<PtxToken<'a>> {
        let start = self.pos;
        self.word();
        let follows = self.peek(1);
        let exponent = matches!(follows, b'e' | b'E')
            && (self.peek(2).is_ascii_digit()
                || matches!(self.peek(2), b'+' | b'-') && self.peek(3).is_ascii_digit());
        let decimal_point =
            self.peek(0) == b'.' && (follows.is_ascii_digit() || !is_word(follows) || exponent);
        if decimal_point {
            self.pos += 1;
            self.word();
        }

        let signed_exponent = matches!(self.text.as_bytes()[self.pos - 1], b'e' | b'E')
            && !self.text[start..].starts_with("0x")
            && matches!(self.peek(0), b'+' | b'-');
        if signed_exponent
            && !self.text[start..].starts_with("0f")
            && !self.text[start..].starts_with("0d")
        {
            self.pos += 1;
            self.word();
        }

        let text = &self.text[start..self.pos];
        match literal(text) {
            Literal::Number(number) => Ok(PtxToken::Number(number)),
            // ptxas 13.5 keeps the low 64 bits of some of these literals and rejects others.
            Literal::TooLarge => {
                unsupported(start as At, format!("`{text}`, which does not fit 64 bits"))
            }
            Literal::Malformed => error(start as At, format!("`{text}` is not a number")),
        }
    }
}

fn stray<T>(at: usize, b: u8) -> Parsed<T> {
    let what = match b {
        0x80.. => {
            "non-ASCII character: some versions of ptxas reject it, even in comments".to_string()
        }
        _ => format!("stray control character 0x{b:02x}"),
    };
    error(at as At, what)
}

/// A word that starts with a digit.
enum Literal {
    Number(Number),
    /// An integer of more than 64 bits.
    TooLarge,
    Malformed,
}

/// Parses an integer or floating-point literal (PTX ISA, "Constants").
fn literal(text: &str) -> Literal {
    let hex = |prefixes: [&str; 2], digits: usize| {
        let body = prefixes.iter().find_map(|p| text.strip_prefix(p))?;
        (body.len() == digits)
            .then(|| u64::from_str_radix(body, 16).ok())
            .flatten()
    };
    if let Some(bits) = hex(["0f", "0F"], 8) {
        return Literal::Number(Number::F32(bits as u32));
    }
    if let Some(bits) = hex(["0d", "0D"], 16) {
        return Literal::Number(Number::F64(bits));
    }

    match integer(text) {
        Literal::Malformed => {}
        found => return found,
    }

    // Rust also parses `inf` and `nan`, which PTX does not have.
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(_) if !plain || !text.contains(['.', 'e', 'E']) => Literal::Malformed,
        Ok(value) if value.is_infinite() => Literal::TooLarge,
        Ok(value) => Literal::Number(Number::F64(value.to_bits())),
        Err(_) => Literal::Malformed,
    }
}

fn integer(text: &str) -> Literal {
    let body = text.strip_suffix('U').unwrap_or(text);
    let radix = [("0x", 16), ("0X", 16), ("0b", 2), ("0B", 2)];
    let (digits, radix) = radix
        .iter()
        .find_map(|(prefix, radix)| Some((body.strip_prefix(prefix)?, *radix)))
        // A leading 0 makes the number octal, as in C.
        .or_else(|| Some((body.strip_prefix('0').filter(|rest| !rest.is_empty())?, 8)))
        .unwrap_or((body, 10));
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Literal::Malformed;
    }

    match u64::from_str_radix(digits, radix) {
        Ok(value) => Literal::Number(Number::Int(value.into())),
        Err(_) => Literal::TooLarge,
    }
}
