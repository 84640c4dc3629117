//! Python's formatting with `"%s" % value` and `"{}".format(value)`, and its parsing of numbers.
//!
//! Sources: "printf-style String Formatting" and "Format String Syntax" in the Python 3 library
//! reference. Error messages are those of CPython where templates are likely to cause them.

use crate::chat::jinja::error::Error;
use crate::chat::jinja::python::arguments::Arguments;
use crate::chat::jinja::python::host::Host;
use crate::chat::jinja::python::text;
use crate::chat::jinja::python::value::{Dict, Value};

type Run<T> = Result<T, Error>;

/// Returns an error.
fn failed<T>(problem: impl Into<String>) -> Run<T> {
    Err(Error::failed(problem))
}

/// Returns the text of a number without white space around it and underscores between digits, or
/// `None` if an underscore is elsewhere.
fn plain_number(text: &str) -> Run<Option<String>> {
    let text = text.trim_matches(text::is_space);
    if text.chars().any(|c| !c.is_ascii() && text::is_decimal(c)) {
        return failed("numbers in other digits than 0 to 9 are not supported");
    }

    let bytes = text.as_bytes();
    let alphanumeric = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    let misplaced = |(at, byte): (usize, &u8)| {
        *byte == b'_' && !(at > 0 && alphanumeric(at - 1) && alphanumeric(at + 1))
    };
    Ok((!bytes.iter().enumerate().any(misplaced)).then(|| text.replace('_', "")))
}

/// Returns Python's `float(text)`, or `None` if it raises a `ValueError`.
pub(crate) fn parse_float(text: &str) -> Run<Option<f64>> {
    let Some(text) = plain_number(text)? else {
        return Ok(None);
    };
    Ok(text.parse().ok())
}

/// Returns Python's `int(text, base)`, or `None` if it raises a `ValueError`.
pub(crate) fn parse_int(text: &str, base: i128) -> Run<Option<i128>> {
    let Some(text) = plain_number(text)? else {
        return Ok(None);
    };

    let (negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, &*text),
    };
    let prefixes = [("0b", 2), ("0o", 8), ("0x", 16)];
    let prefixed = prefixes.iter().find_map(|(prefix, radix)| {
        let head = digits.get(..2)?;
        head.eq_ignore_ascii_case(prefix)
            .then_some((*radix, &digits[2..]))
    });

    // Base 0 takes the radix from the prefix. It rejects leading zeros, which were octal in Python
    // 2.
    let (radix, digits) = match (base, prefixed) {
        (0, Some(found)) => found,
        (0, None)
            if digits.len() > 1
                && digits.starts_with('0')
                && !digits.trim_matches('0').is_empty() =>
        {
            return Ok(None);
        }
        (0, None) => (10, digits),
        (base, Some((radix, digits))) if base == radix => (radix, digits),
        (base @ 2..=36, _) => (base, digits),
        _ => return Ok(None),
    };
    let radix = radix as u32;
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Ok(None);
    }

    match i128::from_str_radix(digits, radix) {
        Ok(number) => Ok(Some(if negative { -number } else { number })),
        Err(_) => failed("a whole number is beyond 128 bits"),
    }
}

/// Returns Python's `int(number)` for a float.
pub(crate) fn whole(number: f64) -> Run<i128> {
    if !number.is_finite() || number.abs() >= 2f64.powi(127) {
        return failed("cannot convert the float to a whole number of 128 bits");
    }
    Ok(number as i128)
}

/// Formats a finite float with a fixed number of digits after the point.
fn fixed(number: f64, precision: usize) -> String {
    format!("{number:.precision$}")
}

/// Formats a finite float with an exponent.
fn scientific(number: f64, precision: usize) -> String {
    text::exponential(&format!("{number:.precision$e}"), 'e')
}

/// The decimal point of a float.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Point {
    Always,
    IfNeeded,
}

/// Formats a finite float with `precision` digits as `%g` does: with an exponent if it is small or
/// large.
fn general(number: f64, precision: usize, point: Point) -> String {
    let precision = precision.max(1);

    // The exponent is known only after rounding, because 9.99 may become 10.0.
    let text = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let most = precision as i32 - i32::from(point == Point::Always);
    let trimmed = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if exponent < -4 || exponent >= most {
        return text::exponential(&format!("{}e{exponent}", trimmed(digits)), 'e');
    }

    let places = (precision as i32 - 1 - exponent).max(0) as usize;
    let text = trimmed(&fixed(number, places));
    if point == Point::Always && !text.contains('.') {
        text + ".0"
    } else {
        text
    }
}

