//! Escapes in the strings of a template: Python's codec `unicode-escape`, as `jinja2/lexer.py` uses
//! it.

/// Returns the text of a string between its quotes.
pub(crate) fn decode(text: &str) -> Result<String, String> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }

    // Jinja writes characters beyond ASCII as escapes before it decodes them. A backslash in front
    // of one therefore escapes the backslash of that escape.
    let mut ascii = String::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c) {
            0..0x80 => ascii.push(c),
            code @ 0x80..0x100 => ascii += &format!("\\x{code:02x}"),
            code @ 0x100..0x1_0000 => ascii += &format!("\\u{code:04x}"),
            code => ascii += &format!("\\U{code:08x}"),
        }
    }

    let mut decoded = String::with_capacity(ascii.len());
    let mut rest = &*ascii;
    while let Some(at) = rest.find('\\') {
        decoded += &rest[..at];
        rest = escape(&rest[at + 1..], &mut decoded)?;
    }

    decoded += rest;
    Ok(decoded)
}

/// Decodes one escape after its backslash, and returns the text after it.
fn escape<'a>(text: &'a str, decoded: &mut String) -> Result<&'a str, String> {
    let Some(kind) = text.chars().next() else {
        return Err("\\ at end of string".to_owned());
    };

    let rest = &text[1..];
    let plain = match kind {
        '\n' => return Ok(rest),
        '\\' | '\'' | '"' => kind,
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '0'..='7' => {
            let len = text.len().min(3);
            let len = text[..len]
                .find(|c| !('0'..='7').contains(&c))
                .unwrap_or(len);
            decoded.push(code(&text[..len], 8)?);
            return Ok(&text[len..]);
        }
        'x' => return hexadecimal(rest, 2, "\\xXX", decoded),
        'u' => return hexadecimal(rest, 4, "\\uXXXX", decoded),
        'U' => return hexadecimal(rest, 8, "\\UXXXXXXXX", decoded),
        'N' => {
            let name = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let Some((name, rest)) = name else {
                return Err("malformed \\N character escape".to_owned());
            };
            let Some(c) = crate::chat::jinja::python::text::named(name) else {
                return Err(format!("unknown Unicode character name {name:?} in \\N"));
            };
            decoded.push(c);
            return Ok(rest);
        }
        // An unknown escape stays as it is.
        _ => {
            decoded.push('\\');
            return Ok(text);
        }
    };
    decoded.push(plain);
    Ok(rest)
}

fn hexadecimal<'a>(
    text: &'a str,
    len: usize,
    form: &str,
    decoded: &mut String,
) -> Result<&'a str, String> {
    let digits = text
        .get(..len)
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let digits = digits.ok_or_else(|| format!("truncated {form} escape"))?;
    decoded.push(code(digits, 16)?);
    Ok(&text[len..])
}

fn code(digits: &str, radix: u32) -> Result<char, String> {
    let code = u32::from_str_radix(digits, radix).ok();
    code.and_then(char::from_u32)
        .ok_or_else(|| format!("the escape {digits} is not a character of Unicode"))
}
