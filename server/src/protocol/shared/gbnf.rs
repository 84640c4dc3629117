//! Translates grammars from GBNF, the notation of llama.cpp, to Lark.
//!
//! The notation is described in `grammars/README.md` of <https://github.com/ggml-org/llama.cpp>. A
//! parser of Lark divides a text into the longest lexemes and then parses these, where GBNF has no
//! lexemes. The translation therefore writes every string character by character, so that each
//! lexeme is one character and both notations accept the same texts. Tokens in angle brackets are
//! not supported.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Returns the grammar in the notation of Lark.
///
/// # Errors
/// Returns a sentence with the line of the first error.
pub(super) fn lark_from_gbnf(text: &str) -> Result<String, String> {
    let mut reader = GbnfReader {
        rest: text,
        line: 1,
        rules: HashMap::new(),
        order: vec![],
        defined: HashSet::new(),
        depth: 0,
    };
    let mut lark = String::new();
    reader.skip(Lines::Any);
    while !reader.rest.is_empty() {
        let rule = reader.rule()?;
        lark.push_str(&rule);
        reader.skip(Lines::Any);
    }

    if !reader.defined.contains("root") {
        return Err("the grammar has no rule `root`".to_owned());
    }
    let missing = reader
        .order
        .iter()
        .find(|name| !reader.defined.contains(*name));
    match missing {
        Some(name) => Err(format!("the grammar has no rule `{name}`")),
        None => Ok(lark),
    }
}

/// The maximum depth of groups in groups, which the stack of a thread can hold.
const MAX_DEPTH: u32 = 64;

struct GbnfReader<'a> {
    rest: &'a str,
    /// The number of the line at which `rest` begins, from 1.
    line: usize,
    /// The names of the rules in Lark, by their names in GBNF.
    rules: HashMap<String, String>,
    /// The names in GBNF in the order of their first use.
    order: Vec<String>,
    defined: HashSet<String>,
    depth: u32,
}

/// The line breaks that are white space at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    /// Line breaks are white space.
    Any,
    /// A line break ends the rule.
    One,
}