/// Formats a float for one of the letters e, E, f, F, g and G.
fn float(number: f64, letter: char, precision: usize) -> String {
    let magnitude = number.abs();
    let text = if magnitude.is_nan() {
        "nan".to_owned()
    } else if magnitude.is_infinite() {
        "inf".to_owned()
    } else {
        match letter {
            'e' | 'E' => scientific(magnitude, precision),
            'f' | 'F' => fixed(magnitude, precision),
            _ => general(magnitude, precision, Point::IfNeeded),
        }
    };
    if letter.is_ascii_uppercase() {
        text.to_uppercase()
    } else {
        text
    }
}

/// Returns the digits of a whole number in the radix of a letter.
fn digits(number: u128, letter: char) -> String {
    match letter {
        'b' => format!("{number:b}"),
        'o' => format!("{number:o}"),
        'x' => format!("{number:x}"),
        'X' => format!("{number:X}"),
        _ => number.to_string(),
    }
}

/// Returns Python's `ascii(value)`.
fn ascii(value: &Value) -> Run<String> {
    let text = value.repr()?;
    Ok(text
        .chars()
        .map(|c| {
            if c.is_ascii() {
                c.to_string()
            } else {
                text::escaped(c)
            }
        })
        .collect())
}

// Formatting with `%`

/// The flags, the width and the precision of a conversion.
#[derive(Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    alternative: bool,
    width: usize,
    precision: Option<usize>,
}

/// The values of a format.
struct Values<'a> {
    values: &'a [Value],
    at: usize,
    /// The value for named conversions.
    dict: Option<&'a Dict>,
}

impl Values<'_> {
    /// Takes the next positional value.
    fn next(&mut self) -> Run<Value> {
        let value = self.values.get(self.at).cloned();
        self.at += 1;
        value.ok_or_else(|| Error::failed("not enough arguments for format string"))
    }

    /// Reads the number for a `*`.
    fn star(&mut self) -> Run<i128> {
        self.next()?
            .as_int()
            .ok_or_else(|| Error::failed("* wants int"))
    }
}

/// The maximum width and precision of a format.
const WIDEST: usize = 1 << 20;

/// Returns an error if a width or precision is too large.
fn bounded(number: usize) -> Run<usize> {
    if number > WIDEST {
        failed(format!("a width or precision is greater than {WIDEST}"))
    } else {
        Ok(number)
    }
}

/// Reads the digits at the beginning of a text, and returns their number and their length.
fn leading_number(text: &str) -> Run<(Option<usize>, usize)> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    if len == 0 {
        return Ok((None, 0));
    }
    Ok((
        Some(bounded(text[..len].parse().unwrap_or(usize::MAX))?),
        len,
    ))
}

/// Returns Python's `text % values`.
pub(crate) fn percent(host: &mut dyn Host, text: &str, right: &Value) -> Run<Value> {
    let single = [right.clone()];
    let mut values = Values {
        values: match right {
            Value::Tuple(items) | Value::Group(items) => items,
            _ => &single,
        },
        at: 0,
        dict: match right {
            Value::Dict(dict) => Some(dict),
            _ => None,
        },
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        rest = conversion(host, &rest[at + 1..], &mut values, &mut out)?;
        host.pay_text(out.len())?;
    }

    out += rest;

    // Python does not count the values of an object that has items by key.
    let keyed = matches!(
        right,
        Value::Dict(_) | Value::List(_) | Value::Range(_) | Value::Undefined(_)
    );
    if values.at < values.values.len() && !keyed {
        return failed("not all arguments converted during string formatting");
    }

    host.pay_text(out.len())?;
    Ok(out.into())
}

