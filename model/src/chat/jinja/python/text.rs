//! Python's view of characters and texts: classes of characters, cases, `repr`, and numbers.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, HirKind};

/// Returns true for a character that Python treats as white space.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// A class of characters as sorted ranges.
type Ranges = Vec<(char, char)>;

/// Returns the ranges of a class that is written as a regular expression.
fn class(pattern: &str) -> Ranges {
    match regex_syntax::parse(pattern).map(|hir| hir.into_kind()) {
        Ok(HirKind::Class(Class::Unicode(class))) => class
            .iter()
            .map(|range| (range.start(), range.end()))
            .collect(),
        _ => vec![],
    }
}

/// Returns true if sorted ranges contain a character.
fn within(ranges: &[(char, char)], c: char) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= c);
    after > 0 && c <= ranges[after - 1].1
}

/// Defines a function that returns true for the characters of a class.
macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $pattern:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(c: char) -> bool {
            static RANGES: OnceLock<Ranges> = OnceLock::new();
            within(RANGES.get_or_init(|| class($pattern)), c)
        }
    )*};
}

classes! {
    /// Returns true for a letter, as `str.isalpha` takes it.
    is_letter = r"\p{L}";
    /// Returns true for a decimal digit, as `str.isdecimal` takes it.
    is_decimal = r"\p{Nd}";
    is_number = r"\p{N}";
    is_title = r"\p{Lt}";
    /// Returns true for a character that `repr` writes as an escape. The space is an exception.
    is_unprintable = r"[\p{C}\p{Z}]";
    /// Returns true for a character that `\w` matches in Python.
    is_identifier_start = r"[_\p{XID_Start}]";
    is_identifier_part = r"\p{XID_Continue}";
}

/// Characters that are digits to Python, although they are not decimal: superscripts and the like.
const DIGITS: [(char, char); 20] = [
    ('\u{b2}', '\u{b3}'),
    ('\u{b9}', '\u{b9}'),
    ('\u{1369}', '\u{1371}'),
    ('\u{19da}', '\u{19da}'),
    ('\u{2070}', '\u{2070}'),
    ('\u{2074}', '\u{2079}'),
    ('\u{2080}', '\u{2089}'),
    ('\u{2460}', '\u{2468}'),
    ('\u{2474}', '\u{247c}'),
    ('\u{2488}', '\u{2490}'),
    ('\u{24ea}', '\u{24ea}'),
    ('\u{24f5}', '\u{24fd}'),
    ('\u{24ff}', '\u{24ff}'),
    ('\u{2776}', '\u{277e}'),
    ('\u{2780}', '\u{2788}'),
    ('\u{278a}', '\u{2792}'),
    ('\u{10a40}', '\u{10a43}'),
    ('\u{10e60}', '\u{10e68}'),
    ('\u{11052}', '\u{1105a}'),
    ('\u{1f100}', '\u{1f10a}'),
];

