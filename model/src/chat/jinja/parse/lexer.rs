//! Divides the text of a template into tokens, as `jinja2/lexer.py` does with `trim_blocks` and
//! `lstrip_blocks`.

use crate::chat::jinja::error::Error;
use crate::chat::jinja::parse::escapes;
use crate::chat::jinja::python::text::is_space;

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// Text outside of tags.
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    String(String),
    Int(i128),
    Float(f64),
    /// An operator or a bracket.
    Sign(&'static str),
    /// The end of the template.
    End,
}

/// Operators and brackets, the longest first.
const SIGNS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

/// A token and its line.
pub(crate) type Placed = (u32, Token);

/// A reader of the text.
struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: u32,
    /// True if the last tag ended with a line break, so that the next text begins a line.
    line_starting: bool,
    tokens: Vec<Placed>,
}

/// Returns the tokens of a template, with [`Token::End`] as the last.
pub(crate) fn tokens(source: &str) -> Result<Vec<Placed>, Error> {
    // Jinja unifies line breaks before it reads anything else, and drops one at the end.
    let unified = source.replace("\r\n", "\n").replace('\r', "\n");
    let text = unified.strip_suffix('\n').unwrap_or(&unified);
    let mut lexer = Lexer {
        text,
        at: 0,
        line: 1,
        line_starting: true,
        tokens: vec![],
    };
    while lexer.at < text.len() {
        lexer.root()?;
    }

    let end = (lexer.line, Token::End);
    lexer.tokens.push(end);
    Ok(lexer.tokens)
}

/// The sign after the opening of a tag or before its end.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Minus,
    Plus,
    Absent,
}

/// The kind of a tag.
#[derive(Clone, Copy, PartialEq)]
enum Tag {
    /// `{{ .. }}`
    Variable,
    /// A block or a comment.
    Block,
}

/// Returns the sign at the start of a text.
fn sign(rest: &str) -> Sign {
    match rest.as_bytes().first() {
        Some(b'-') => Sign::Minus,
        Some(b'+') => Sign::Plus,
        _ => Sign::Absent,
    }
}

/// Returns the length of the white space at the start of a text.
fn space(text: &str) -> usize {
    text.len() - text.trim_start_matches(is_space).len()
}

/// Returns the length of `raw %}` after an opening sign, with the white space that Jinja removes.
fn raw_begin(rest: &str) -> Option<usize> {
    let mut at = space(rest);
    at += rest[at..].strip_prefix("raw").map(|_| 3)?;
    at += space(&rest[at..]);
    match rest[at..].strip_prefix("-%}") {
        Some(after) => Some(at + 3 + space(after)),
        None => rest[at..].starts_with("%}").then_some(at + 2),
    }
}

/// Returns the length of `endraw %}` after an opening sign.
fn raw_end(rest: &str) -> Option<usize> {
    let mut at = space(rest);
    at += rest[at..].strip_prefix("endraw").map(|_| 6)?;
    at += space(&rest[at..]);
    Some(at + tag_end(&rest[at..], "%}")?)
}

/// Returns the length of the end of a block or a comment: `+%}`, `-%}` and white space, or `%}` and
/// a line break.
fn tag_end(rest: &str, close: &str) -> Option<usize> {
    if rest.starts_with('+') && rest[1..].starts_with(close) {
        return Some(1 + close.len());
    }
    if rest.starts_with('-') && rest[1..].starts_with(close) {
        let len = 1 + close.len();
        return Some(len + space(&rest[len..]));
    }
    let after = rest.strip_prefix(close)?;
    Some(close.len() + usize::from(after.starts_with('\n')))
}