/// Writes one conversion after its `%`, and returns the text after it.
fn conversion<'t>(
    host: &mut dyn Host,
    text: &'t str,
    values: &mut Values<'_>,
    out: &mut String,
) -> Run<&'t str> {
    if let Some(rest) = text.strip_prefix('%') {
        out.push('%');
        return Ok(rest);
    }

    let mut rest = text;
    let mut named = None;
    if let Some(inner) = rest.strip_prefix('(') {
        // A key may contain balanced parentheses.
        let mut depth = 1;
        let end = inner.find(|c| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        });
        let Some(end) = end else {
            return failed("incomplete format key");
        };
        let Some(dict) = values.dict else {
            return failed("format requires a mapping");
        };

        let key = &inner[..end];
        let Some(value) = dict.get_str(key) else {
            return failed(format!("no value for the key {key:?}"));
        };

        named = Some(value.clone());
        rest = &inner[end + 1..];
    }

    let mut style = Conversion::default();
    while let Some(flag) = rest.chars().next().filter(|c| "-+ #0".contains(*c)) {
        match flag {
            '-' => style.left = true,
            '+' => style.plus = true,
            ' ' => style.space = true,
            '#' => style.alternative = true,
            _ => style.zero = true,
        }
        rest = &rest[1..];
    }

    if let Some(after) = rest.strip_prefix('*') {
        // A negative width from a value is the flag `-`.
        let width = values.star()?;
        style.left |= width < 0;
        style.width = bounded(usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX))?;
        rest = after;
    } else {
        let (width, len) = leading_number(rest)?;
        style.width = width.unwrap_or(0);
        rest = &rest[len..];
    }

    if let Some(after) = rest.strip_prefix('.') {
        if let Some(after) = after.strip_prefix('*') {
            let precision = values.star()?.max(0);
            style.precision = Some(bounded(usize::try_from(precision).unwrap_or(usize::MAX))?);
            rest = after;
        } else {
            let (precision, len) = leading_number(after)?;
            style.precision = Some(precision.unwrap_or(0));
            rest = &after[len..];
        }
    }

    // Python accepts the length modifiers of C and ignores them.
    rest = rest.strip_prefix(['h', 'l', 'L']).unwrap_or(rest);
    let Some(letter) = rest.chars().next() else {
        return failed("incomplete format");
    };

    rest = &rest[letter.len_utf8()..];
    if !"diouxXeEfFgGcrsa%".contains(letter) {
        return failed(format!("unsupported format character '{letter}'"));
    }

    let value = match named {
        Some(value) => value,
        None => values.next()?,
    };

    // With flags or a width, `%%` takes a value that it does not write.
    if letter == '%' {
        out.push('%');
        return Ok(rest);
    }

    let (sign, body) = converted(host, &value, letter, &style)?;
    let len = sign.chars().count() + body.chars().count();
    let space = style.width.saturating_sub(len);
    let numeric = !matches!(letter, 'c' | 'r' | 's' | 'a');
    if style.left {
        *out += &format!("{sign}{body}{}", " ".repeat(space));
    } else if style.zero && numeric {
        *out += &format!("{sign}{}{body}", "0".repeat(space));
    } else {
        *out += &format!("{}{sign}{body}", " ".repeat(space));
    }

    Ok(rest)
}