/// Letters that are numbers to Python.
const NUMERALS: [(char, char); 72] = [
    ('\u{3405}', '\u{3405}'),
    ('\u{3483}', '\u{3483}'),
    ('\u{382a}', '\u{382a}'),
    ('\u{3b4d}', '\u{3b4d}'),
    ('\u{4e00}', '\u{4e00}'),
    ('\u{4e03}', '\u{4e03}'),
    ('\u{4e07}', '\u{4e07}'),
    ('\u{4e09}', '\u{4e09}'),
    ('\u{4e5d}', '\u{4e5d}'),
    ('\u{4e8c}', '\u{4e8c}'),
    ('\u{4e94}', '\u{4e94}'),
    ('\u{4e96}', '\u{4e96}'),
    ('\u{4ebf}', '\u{4ec0}'),
    ('\u{4edf}', '\u{4edf}'),
    ('\u{4ee8}', '\u{4ee8}'),
    ('\u{4f0d}', '\u{4f0d}'),
    ('\u{4f70}', '\u{4f70}'),
    ('\u{5104}', '\u{5104}'),
    ('\u{5146}', '\u{5146}'),
    ('\u{5169}', '\u{5169}'),
    ('\u{516b}', '\u{516b}'),
    ('\u{516d}', '\u{516d}'),
    ('\u{5341}', '\u{5341}'),
    ('\u{5343}', '\u{5345}'),
    ('\u{534c}', '\u{534c}'),
    ('\u{53c1}', '\u{53c4}'),
    ('\u{56db}', '\u{56db}'),
    ('\u{58f1}', '\u{58f1}'),
    ('\u{58f9}', '\u{58f9}'),
    ('\u{5e7a}', '\u{5e7a}'),
    ('\u{5efe}', '\u{5eff}'),
    ('\u{5f0c}', '\u{5f0e}'),
    ('\u{5f10}', '\u{5f10}'),
    ('\u{62fe}', '\u{62fe}'),
    ('\u{634c}', '\u{634c}'),
    ('\u{67d2}', '\u{67d2}'),
    ('\u{6f06}', '\u{6f06}'),
    ('\u{7396}', '\u{7396}'),
    ('\u{767e}', '\u{767e}'),
    ('\u{8086}', '\u{8086}'),
    ('\u{842c}', '\u{842c}'),
    ('\u{8cae}', '\u{8cae}'),
    ('\u{8cb3}', '\u{8cb3}'),
    ('\u{8d30}', '\u{8d30}'),
    ('\u{9621}', '\u{9621}'),
    ('\u{9646}', '\u{9646}'),
    ('\u{964c}', '\u{964c}'),
    ('\u{9678}', '\u{9678}'),
    ('\u{96f6}', '\u{96f6}'),
    ('\u{f96b}', '\u{f96b}'),
    ('\u{f973}', '\u{f973}'),
    ('\u{f978}', '\u{f978}'),
    ('\u{f9b2}', '\u{f9b2}'),
    ('\u{f9d1}', '\u{f9d1}'),
    ('\u{f9d3}', '\u{f9d3}'),
    ('\u{f9fd}', '\u{f9fd}'),
    ('\u{20001}', '\u{20001}'),
    ('\u{20064}', '\u{20064}'),
    ('\u{200e2}', '\u{200e2}'),
    ('\u{20121}', '\u{20121}'),
    ('\u{2092a}', '\u{2092a}'),
    ('\u{20983}', '\u{20983}'),
    ('\u{2098c}', '\u{2098c}'),
    ('\u{2099c}', '\u{2099c}'),
    ('\u{20aea}', '\u{20aea}'),
    ('\u{20afd}', '\u{20afd}'),
    ('\u{20b19}', '\u{20b19}'),
    ('\u{22390}', '\u{22390}'),
    ('\u{22998}', '\u{22998}'),
    ('\u{23b1b}', '\u{23b1b}'),
    ('\u{2626d}', '\u{2626d}'),
    ('\u{2f890}', '\u{2f890}'),
];