impl Lexer<'_> {
    fn error(&self, problem: impl Into<String>) -> Error {
        Error::syntax(self.line, problem)
    }

    fn push(&mut self, token: Token) {
        self.tokens.push((self.line, token));
    }

    /// Advances by `len` bytes.
    fn advance(&mut self, len: usize) {
        let passed = &self.text[self.at..self.at + len];
        self.line += passed.matches('\n').count() as u32;
        if len > 0 {
            self.line_starting = passed.ends_with('\n');
        }
        self.at += len;
    }

    /// Reads text up to the next tag, and the tag.
    fn root(&mut self) -> Result<(), Error> {
        let rest = &self.text[self.at..];
        let opening = |at: &usize| matches!(rest.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#'));
        let Some(open) = rest.match_indices('{').map(|(at, _)| at).find(opening) else {
            self.push(Token::Data(rest.to_owned()));
            self.advance(rest.len());
            return Ok(());
        };

        let kind = rest.as_bytes()[open + 1];
        let after = &rest[open + 2..];
        let sign = sign(after);
        let marked = &after[usize::from(sign != Sign::Absent)..];
        let tag = if kind == b'{' {
            Tag::Variable
        } else {
            Tag::Block
        };
        let text = self.stripped(&rest[..open], sign, tag);
        if !text.is_empty() {
            let token = Token::Data(text.to_owned());
            self.push(token);
        }

        self.advance(open);
        if kind == b'%'
            && let Some(len) = raw_begin(marked)
        {
            self.advance(2 + after.len() - marked.len() + len);
            return self.raw();
        }

        self.advance(2 + after.len() - marked.len());
        match kind {
            b'#' => self.comment(),
            b'{' => {
                self.push(Token::VariableBegin);
                self.tag("}}", Token::VariableEnd)
            }
            _ => {
                self.push(Token::BlockBegin);
                self.tag("%}", Token::BlockEnd)
            }
        }
    }

    /// Removes the white space that a tag takes from the text before it.
    fn stripped<'a>(&self, text: &'a str, sign: Sign, tag: Tag) -> &'a str {
        match sign {
            Sign::Minus => text.trim_end_matches(is_space),
            Sign::Plus => text,
            Sign::Absent if tag == Tag::Variable => text,
            Sign::Absent => {
                // `lstrip_blocks` removes the indentation of a tag that is first in its line.
                let line = text.rfind('\n').map_or(0, |at| at + 1);
                let blank = text[line..].chars().all(is_space) && line < text.len();
                if (line > 0 || self.line_starting) && blank {
                    &text[..line]
                } else {
                    text
                }
            }
        }
    }

    /// Skips a comment, after its opening sign.
    fn comment(&mut self) -> Result<(), Error> {
        let rest = &self.text[self.at..];
        let Some(end) = rest.find("#}") else {
            return Err(self.error("a comment has no end"));
        };
        let signed = end > 0 && matches!(rest.as_bytes()[end - 1], b'-' | b'+');
        let end = end - usize::from(signed);
        let len = tag_end(&rest[end..], "#}").unwrap_or(2);
        self.advance(end + len);
        Ok(())
    }

    /// Reads the text of a raw block.
    fn raw(&mut self) -> Result<(), Error> {
        let rest = &self.text[self.at..];
        for (open, _) in rest.match_indices("{%") {
            let after = &rest[open + 2..];
            let sign = sign(after);
            let marked = &after[usize::from(sign != Sign::Absent)..];
            if let Some(len) = raw_end(marked) {
                let text = self.stripped(&rest[..open], sign, Tag::Block).to_owned();
                if !text.is_empty() {
                    self.push(Token::Data(text));
                }
                self.advance(open + 2 + after.len() - marked.len() + len);
                return Ok(());
            }
        }
        Err(self.error("a raw block has no {% endraw %}"))
    }

    /// Reads the tokens of a tag up to its end.
    fn tag(&mut self, close: &'static str, end: Token) -> Result<(), Error> {
        let mut brackets = vec![];
        loop {
            let rest = &self.text[self.at..];
            let Some(c) = rest.chars().next() else {
                return Ok(());
            };

            // Inside brackets, `}}` closes two dictionaries and not the tag.
            if brackets.is_empty()
                && let Some(len) = self.end_of_tag(rest, close)
            {
                self.push(end);
                self.advance(len);
                return Ok(());
            }

            if is_space(c) {
                self.advance(space(rest));
            } else if c.is_ascii_digit() {
                self.number(rest)?;
            } else if c == '_' || c.is_alphanumeric() {
                let part = |c: char| c == '_' || c.is_alphanumeric();
                let len = rest.find(|c| !part(c)).unwrap_or(rest.len());
                if c.is_numeric() {
                    return Err(self.error(format!("invalid character {c:?} in a name")));
                }
                self.push(Token::Name(rest[..len].to_owned()));
                self.advance(len);
            } else if matches!(c, '\'' | '"') {
                self.string(rest, c)?;
            } else {
                self.sign(rest, c, &mut brackets)?;
            }
        }
    }

    /// Returns the length of the end of a tag, if it is next.
    fn end_of_tag(&self, rest: &str, close: &str) -> Option<usize> {
        if close == "%}" {
            return tag_end(rest, close);
        }
        match rest.strip_prefix("-}}") {
            Some(after) => Some(3 + space(after)),
            None => rest.starts_with(close).then_some(close.len()),
        }
    }

    /// Reads an operator or a bracket.
    fn sign(&mut self, rest: &str, c: char, brackets: &mut Vec<char>) -> Result<(), Error> {
        let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) else {
            return Err(self.error(format!("unexpected character {c:?}")));
        };

        match c {
            '(' => brackets.push(')'),
            '[' => brackets.push(']'),
            '{' => brackets.push('}'),
            ')' | ']' | '}' if brackets.pop() != Some(c) => {
                return Err(self.error(format!("unexpected `{c}`")));
            }
            _ => {}
        }

        self.push(Token::Sign(sign));
        self.advance(sign.len());
        Ok(())
    }

    /// Reads a string.
    fn string(&mut self, rest: &str, quote: char) -> Result<(), Error> {
        let mut escaped = false;
        let end = rest[1..].find(|c| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end else {
            return Err(self.error("a string has no closing quote"));
        };

        let text = escapes::decode(&rest[1..1 + end]).map_err(|problem| self.error(problem))?;
        self.push(Token::String(text));
        self.advance(end + 2);
        Ok(())
    }

    /// Reads a number.
    fn number(&mut self, rest: &str) -> Result<(), Error> {
        // A number after a dot is an index, so `a.0.1` has no float.
        let after_dot = self.text[..self.at].ends_with('.');
        let float = if after_dot { None } else { float(rest) };
        if let Some(len) = float {
            let digits = rest[..len].replace('_', "");
            let value = digits
                .parse()
                .map_err(|_| self.error(format!("invalid number {digits}")))?;
            self.push(Token::Float(value));
            self.advance(len);
            return Ok(());
        }

        let (radix, len) = integer(rest);
        let digits = rest[..len].replace('_', "");
        let plain = if radix == 10 { &*digits } else { &digits[2..] };
        let value = i128::from_str_radix(plain, radix)
            .map_err(|_| self.error(format!("the number {digits} is beyond 128 bits")))?;
        self.push(Token::Int(value));
        self.advance(len);
        Ok(())
    }
}