/// Returns the sign with the prefix of the radix, and the rest of a converted value.
fn converted(
    host: &mut dyn Host,
    value: &Value,
    letter: char,
    style: &Conversion,
) -> Run<(String, String)> {
    if matches!(value, Value::Markup(_)) {
        return failed("formatting an escaped string with % is not supported");
    }

    let sign = |negative: bool| {
        if negative {
            "-"
        } else if style.plus {
            "+"
        } else if style.space {
            " "
        } else {
            ""
        }
    };
    let cut = |text: String| match style.precision {
        Some(most) => text.chars().take(most).collect(),
        None => text,
    };
    match letter {
        's' => Ok((String::new(), cut(host.text(value)?.to_string()))),
        'r' => Ok((String::new(), cut(value.repr()?))),
        'a' => Ok((String::new(), cut(ascii(value)?))),
        'c' => match (value.as_str(), value.as_int()) {
            (Some(text), _) if text.chars().count() == 1 => Ok((String::new(), text.to_owned())),
            (None, Some(code)) => match u32::try_from(code).ok().and_then(char::from_u32) {
                Some(c) => Ok((String::new(), c.to_string())),
                None => failed("%c arg not in range(0x110000)"),
            },
            _ => failed("%c requires int or char"),
        },
        'd' | 'i' | 'u' | 'o' | 'x' | 'X' => {
            // The decimal conversions truncate floats. The others reject them.
            let number = match value {
                Value::Float(number) if matches!(letter, 'd' | 'i' | 'u') => Some(whole(*number)?),
                _ => value.as_int(),
            };
            let Some(number) = number else {
                let kind = value.type_name();
                return failed(format!(
                    "%{letter} format: a number is required, not {kind}"
                ));
            };

            let digits = digits(number.unsigned_abs(), letter);
            let least = style.precision.unwrap_or(0);
            let prefix = match letter {
                'o' | 'x' | 'X' if style.alternative => format!("0{letter}"),
                _ => String::new(),
            };
            Ok((
                format!("{}{prefix}", sign(number < 0)),
                format!("{digits:0>least$}"),
            ))
        }
        _ => {
            let number = value.as_float();
            let Some(number) = number else {
                return failed(format!("must be real number, not {}", value.type_name()));
            };
            if style.alternative {
                return failed(format!("%#{letter} is not supported"));
            }

            let text = float(number, letter, style.precision.unwrap_or(6));
            let negative = number.is_sign_negative() && !number.is_nan();
            Ok((sign(negative).to_owned(), text))
        }
    }
}

// Formatting with braces

/// The numbering of the fields of a format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbering {
    Unknown,
    Automatic(usize),
    Manual,
}

/// Returns Python's `text.format(..)`.
pub(crate) fn braces(host: &mut dyn Host, text: &str, arguments: Arguments) -> Run<Value> {
    let mut numbering = Numbering::Unknown;
    let formatted = fields(host, text, &arguments, &mut numbering, 2)?;
    Ok(formatted.into())
}

/// Replaces the fields of a format. `depth` is the number of levels that fields may be nested in
/// format specifications.
fn fields(
    host: &mut dyn Host,
    text: &str,
    arguments: &Arguments,
    numbering: &mut Numbering,
    depth: usize,
) -> Run<String> {
    if depth == 0 {
        return failed("Max string recursion exceeded");
    }

    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out += &rest[..at];
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out += brace;
            rest = after;
            continue;
        }

        if brace == "}" {
            return failed("Single '}' encountered in format string");
        }

        // A brace in `[..]` of the name is part of an index and does not end the field.
        let mut open = 1;
        let mut in_index = false;
        let end = rest.find(|c| {
            match c {
                '[' if open == 1 => in_index = true,
                ']' => in_index = false,
                '{' if !in_index => open += 1,
                '}' if !in_index => open -= 1,
                _ => {}
            }
            open == 0
        });
        let Some(end) = end else {
            return failed(if rest.is_empty() {
                "Single '{' encountered in format string"
            } else {
                "expected '}' before end of string"
            });
        };

        let field = &rest[..end];
        rest = &rest[end + 1..];
        out += &self::field(host, field, arguments, numbering, depth)?;
        host.pay_text(out.len())?;
    }

    out += rest;
    host.pay_text(out.len())?;
    Ok(out)
}

/// Formats one field, `name!conversion:spec`.
fn field(
    host: &mut dyn Host,
    field: &str,
    arguments: &Arguments,
    numbering: &mut Numbering,
    depth: usize,
) -> Run<String> {
    // A `!` or `:` within `[..]` belongs to the name.
    let mut in_index = false;
    let end = field.find(|c| {
        match c {
            '[' => in_index = true,
            ']' => in_index = false,
            _ => {}
        }
        !in_index && matches!(c, '!' | ':')
    });
    let (name, mut after) = field.split_at(end.unwrap_or(field.len()));
    let mut conversion = None;
    if let Some(rest) = after.strip_prefix('!') {
        let Some(letter) = rest.chars().next() else {
            return failed("end of string while looking for conversion specifier");
        };
        conversion = Some(letter);
        after = &rest[letter.len_utf8()..];
        if !after.is_empty() && !after.starts_with(':') {
            return failed("expected ':' after conversion specifier");
        }
    }

    let value = self::value(host, name, arguments, numbering)?;
    let value = match conversion {
        None => value,
        Some('s') => Value::String(host.text(&value)?),
        Some('r') => value.repr()?.into(),
        Some('a') => ascii(&value)?.into(),
        Some(letter) => return failed(format!("Unknown conversion specifier {letter}")),
    };
    let spec = match after.strip_prefix(':') {
        None | Some("") => String::new(),
        Some(spec) => fields(host, spec, arguments, numbering, depth - 1)?,
    };
    formatted(host, &value, &spec)
}