/// Characters whose title case is not their upper case with small letters after the first.
const TITLES: [(char, &str); 76] = [
    ('ŉ', "ʼN"),
    ('Ǆ', "ǅ"),
    ('ǅ', "ǅ"),
    ('ǆ', "ǅ"),
    ('Ǉ', "ǈ"),
    ('ǈ', "ǈ"),
    ('ǉ', "ǈ"),
    ('Ǌ', "ǋ"),
    ('ǋ', "ǋ"),
    ('ǌ', "ǋ"),
    ('Ǳ', "ǲ"),
    ('ǲ', "ǲ"),
    ('ǳ', "ǲ"),
    ('ᾀ', "ᾈ"),
    ('ᾁ', "ᾉ"),
    ('ᾂ', "ᾊ"),
    ('ᾃ', "ᾋ"),
    ('ᾄ', "ᾌ"),
    ('ᾅ', "ᾍ"),
    ('ᾆ', "ᾎ"),
    ('ᾇ', "ᾏ"),
    ('ᾈ', "ᾈ"),
    ('ᾉ', "ᾉ"),
    ('ᾊ', "ᾊ"),
    ('ᾋ', "ᾋ"),
    ('ᾌ', "ᾌ"),
    ('ᾍ', "ᾍ"),
    ('ᾎ', "ᾎ"),
    ('ᾏ', "ᾏ"),
    ('ᾐ', "ᾘ"),
    ('ᾑ', "ᾙ"),
    ('ᾒ', "ᾚ"),
    ('ᾓ', "ᾛ"),
    ('ᾔ', "ᾜ"),
    ('ᾕ', "ᾝ"),
    ('ᾖ', "ᾞ"),
    ('ᾗ', "ᾟ"),
    ('ᾘ', "ᾘ"),
    ('ᾙ', "ᾙ"),
    ('ᾚ', "ᾚ"),
    ('ᾛ', "ᾛ"),
    ('ᾜ', "ᾜ"),
    ('ᾝ', "ᾝ"),
    ('ᾞ', "ᾞ"),
    ('ᾟ', "ᾟ"),
    ('ᾠ', "ᾨ"),
    ('ᾡ', "ᾩ"),
    ('ᾢ', "ᾪ"),
    ('ᾣ', "ᾫ"),
    ('ᾤ', "ᾬ"),
    ('ᾥ', "ᾭ"),
    ('ᾦ', "ᾮ"),
    ('ᾧ', "ᾯ"),
    ('ᾨ', "ᾨ"),
    ('ᾩ', "ᾩ"),
    ('ᾪ', "ᾪ"),
    ('ᾫ', "ᾫ"),
    ('ᾬ', "ᾬ"),
    ('ᾭ', "ᾭ"),
    ('ᾮ', "ᾮ"),
    ('ᾯ', "ᾯ"),
    ('ᾲ', "Ὰ\u{345}"),
    ('ᾳ', "ᾼ"),
    ('ᾴ', "Ά\u{345}"),
    ('ᾷ', "Α\u{342}\u{345}"),
    ('ᾼ', "ᾼ"),
    ('ῂ', "Ὴ\u{345}"),
    ('ῃ', "ῌ"),
    ('ῄ', "Ή\u{345}"),
    ('ῇ', "Η\u{342}\u{345}"),
    ('ῌ', "ῌ"),
    ('ῲ', "Ὼ\u{345}"),
    ('ῳ', "ῼ"),
    ('ῴ', "Ώ\u{345}"),
    ('ῷ', "Ω\u{342}\u{345}"),
    ('ῼ', "ῼ"),
];

/// Returns true for a digit, including superscripts, as in `str.isdigit`.
pub(crate) fn is_digit(c: char) -> bool {
    is_decimal(c) || within(&DIGITS, c)
}

/// Returns true for a number, including fractions and numerals, as in `str.isnumeric`.
pub(crate) fn is_numeric(c: char) -> bool {
    is_number(c) || within(&NUMERALS, c)
}

/// Returns true for a letter or a number, as in `str.isalnum`.
pub(crate) fn is_alphanumeric(c: char) -> bool {
    is_letter(c) || is_numeric(c)
}

/// Returns true for a character that `repr` writes as it is.
pub(crate) fn is_printable(c: char) -> bool {
    c == ' ' || !is_unprintable(c)
}

/// Returns true for a character that has a case.
pub(crate) fn is_cased(c: char) -> bool {
    c.is_uppercase() || c.is_lowercase() || is_title(c)
}

/// Appends a character in title case.
fn push_title(c: char, out: &mut String) {
    if let Some((_, title)) = TITLES.iter().find(|(known, _)| *known == c) {
        out.push_str(title);
    } else if matches!(c, '\u{10d0}'..='\u{10ff}') {
        // Georgian has capitals, but not in titles.
        out.push(c);
    } else {
        let mut upper = c.to_uppercase();
        out.extend(upper.next());
        for c in upper {
            out.extend(c.to_lowercase());
        }
    }
}