/// Returns the length of digits with single underscores between them, or 0 if there is no digit.
fn digits(text: &str, radix: u32) -> usize {
    let bytes = text.as_bytes();
    let digit = |at: usize| {
        bytes
            .get(at)
            .is_some_and(|byte| (*byte as char).is_digit(radix))
    };
    let mut at = 0;
    while digit(at) || at > 0 && bytes.get(at) == Some(&b'_') && digit(at + 1) {
        at += 1;
    }

    at
}

/// Returns the length of a float, if the text begins with one.
fn float(text: &str) -> Option<usize> {
    let mut len = digits(text, 10);
    let point = text[len..].starts_with('.');
    let fraction = if point {
        digits(&text[len + 1..], 10)
    } else {
        0
    };
    if fraction > 0 {
        len += 1 + fraction;
    }

    let exponent = text[len..].strip_prefix(['e', 'E']).map_or(0, |rest| {
        let sign = usize::from(rest.starts_with(['+', '-']));
        let digits = digits(&rest[sign..], 10);
        if digits > 0 { 1 + sign + digits } else { 0 }
    });
    (fraction > 0 || exponent > 0).then_some(len + exponent)
}

/// Returns the radix and the length of an integer.
fn integer(text: &str) -> (u32, usize) {
    for (prefix, radix) in [("0b", 2), ("0o", 8), ("0x", 16)] {
        let Some(head) = text.get(..2) else { continue };
        if head.eq_ignore_ascii_case(prefix) {
            let rest = text[2..].strip_prefix('_').unwrap_or(&text[2..]);
            let len = digits(rest, radix);
            if len > 0 {
                return (radix, text.len() - rest.len() + len);
            }
        }
    }
    // A decimal number does not begin with zero: `01` is `0` and `1`.
    let len = if text.starts_with('0') {
        text.len() - text.trim_start_matches(['0', '_']).len()
    } else {
        digits(text, 10)
    };
    (10, len)
}
