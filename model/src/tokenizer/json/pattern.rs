//! Regular expressions of `tokenizer.json`.
//!
//! They are written for Oniguruma with Ruby's syntax, which the Python package `tokenizers` uses.
//! Here `fancy-regex` runs them. Expressions that both accept but interpret differently are
//! rejected by name. The rules come from a comparison of the two over 190 expressions, and over all
//! characters for the classes.

use serde_json::Value;

use crate::tokenizer::expression::Expression;

const ANCHOR: &str = "has ^ or $, which are of lines there and of the whole text here";
const WORD: &str = "has \\w, \\W, \\b or \\B, which count other characters there";
const POSIX: &str = "has a class such as [:alpha:], which counts other characters there";
const FLAG: &str = "has the flag m or s, which means something else there";
const REPEAT: &str = "has {n}? or a + behind {n,m}, which mean something else there";
const SET: &str = "has -- or ~~ in a set, which are characters there";
const ESCAPE: &str = "has \\<, \\> or a \\p without braces, which are characters there";
const FOLD: &str = "ignores the case of letters that are equal to others there, such as ss and ß";

/// Returns the reason why the pattern of a step cannot be used, if there is one.
///
/// The pattern of a replacement must not match an empty text, because the library panics on that.
pub(crate) fn problem(pattern: &Value, replaced: bool) -> Option<String> {
    let empty = replaced.then(|| "also matches where there is nothing".to_owned());
    if let Some(text) = pattern["String"].as_str() {
        return empty.filter(|_| text.is_empty());
    }

    // One that is no expression is refused by the library, with the reason.
    let text = pattern["Regex"].as_str()?;
    let regex = Expression::new(text).ok()?;
    let differs = differs(text).map(|problem| {
        format!(
            "{text:?} {problem}: Oniguruma, in Python, and fancy-regex, here, would divide texts differently"
        )
    });
    differs.or_else(|| empty.filter(|_| regex.matches_nothing()))
}

/// Returns the part of an expression that Oniguruma and `fancy-regex` would interpret differently.
fn differs(text: &str) -> Option<&'static str> {
    let mut scan = Scan {
        rest: text,
        sets: 0,
    };
    loop {
        match scan.next() {
            ScanStep::End => break,
            ScanStep::Same => {}
            ScanStep::Differs(problem) => return Some(problem),
        }
    }

    let folds = |part: &str| {
        let lower = part.to_lowercase();
        !part.is_ascii()
            || ["ss", "ff", "fi", "fl", "st"]
                .iter()
                .any(|letters| lower.contains(letters))
    };
    caseless(text).any(folds).then_some(FOLD)
}

/// Returns the contents of groups with the flag `i`, and the text after a flag `i` without a group.
fn caseless(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("(?").filter_map(|(at, open)| {
        let group = &text[at + open.len()..];
        let flags = flags(group);
        let on = flags.split('-').next().is_some_and(|on| on.contains('i'));
        let body = &group[flags.len()..];
        on.then(|| body.strip_prefix(':').map_or(body, inside))
    })
}

/// A group's text up to its end.
fn inside(text: &str) -> &str {
    let (mut groups, mut sets, mut escaped) = (0, 0, false);
    let ends = |c| {
        match c {
            _ if escaped => {
                escaped = false;
                return false;
            }
            '\\' => escaped = true,
            '[' => sets += 1,
            ']' if sets > 0 => sets -= 1,
            '(' if sets == 0 => groups += 1,
            ')' if sets == 0 && groups == 0 => return true,
            ')' if sets == 0 => groups -= 1,
            _ => {}
        }
        false
    };
    text.find(ends).map_or(text, |end| &text[..end])
}

/// Returns the flags of a group, given the text after its `(?`.
fn flags(group: &str) -> &str {
    let end = group.find([':', ')']).unwrap_or(0);
    Some(&group[..end])
        .filter(|flags| flags.chars().all(|c| "imsx-".contains(c)))
        .unwrap_or_default()
}

/// An expression, as far as it has been read.
struct Scan<'a> {
    rest: &'a str,
    /// Sets that are open.
    sets: usize,
}