impl GbnfReader<'_> {
    fn rule(&mut self) -> Result<String, String> {
        let name = self
            .name()
            .ok_or_else(|| self.expected("the name of a rule"))?;
        if !self.defined.insert(name.clone()) {
            return Err(self.fault(&format!("the rule `{name}` is defined twice")));
        }
        self.skip(Lines::One);
        if !self.take("::=") {
            return Err(self.expected("`::=`"));
        }
        self.skip(Lines::Any);
        let body = self.alternatives(Lines::One)?;
        self.skip(Lines::One);
        if !self.rest.is_empty() && !self.rest.starts_with(['\n', '\r']) {
            return Err(self.expected("the end of the rule"));
        }
        Ok(format!("{}: {body}\n", self.lark_name(&name)))
    }

    fn alternatives(&mut self, lines: Lines) -> Result<String, String> {
        let mut found = vec![self.sequence(lines)?];
        while self.take("|") {
            self.skip(Lines::Any);
            found.push(self.sequence(lines)?);
        }
        Ok(found.join(" | "))
    }

    fn sequence(&mut self, lines: Lines) -> Result<String, String> {
        let mut items = vec![];
        while let Some(item) = self.item()? {
            let count = self.repetition()?;
            items.push(format!("{item}{count}"));
            self.skip(lines);
        }
        if items.is_empty() {
            items.push("\"\"".to_owned());
        }
        Ok(items.join(" "))
    }

    /// Reads the next item, if one begins here.
    fn item(&mut self) -> Result<Option<String>, String> {
        if self.take("\"") {
            return self.string().map(Some);
        }
        if self.take("[") {
            return self.class().map(Some);
        }
        if self.take("(") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.fault(&format!("groups are nested more than {MAX_DEPTH} times")));
            }
            self.skip(Lines::Any);
            let inner = self.alternatives(Lines::Any)?;
            self.depth -= 1;
            if !self.take(")") {
                return Err(self.expected("`)`"));
            }
            return Ok(Some(format!("({inner})")));
        }
        if self.take(".") {
            return Ok(Some("/[\\x{0}-\\x{10FFFF}]/".to_owned()));
        }
        if self.rest.starts_with(['<', '!']) {
            return Err(self.fault("tokens such as `<think>` are not supported"));
        }
        Ok(self.name().map(|name| self.lark_name(&name)))
    }

    fn repetition(&mut self) -> Result<String, String> {
        for sign in ["*", "+", "?"] {
            if self.take(sign) {
                return Ok(sign.to_owned());
            }
        }
        if !self.take("{") {
            return Ok(String::new());
        }
        let Some((count, rest)) = self.rest.split_once('}') else {
            return Err(self.expected("`}`"));
        };
        let is_count = count
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b',' || byte == b' ');
        if !is_count || !count.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(self.expected("a number of repetitions such as `{2,5}`"));
        }
        self.rest = rest;
        Ok(format!("{{{count}}}"))
    }

    /// Reads the rest of a string.
    fn string(&mut self) -> Result<String, String> {
        let mut characters = vec![];
        loop {
            if self.take("\"") {
                break;
            }
            let character = self.character()?;
            characters.push(serde_json::Value::from(character.to_string()).to_string());
        }
        Ok(match &*characters {
            [] => "\"\"".to_owned(),
            [one] => one.clone(),
            // A repetition after the string concerns all of it.
            _ => format!("({})", characters.join(" ")),
        })
    }

    /// Reads the rest of a class of characters.
    fn class(&mut self) -> Result<String, String> {
        let sign = if self.take("^") { "^" } else { "" };
        let mut class = String::new();
        while !self.take("]") {
            let first = self.character()?;
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            let last = if is_range {
                self.take("-");
                self.character()?
            } else {
                first
            };
            if last < first {
                return Err(self.fault(&format!("the range `{first}-{last}` is empty")));
            }
            // Writing to a string cannot fail.
            let _ = write!(class, "\\x{{{:X}}}-\\x{{{:X}}}", first as u32, last as u32);
        }
        if class.is_empty() {
            return Err(self.fault("a class of characters is empty"));
        }
        Ok(format!("/[{sign}{class}]/"))
    }

    /// Reads a character of a string or a class, which may be escaped.
    fn character(&mut self) -> Result<char, String> {
        let character = self.next().ok_or_else(|| self.expected("`\"` or `]`"))?;
        if character == '\n' {
            return Err(self.expected("`\"` or `]` before the end of the line"));
        }
        if character != '\\' {
            return Ok(character);
        }
        let escape = self.next().ok_or_else(|| self.expected("an escape"))?;
        match escape {
            'x' => self.code(2),
            'u' => self.code(4),
            'U' => self.code(8),
            't' => Ok('\t'),
            'r' => Ok('\r'),
            'n' => Ok('\n'),
            '\\' | '"' | '[' | ']' | '-' | '^' => Ok(escape),
            other => Err(self.fault(&format!("unknown escape `\\{other}`"))),
        }
    }

    fn code(&mut self, digits: usize) -> Result<char, String> {
        let code = self.rest.get(..digits).and_then(|digits| {
            let number = u32::from_str_radix(digits, 16).ok()?;
            char::from_u32(number)
        });
        match code {
            Some(code) => {
                self.rest = &self.rest[digits..];
                Ok(code)
            }
            None => Err(self.expected(&format!("the {digits} hexadecimal digits of a character"))),
        }
    }

    fn name(&mut self) -> Option<String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() {
            return None;
        }
        self.rest = rest;
        Some(name.to_owned())
    }

    /// Returns the name of a rule in Lark, which has only small letters there.
    fn lark_name(&mut self, name: &str) -> String {
        if let Some(known) = self.rules.get(name) {
            return known.clone();
        }
        let lark = if name == "root" {
            "start".to_owned()
        } else {
            format!("rule_{}", self.order.len())
        };
        self.order.push(name.to_owned());
        self.rules.insert(name.to_owned(), lark.clone());
        lark
    }

    /// Skips white space and comments.
    fn skip(&mut self, lines: Lines) {
        loop {
            let trimmed = self.rest.trim_start_matches([' ', '\t']);
            self.rest = trimmed;
            if trimmed.starts_with('#') {
                let end = trimmed.find('\n').unwrap_or(trimmed.len());
                self.rest = &trimmed[end..];
            } else if lines == Lines::Any && trimmed.starts_with(['\n', '\r']) {
                self.next();
            } else {
                return;
            }
        }
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn next(&mut self) -> Option<char> {
        let character = self.rest.chars().next()?;
        self.rest = &self.rest[character.len_utf8()..];
        self.line += usize::from(character == '\n');
        Some(character)
    }

    fn expected(&self, what: &str) -> String {
        self.fault(&format!("expected {what}"))
    }

    fn fault(&self, problem: &str) -> String {
        format!("line {}: {problem}", self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_translated() {
        for (gbnf, lark) in [
            ("root ::= \"a\"{5,5}", "start: \"a\"{5,5}\n"),
            ("root ::= \"ab\"+ | \"\"", "start: (\"a\" \"b\")+ | \"\"\n"),
            (
                "root ::= [a-z_]* [^\\n\\x41]",
                "start: /[\\x{61}-\\x{7A}\\x{5F}-\\x{5F}]/* /[^\\x{A}-\\x{A}\\x{41}-\\x{41}]/\n",
            ),
            (
                "# comment\nroot ::= item (\",\" ws\n  item)* # end\nitem ::= [0-9]\nws ::= \" \"?\n",
                "start: rule_0 (\",\" rule_1 rule_0)*\nrule_0: /[\\x{30}-\\x{39}]/\nrule_1: \" \"?\n",
            ),
            (
                "root ::=\n  \"a\" |\n  Foo-bar\nFoo-bar ::= \"\\\"\"",
                "start: \"a\" | rule_0\nrule_0: \"\\\"\"\n",
            ),
            (
                "root ::= [-a]",
                "start: /[\\x{2D}-\\x{2D}\\x{61}-\\x{61}]/\n",
            ),
            (
                "root ::= [a-]",
                "start: /[\\x{61}-\\x{61}\\x{2D}-\\x{2D}]/\n",
            ),
            ("root ::= .", "start: /[\\x{0}-\\x{10FFFF}]/\n"),
        ] {
            assert_eq!(lark_from_gbnf(gbnf).as_deref(), Ok(lark), "{gbnf}");
        }
    }

    #[test]
    fn errors_name_their_line() {
        for (gbnf, message) in [
            ("", "the grammar has no rule `root`"),
            ("item ::= \"a\"", "the grammar has no rule `root`"),
            ("root ::= item", "the grammar has no rule `item`"),
            ("root ::= \"a", "line 1: expected `\"` or `]`"),
            (
                "root ::= \"a\nb\"",
                "line 2: expected `\"` or `]` before the end of the line",
            ),
            ("root ::= [a", "line 1: expected `\"` or `]`"),
            ("root ::= [b-a]", "line 1: the range `b-a` is empty"),
            ("root ::= []", "line 1: a class of characters is empty"),
            ("root ::= (\"a\"", "line 1: expected `)`"),
            ("root ::= \"a\")", "line 1: expected the end of the rule"),
            (
                "root ::= \"a\"{x}",
                "line 1: expected a number of repetitions such as `{2,5}`",
            ),
            ("root ::= \"\\q\"", "line 1: unknown escape `\\q`"),
            (
                "root ::= \"\\x4\"",
                "line 1: expected the 2 hexadecimal digits of a character",
            ),
            ("root = \"a\"", "line 1: expected `::=`"),
            (
                "root ::= \"a\"\nroot ::= \"b\"",
                "line 2: the rule `root` is defined twice",
            ),
            (
                "root ::= <think>",
                "line 1: tokens such as `<think>` are not supported",
            ),
            ("\n\n*", "line 3: expected the name of a rule"),
        ] {
            assert_eq!(lark_from_gbnf(gbnf), Err(message.to_owned()), "{gbnf}");
        }
        let deep = format!("root ::= {}", "(".repeat(100_000));
        assert!(lark_from_gbnf(&deep).unwrap_err().contains("nested"));
    }
}