/// Returns the value of a field, `name.attribute[index]`.
fn value(
    host: &mut dyn Host,
    name: &str,
    arguments: &Arguments,
    numbering: &mut Numbering,
) -> Run<Value> {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at(end);
    let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());

    // Fields without a number are counted, and one format may not mix both.
    let index = match (first.is_empty(), is_number, *numbering) {
        (true, _, Numbering::Manual) => {
            return failed(
                "cannot switch from manual field specification to automatic field numbering",
            );
        }
        (true, _, Numbering::Unknown) => {
            *numbering = Numbering::Automatic(1);
            Some(0)
        }
        (true, _, Numbering::Automatic(next)) => {
            *numbering = Numbering::Automatic(next + 1);
            Some(next)
        }
        (false, true, Numbering::Automatic(_)) => {
            return failed(
                "cannot switch from automatic field numbering to manual field specification",
            );
        }
        (false, true, Numbering::Unknown | Numbering::Manual) => {
            *numbering = Numbering::Manual;
            Some(first.parse().unwrap_or(usize::MAX))
        }
        (false, false, _) => None,
    };
    let found = match index {
        Some(index) => arguments.positional.get(index),
        None => arguments
            .named
            .iter()
            .find(|(known, _)| known == first)
            .map(|(_, value)| value),
    };
    let Some(found) = found else {
        return failed(match index {
            Some(index) => {
                format!("Replacement index {index} out of range for positional args tuple")
            }
            None => format!("no value for the field {first:?}"),
        });
    };

    let mut value = found.clone();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            if end == 0 {
                return failed("Empty attribute in format string");
            }
            value = host.attribute(&value, &after[..end])?;
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let Some(end) = after.find(']') else {
                return failed("Missing ']' in format string");
            };

            let index = &after[..end];
            if index.is_empty() {
                return failed("Empty attribute in format string");
            }

            let index = match index.parse::<i128>() {
                Ok(number) if index.bytes().all(|byte| byte.is_ascii_digit()) => Value::Int(number),
                _ => index.into(),
            };
            value = host.item(&value, &index)?;
            rest = &after[end + 1..];
        } else {
            return failed("Only '.' or '[' may follow ']' in format field specifier");
        }
    }

    Ok(value)
}

/// A format specification: `[[fill]align][sign][z][#][0][width][grouping][.precision][type]`
struct Spec {
    fill: char,
    align: Option<char>,
    sign: char,
    positive_zero: bool,
    alternative: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    letter: Option<char>,
}

impl Spec {
    /// Parses a specification for a value of the type `kind`.
    fn parse(text: &str, kind: &str) -> Run<Spec> {
        let mut rest = text;
        let mut spec = Spec {
            fill: ' ',
            align: None,
            sign: '-',
            positive_zero: false,
            alternative: false,
            zero: false,
            width: 0,
            grouping: None,
            precision: None,
            letter: None,
        };
        let mut fills = false;
        let is_align = |c: char| matches!(c, '<' | '>' | '=' | '^');

        // A character is a fill only if an alignment follows, because both use the same characters.
        let mut chars = rest.chars();
        match (chars.next(), chars.next()) {
            (Some(fill), Some(align)) if is_align(align) => {
                fills = true;
                spec.fill = fill;
                spec.align = Some(align);
                rest = chars.as_str();
            }
            (Some(align), _) if is_align(align) => {
                spec.align = Some(align);
                rest = &rest[1..];
            }
            _ => {}
        }

        if let Some(sign) = rest.chars().next().filter(|c| matches!(c, '+' | '-' | ' ')) {
            spec.sign = sign;
            if kind == "str" {
                return failed("Sign not allowed in string format specifier");
            }
            rest = &rest[1..];
        }

        let mut skip = |sign: char| match rest.strip_prefix(sign) {
            Some(after) => {
                rest = after;
                true
            }
            None => false,
        };
        spec.positive_zero = skip('z');
        spec.alternative = skip('#');
        if skip('0') {
            spec.zero = true;
            if !fills {
                spec.fill = '0';
            }
            if spec.align.is_none() && kind != "str" {
                spec.align = Some('=');
            }
        }

        let (width, len) = leading_number(rest)?;
        spec.width = width.unwrap_or(0);
        rest = &rest[len..];
        if let Some(grouping) = rest.chars().next().filter(|c| matches!(c, ',' | '_')) {
            spec.grouping = Some(grouping);
            rest = &rest[1..];
        }

        if let Some(after) = rest.strip_prefix('.') {
            let (precision, len) = leading_number(after)?;
            if precision.is_none() {
                return failed("Format specifier missing precision");
            }
            spec.precision = precision;
            rest = &after[len..];
        }

        let mut letters = rest.chars();
        spec.letter = letters.next();
        if letters.next().is_some() {
            return failed(format!(
                "Invalid format specifier '{text}' for object of type '{kind}'"
            ));
        }

        Ok(spec)
    }