/// Returns the lower case of the text from `at` on. The whole text matters, because a sigma at the
/// end of a word depends on the letter before it.
fn lower_from(text: &str, at: usize) -> String {
    let len = text[at..].to_lowercase().len();
    let whole = text.to_lowercase();
    whole[whole.len() - len..].to_owned()
}

/// Returns the text as `str.capitalize` changes it.
pub(crate) fn capitalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    if let Some(first) = text.chars().next() {
        push_title(first, &mut out);
        out += &lower_from(text, first.len_utf8());
    }
    out
}

/// Returns the text as `str.title` changes it.
pub(crate) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for (at, c) in text.char_indices() {
        if !in_word {
            push_title(c, &mut out);
        } else if c == '\u{3a3}' {
            out.extend(lower_from(&text[..at + 2], at).chars().next());
        } else {
            out.extend(c.to_lowercase());
        }
        in_word = is_cased(c);
    }

    out
}

/// Returns the text as `str.swapcase` changes it.
pub(crate) fn swapcase(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if c == '\u{3a3}' {
            out += &lower_from(&text[..at + 2], at);
        } else if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else if c.is_lowercase() {
            out.extend(c.to_uppercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns the text as `str.casefold` changes it.
pub(crate) fn casefold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Cherokee folds to capitals.
            '\u{13a0}'..='\u{13f5}' => out.push(c),
            '\u{13f8}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' => out.extend(c.to_uppercase()),
            '\u{1e9e}' => out.push_str("ss"),
            // The upper case of the dotless i is `I`, whose lower case is another letter.
            '\u{131}' => out.push(c),
            _ => {
                for upper in c.to_uppercase() {
                    out.extend(upper.to_lowercase());
                }
            }
        }
    }
    out
}

/// Returns the lines of a text as `str.splitlines` does.
pub(crate) fn lines(text: &str, keep_ends: Ends) -> Vec<&str> {
    let is_break = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = vec![];
    let mut rest = text;
    while let Some(at) = rest.find(is_break) {
        let width = match rest[at..].chars().next() {
            Some('\r') if rest[at + 1..].starts_with('\n') => 2,
            Some(c) => c.len_utf8(),
            None => 0,
        };
        lines.push(match keep_ends {
            Ends::Kept => &rest[..at + width],
            Ends::Removed => &rest[..at],
        });
        rest = &rest[at + width..];
    }

    if !rest.is_empty() {
        lines.push(rest);
    }

    lines
}

/// The treatment of line breaks at the end of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    Kept,
    Removed,
}

/// Returns the character with a name in the Unicode standard, for the escape `\N{..}`.
pub(crate) fn named(name: &str) -> Option<char> {
    unicode_names2::character(name)
}

/// Returns Python's `repr` of a string.
pub(crate) fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => out += &escaped(c),
        }
    }

    out.push(quote);
    out
}

/// Returns the escape of a character: `\xXX`, `\uXXXX` or `\UXXXXXXXX`.
pub(crate) fn escaped(c: char) -> String {
    match u32::from(c) {
        code @ 0..0x100 => format!("\\x{code:02x}"),
        code @ 0x100..0x1_0000 => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// Returns Python's `repr` of a float: the fewest digits that are read back as the same number.
pub(crate) fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) {
        return format!("{x:?}");
    }

    exponential(&format!("{x:e}"), 'e')
}

/// Rewrites the exponent of a number as Python does: with a sign and at least two digits.
pub(crate) fn exponential(text: &str, letter: char) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}{letter}{sign}{exponent:0>2}")
}

/// Escapes the special characters of HTML, as the Python package markupsafe does.
pub(crate) fn html_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            _ => out.push(c),
        }
    }
    out
}
