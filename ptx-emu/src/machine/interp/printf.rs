//! The text that `printf` makes (CUDA programming guide, "Format Specifiers"; ISO C, 7.23.6.1).

/// A piece of a format string.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FormatPiece {
    Text(String),
    Conversion(PrintConversion),
}

/// A conversion `%[flags][width][.precision][size]type`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PrintConversion {
    flags: String,
    width: Option<Amount>,
    precision: Option<Amount>,
    /// Whether `l`, `ll`, `j`, `z` or `t` precedes the type.
    long: bool,
    /// The number of bits of an integer that are printed, from `h` or `hh`.
    bits: u32,
    kind: char,
}

/// A width or a precision.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Is(usize),
    /// `*`, which uses the next argument.
    Argument,
}

/// The argument of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PrintArgument {
    Number(u64),
    Text(String),
}

/// The maximum width or precision.
const MOST: usize = 4096;

/// Splits a format string. Invalid conversions are plain text.
pub(crate) fn pieces(format: &str) -> Vec<FormatPiece> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        pieces.push(FormatPiece::Text(rest[..at].into()));
        rest = &rest[at..];
        match conversion(&rest[1..]) {
            Some((c, length)) => {
                pieces.push(if c.kind == '%' {
                    FormatPiece::Text("%".into())
                } else {
                    FormatPiece::Conversion(c)
                });
                rest = &rest[1 + length..];
            }
            None => {
                pieces.push(FormatPiece::Text("%".into()));
                rest = &rest[1..];
            }
        }
    }

    pieces.push(FormatPiece::Text(rest.into()));
    pieces
}

/// Parses the conversion after a `%`. Returns it with its length.
fn conversion(text: &str) -> Option<(PrintConversion, usize)> {
    let mut c = PrintConversion {
        bits: 32,
        ..PrintConversion::default()
    };
    let mut rest = text.trim_start_matches(['-', '+', ' ', '#', '0']);
    c.flags = text[..text.len() - rest.len()].into();
    c.width = amount(&mut rest);
    if let Some(after) = rest.strip_prefix('.') {
        rest = after;
        c.precision = amount(&mut rest).or(Some(Amount::Is(0)));
    }

    let sizes = rest.trim_start_matches(['h', 'l', 'L', 'j', 'z', 't']);
    let size = &rest[..rest.len() - sizes.len()];
    c.long = size.contains(['l', 'j', 'z', 't']);
    c.bits = match size {
        "hh" => 8,
        "h" => 16,
        _ if c.long => 64,
        _ => 32,
    };
    c.kind = sizes
        .chars()
        .next()
        .filter(|kind| "diouxXcspfFeEgGaA%".contains(*kind))?;
    Some((c, text.len() - sizes.len() + 1))
}

fn amount(rest: &mut &str) -> Option<Amount> {
    if let Some(after) = rest.strip_prefix('*') {
        *rest = after;
        return Some(Amount::Argument);
    }
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number = rest[..digits].parse::<usize>().ok()?;
    *rest = &rest[digits..];
    Some(Amount::Is(number.min(MOST)))
}

impl PrintConversion {
    /// Returns the size of each argument in the list, in bytes.
    pub(crate) fn takes(&self) -> Vec<u32> {
        let stars = [self.width, self.precision]
            .into_iter()
            .filter(|a| *a == Some(Amount::Argument));
        let own = match self.kind {
            'd' | 'i' | 'o' | 'u' | 'x' | 'X' if !self.long => 4,
            'c' => 4,
            _ => 8,
        };
        stars.map(|_| 4).chain([own]).collect()
    }

    /// Returns true if the argument is the address of a string.
    pub(crate) fn is_text(&self) -> bool {
        self.kind == 's'
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }
}

/// Returns the text of a piece with its arguments.
pub(crate) fn format_piece(piece: &FormatPiece, arguments: &[PrintArgument]) -> String {
    let c = match piece {
        FormatPiece::Text(text) => return text.clone(),
        FormatPiece::Conversion(c) => c,
    };
    let mut c = c.clone();
    let mut arguments = arguments.iter();
    let star = |a: Option<&PrintArgument>| {
        if let Some(PrintArgument::Number(n)) = a {
            *n as i32
        } else {
            0
        }
    };
    if c.width == Some(Amount::Argument) {
        let width = star(arguments.next());
        if width < 0 {
            c.flags.push('-');
        }
        c.width = Some(Amount::Is((width.unsigned_abs() as usize).min(MOST)));
    }

    if c.precision == Some(Amount::Argument) {
        let precision = usize::try_from(star(arguments.next())).ok();
        c.precision = precision.map(|p| Amount::Is(p.min(MOST)));
    }

    match arguments.next() {
        Some(PrintArgument::Text(text)) => pad(&c, "", cut(&c, text), false),
        Some(PrintArgument::Number(n)) => number(&c, *n),
        None => String::new(),
    }
}

fn precision(c: &PrintConversion) -> Option<usize> {
    match c.precision {
        Some(Amount::Is(n)) => Some(n),
        _ => None,
    }
}

fn cut(c: &PrintConversion, text: &str) -> String {
    text.chars()
        .take(precision(c).unwrap_or(usize::MAX))
        .collect()
}