/// The result of reading a character or an escape of an expression.
enum ScanStep {
    /// The expression has ended.
    End,
    /// Both libraries interpret the character or escape in the same way.
    Same,
    /// The libraries interpret the character or escape differently, as the text describes.
    Differs(&'static str),
}

impl Scan<'_> {
    /// Reads a character or an escape.
    fn next(&mut self) -> ScanStep {
        let Some(c) = self.rest.chars().next() else {
            return ScanStep::End;
        };

        self.rest = &self.rest[c.len_utf8()..];
        let problem = match c {
            '\\' => self.escape(),
            '[' => self.set(),
            ']' => {
                self.sets = self.sets.saturating_sub(1);
                None
            }
            '-' | '~' if self.sets > 0 && self.rest.starts_with(c) => Some(SET),
            '^' | '$' if self.sets == 0 => Some(ANCHOR),
            '(' if self.sets == 0 && self.rest.starts_with('?') => {
                flags(&self.rest[1..]).contains(['m', 's']).then_some(FLAG)
            }
            '{' if self.sets == 0 => self.repeat(),
            _ => None,
        };
        problem.map_or(ScanStep::Same, ScanStep::Differs)
    }

    fn escape(&mut self) -> Option<&'static str> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        match c {
            'w' | 'W' => Some(WORD),
            'b' | 'B' if self.sets == 0 => Some(WORD),
            '<' | '>' => Some(ESCAPE),
            'p' | 'P' => match self
                .rest
                .strip_prefix('{')
                .and_then(|rest| rest.split_once('}'))
            {
                Some((_, rest)) => {
                    self.rest = rest;
                    None
                }
                None => Some(ESCAPE),
            },
            _ => None,
        }
    }

    /// The beginning of a set, of which a `]` at once is an element.
    fn set(&mut self) -> Option<&'static str> {
        if self.sets > 0 && self.rest.starts_with(':') {
            return Some(POSIX);
        }
        self.sets += 1;
        self.rest = self.rest.strip_prefix('^').unwrap_or(self.rest);
        self.rest = self.rest.strip_prefix(']').unwrap_or(self.rest);
        None
    }

    fn repeat(&mut self) -> Option<&'static str> {
        let (count, rest) = self.rest.split_once('}')?;
        let counts = count.chars().all(|c| c.is_ascii_digit() || c == ',');
        let differs = rest.starts_with('+') || rest.starts_with('?') && !count.contains(',');
        (counts && differs).then_some(REPEAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_libraries_understand_differently_is_named() {
        let cases = [
            ("^h", ANCHOR),
            ("(?=l|$)", ANCHOR),
            ("[^a]\\w", WORD),
            ("[\\W]", WORD),
            ("\\bw", WORD),
            ("[[:^alpha:]]", POSIX),
            ("(?m:.)+", FLAG),
            ("(?i-s:a)", FLAG),
            ("\\p{N}{1,3}+", REPEAT),
            ("x{2}?", REPEAT),
            ("[a-z--l]", SET),
            ("[a~~b]", SET),
            ("\\pL+", ESCAPE),
            ("\\<a", ESCAPE),
            ("(?i)OFF", FOLD),
            ("(?i:é)", FOLD),
            ("(?i:a(b)[)]\\)ss)", FOLD),
        ];
        for (text, problem) in cases {
            assert_eq!(differs(text), Some(problem), "{text}");
        }

        let same = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|[]^$-]{2,3}?|\\$\\^|[\\b~]|\
                    ss|é|(?<n>a)|(?<!m)a|l++|\\s+(?!\\S)|[a-z&&[^l]]|x{y}+";
        assert_eq!(differs(same), None);
    }

    #[test]
    fn a_replacement_replaces_something() {
        let pattern = |key: &str, text: &str| serde_json::json!({ key: text });
        let empty = Some("also matches where there is nothing".to_owned());
        assert_eq!(problem(&pattern("String", ""), true), empty);
        assert_eq!(problem(&pattern("Regex", "x*"), true), empty);
        assert_eq!(problem(&pattern("Regex", "x*"), false), None);
        assert_eq!(problem(&pattern("Regex", " {2,}"), true), None);
        assert_eq!(problem(&pattern("Regex", "("), true), None);
    }
}