    /// Returns the error for a letter that the type does not have.
    fn unknown<T>(&self, kind: &str) -> Run<T> {
        let letter = self.letter.unwrap_or(' ');
        failed(format!(
            "Unknown format code '{letter}' for object of type '{kind}'"
        ))
    }

    /// Pads a text on the side of the alignment.
    fn padded(&self, sign: &str, body: &str, default: char) -> String {
        let len = sign.chars().count() + body.chars().count();
        let space = self.width.saturating_sub(len);
        let fill = |count: usize| self.fill.to_string().repeat(count);
        match self.align.unwrap_or(default) {
            '<' => format!("{sign}{body}{}", fill(space)),
            '^' => format!("{}{sign}{body}{}", fill(space / 2), fill(space - space / 2)),
            '=' => format!("{sign}{}{body}", fill(space)),
            _ => format!("{}{sign}{body}", fill(space)),
        }
    }

    /// Formats a number from its parts.
    fn number(&self, parts: &NumberParts<'_>) -> String {
        let NumberParts {
            sign,
            prefix,
            whole,
            rest,
            group,
        } = *parts;
        let sign = match (sign, self.sign) {
            (NumberSign::Negative, _) => "-",
            (NumberSign::Positive, '+') => "+",
            (NumberSign::Positive, ' ') => " ",
            (NumberSign::Positive, _) => "",
        };
        let sign = format!("{sign}{prefix}");
        let Some(separator) = self.grouping else {
            return self.padded(&sign, &format!("{whole}{rest}"), '>');
        };

        let grouped = |digits: &str| {
            let mut out = String::new();
            for (i, c) in digits.chars().enumerate() {
                if i > 0 && (digits.len() - i).is_multiple_of(group) {
                    out.push(separator);
                }
                out.push(c);
            }
            out
        };
        let mut digits = whole.to_owned();

        // Zeros that fill a number are grouped too.
        if self.zero && self.fill == '0' && self.align == Some('=') {
            while sign.len() + grouped(&digits).len() + rest.len() < self.width {
                digits.insert(0, '0');
            }
        }

        self.padded(&sign, &format!("{}{rest}", grouped(&digits)), '>')
    }
}

/// The sign of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NumberSign {
    Negative,
    Positive,
}

impl NumberSign {
    fn new(is_negative: bool) -> NumberSign {
        if is_negative {
            NumberSign::Negative
        } else {
            NumberSign::Positive
        }
    }
}

/// The parts of a formatted number.
struct NumberParts<'a> {
    sign: NumberSign,
    /// The prefix of the radix, such as `0x`.
    prefix: &'a str,
    /// The digits in front of the point.
    whole: &'a str,
    /// The text after these digits, from the point on.
    rest: &'a str,
    /// The number of digits between two separators.
    group: usize,
}