fn number(c: &PrintConversion, n: u64) -> String {
    let unsigned = n & u64::MAX >> (64 - c.bits);
    let signed = (n << (64 - c.bits)) as i64 >> (64 - c.bits);
    match c.kind {
        'd' | 'i' => integer(c, sign(c, signed < 0), signed.unsigned_abs().to_string()),
        'u' => integer(c, "", unsigned.to_string()),
        'o' => integer(
            c,
            if c.has('#') { "0" } else { "" },
            format!("{unsigned:o}"),
        ),
        'x' => integer(
            c,
            if c.has('#') && unsigned != 0 {
                "0x"
            } else {
                ""
            },
            format!("{unsigned:x}"),
        ),
        'X' => integer(
            c,
            if c.has('#') && unsigned != 0 {
                "0X"
            } else {
                ""
            },
            format!("{unsigned:X}"),
        ),
        'c' => pad(c, "", char::from(n as u8).to_string(), false),
        'p' if n == 0 => pad(c, "", "(nil)".into(), false),
        'p' => pad(c, "", format!("0x{n:x}"), false),
        _ => float(c, f64::from_bits(n)),
    }
}

fn sign(c: &PrintConversion, negative: bool) -> &'static str {
    if negative {
        "-"
    } else if c.has('+') {
        "+"
    } else if c.has(' ') {
        " "
    } else {
        ""
    }
}

fn integer(c: &PrintConversion, prefix: &str, digits: String) -> String {
    match precision(c) {
        Some(0) if digits == "0" => pad(c, prefix, String::new(), false),
        Some(least) => pad(c, prefix, format!("{digits:0>least$}"), false),
        None => pad(c, prefix, digits, true),
    }
}

/// Pads to the width. Zeros are inserted between prefix and body if the flags and `zeros` allow it.
fn pad(c: &PrintConversion, prefix: &str, body: String, zeros: bool) -> String {
    let Some(Amount::Is(width)) = c.width else {
        return format!("{prefix}{body}");
    };
    let missing = width.saturating_sub(prefix.chars().count() + body.chars().count());
    match (c.has('-'), c.has('0') && zeros) {
        (true, _) => format!("{prefix}{body}{}", " ".repeat(missing)),
        (_, true) => format!("{prefix}{}{body}", "0".repeat(missing)),
        _ => format!("{}{prefix}{body}", " ".repeat(missing)),
    }
}

fn float(c: &PrintConversion, x: f64) -> String {
    let prefix = sign(c, x.is_sign_negative());
    let upper = c.kind.is_ascii_uppercase();
    let body = match c.kind.to_ascii_lowercase() {
        _ if !x.is_finite() => if x.is_nan() { "nan" } else { "inf" }.to_string(),
        'f' => format!("{:.*}", precision(c).unwrap_or(6), x.abs()),
        'e' => exponential(x.abs(), precision(c).unwrap_or(6)),
        'g' => general(c, x.abs()),
        _ => hexadecimal(x.abs(), precision(c)),
    };
    pad(
        c,
        prefix,
        if upper { body.to_uppercase() } else { body },
        x.is_finite(),
    )
}

/// Formats a number as `d.ddde+dd`.
fn exponential(x: f64, precision: usize) -> String {
    let text = format!("{x:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Formats a number in the shorter form, without trailing zeros unless `#` requests them.
fn general(c: &PrintConversion, x: f64) -> String {
    let digits = precision(c).unwrap_or(6).max(1);
    let scientific = exponential(x, digits - 1);
    let exponent: i32 = scientific
        .split_once('e')
        .and_then(|(_, e)| e.parse().ok())
        .unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') && !c.has('#') {
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        } else {
            text.to_string()
        }
    };
    if exponent < -4 || exponent >= digits as i32 {
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "+00"));
        return format!("{}e{exponent}", trim(mantissa));
    }

    trim(&format!(
        "{x:.*}",
        (digits as i32 - 1 - exponent).max(0) as usize
    ))
}

/// Formats a number as `0x1.8p+1`.
fn hexadecimal(x: f64, precision: Option<usize>) -> String {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let mut fraction = bits & (1 << 52) - 1;
    let (mut lead, power) = match exponent {
        0 if fraction == 0 => (0, 0),
        0 => (0, -1022),
        _ => (1, exponent - 1023),
    };
    if let Some(digits) = precision.filter(|digits| *digits < 13) {
        let drop = 4 * (13 - digits) as u32;
        let whole = (lead << 52 | fraction) >> drop;
        let rest = fraction & (1 << drop) - 1;
        let up = rest > 1 << (drop - 1) || rest == 1 << (drop - 1) && whole & 1 != 0;
        let rounded = (whole + u64::from(up)) << drop;
        lead = rounded >> 52;
        fraction = rounded & (1 << 52) - 1;
    }

    let digits = format!("{fraction:013x}");
    let digits = match precision {
        Some(n) => format!("{digits:0<n$}")[..n].to_string(),
        None => digits.trim_end_matches('0').to_string(),
    };
    let point = if digits.is_empty() { "" } else { "." };
    format!("0x{lead}{point}{digits}p{power:+}")
}