/// Returns Python's `format(value, spec)`.
fn formatted(host: &mut dyn Host, value: &Value, spec: &str) -> Run<String> {
    if matches!(value, Value::Markup(_)) {
        return failed("formatting an escaped string is not supported");
    }
    if spec.is_empty() {
        return Ok(host.text(value)?.to_string());
    }
    match value {
        Value::String(text) => {
            let spec = Spec::parse(spec, "str")?;
            if !matches!(spec.letter, None | Some('s')) {
                return spec.unknown("str");
            }

            if spec.align == Some('=')
                || spec.grouping.is_some()
                || spec.alternative
                || spec.positive_zero
            {
                return failed(
                    "'=' alignment, '#', 'z' and separators are not allowed for a string",
                );
            }

            let text: String = match spec.precision {
                Some(most) => text.chars().take(most).collect(),
                None => text.to_string(),
            };
            Ok(spec.padded("", &text, '<'))
        }
        Value::Int(_) | Value::Bool(_) => {
            let kind = value.type_name();
            let spec = Spec::parse(spec, kind)?;
            let number = value.as_int().unwrap_or(0);
            match spec.letter.unwrap_or('d') {
                'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' => float_spec(&spec, number as f64),
                letter @ ('b' | 'o' | 'd' | 'n' | 'x' | 'X' | 'c') => {
                    if spec.precision.is_some() {
                        return failed("Precision not allowed in integer format specifier");
                    }
                    if spec.positive_zero {
                        return failed(
                            "Negative zero coercion (z) not allowed in format specifier",
                        );
                    }
                    int_spec(&spec, number, letter)
                }
                _ => spec.unknown(kind),
            }
        }
        Value::Float(number) => {
            let spec = Spec::parse(spec, "float")?;
            float_spec(&spec, *number)
        }
        _ => failed(format!(
            "unsupported format string passed to {}.__format__",
            value.type_name()
        )),
    }
}

/// Formats a whole number with a letter.
fn int_spec(spec: &Spec, number: i128, letter: char) -> Run<String> {
    if letter == 'c' {
        if spec.sign != '-' || spec.grouping.is_some() || spec.alternative {
            return failed("sign, '#' and separators are not allowed with the format code 'c'");
        }
        let c = u32::try_from(number).ok().and_then(char::from_u32);
        let Some(c) = c else {
            return failed("%c arg not in range(0x110000)");
        };
        return Ok(spec.padded("", &c.to_string(), '<'));
    }

    let binary = matches!(letter, 'b' | 'o' | 'x' | 'X');
    if spec.grouping == Some(',') && (binary || letter == 'n')
        || spec.grouping.is_some() && letter == 'n'
    {
        return failed(format!("Cannot specify the separator with '{letter}'."));
    }

    let prefix = if spec.alternative && binary {
        format!("0{letter}")
    } else {
        String::new()
    };
    let digits = digits(number.unsigned_abs(), letter);
    Ok(spec.number(&NumberParts {
        sign: NumberSign::new(number < 0),
        prefix: &prefix,
        whole: &digits,
        rest: "",
        group: if binary { 4 } else { 3 },
    }))
}

/// Formats a float.
fn float_spec(spec: &Spec, number: f64) -> Run<String> {
    if spec.alternative {
        return failed("'#' is not supported for a float");
    }

    let magnitude = number.abs();
    let text = match spec.letter {
        None if spec.precision.is_none() => text::float(magnitude),
        None if magnitude.is_finite() => {
            general(magnitude, spec.precision.unwrap_or(6), Point::Always)
        }
        None => float(magnitude, 'g', 6),
        Some('%') => float(magnitude * 100.0, 'f', spec.precision.unwrap_or(6)) + "%",
        Some('n') if spec.grouping.is_none() => float(magnitude, 'g', spec.precision.unwrap_or(6)),
        Some(letter @ ('e' | 'E' | 'f' | 'F' | 'g' | 'G')) => {
            float(magnitude, letter, spec.precision.unwrap_or(6))
        }
        Some(_) => return spec.unknown("float"),
    };

    // The flag `z` removes the sign of a number that is rounded to zero.
    let zero = !text.contains(|c: char| c.is_ascii_digit() && c != '0' || c.is_ascii_alphabetic());
    let negative = number.is_sign_negative() && !number.is_nan() && !(spec.positive_zero && zero);
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (whole, rest) = if number.is_finite() {
        text.split_at(end)
    } else {
        ("", &*text)
    };
    Ok(spec.number(&NumberParts {
        sign: NumberSign::new(negative),
        prefix: "",
        whole,
        rest,
        group: 3,
    }))
}
