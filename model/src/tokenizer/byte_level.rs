//! Byte-level vocabularies: each byte of a text is spelled as one printable character (GPT-2's
//! alphabet), so that every text has tokens and every token has bytes; one token may hold a part of
//! a character.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::tokenizer::token_type::{CONTROL, USER_DEFINED};
use crate::tokenizer::vocabulary_fault::Fault;

/// The numbers of tokens by their spelling.
pub(crate) fn ids<'a>(tokens: &[&'a str]) -> Result<HashMap<&'a str, u32>, Fault> {
    let mut ids = HashMap::with_capacity(tokens.len());
    for (id, text) in (0..).zip(tokens) {
        if let Some(first) = ids.insert(*text, id) {
            return Err(Fault::Duplicate {
                first,
                second: id,
                text: (*text).to_owned(),
            });
        }
    }
    Ok(ids)
}

/// Refuses a vocabulary without a token for each printable byte, and warns of one that lacks others
/// which UTF-8 has.
pub(crate) fn check_bytes(ids: &HashMap<&str, u32>) -> Result<Option<String>, Fault> {
    let has = |byte: &u8| ids.contains_key(ALPHABET[usize::from(*byte)].to_string().as_str());
    if let Some(byte) = (b' '..=b'~').find(|byte| !has(byte)) {
        return Err(Fault::NoByte(byte));
    }

    let missing: Vec<u8> = utf8().filter(|byte| !has(byte)).collect();
    Ok(missing.first().map(|first| {
        let count = missing.len();
        format!(
            "the vocabulary has no token for {count} of the bytes of UTF-8, the first of which is {first:#04x}; texts lose \
             them, as they do in transformers"
        )
    }))
}

/// Returns true if a vocabulary has a token for each byte of UTF-8. `has` returns true for a
/// spelling that is a token.
pub(crate) fn has_bytes(has: impl Fn(&str) -> bool) -> bool {
    utf8().all(|byte| has(&ALPHABET[usize::from(byte)].to_string()))
}

/// The bytes that UTF-8 has. Vocabularies that were learned of texts may lack the others.
pub(crate) fn utf8() -> impl Iterator<Item = u8> {
    (0..=0xbf).chain(0xc2..=0xf4)
}

/// The merges as pairs; an error is a line that is none. The library panics on a pair that makes no
/// token, so none reaches it.
pub(crate) fn merges<'a>(
    pairs: impl Iterator<Item = Result<(&'a str, &'a str), &'a str>>,
    ids: &HashMap<&str, u32>,
) -> Result<Vec<(String, String)>, Fault> {
    let known = |(a, b): (&str, &str)| {
        [a, b].iter().all(|part| ids.contains_key(part))
            && ids.contains_key(format!("{a}{b}").as_str())
    };
    let pair = |(index, pair): (usize, Result<(&str, &str), &str>)| match pair {
        Ok((a, b)) if known((a, b)) => Ok((a.to_owned(), b.to_owned())),
        Ok((a, b)) => Err(Fault::Merge {
            index,
            text: format!("{a} {b}"),
        }),
        Err(line) => Err(Fault::Merge {
            index,
            text: line.to_owned(),
        }),
    };
    pairs.enumerate().map(pair).collect()
}

static ALPHABET: LazyLock<[char; 256]> = LazyLock::new(alphabet);
static BYTE_OF: LazyLock<HashMap<char, u8>> =
    LazyLock::new(|| ALPHABET.iter().copied().zip(0..=255).collect());

/// GPT-2's alphabet (`bytes_to_unicode` in its `encoder.py`): printable Latin-1 stands for itself,
/// the other 68 bytes for the characters from U+0100 on.
fn alphabet() -> [char; 256] {
    let mut next = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        b @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(b),
        _ => next.next().expect("68 characters follow U+0100"),
    })
}

/// Returns the spelling of a token with these bytes.
pub(crate) fn spelling(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| ALPHABET[usize::from(*byte)])
        .collect()
}

/// The bytes that a token stands for.
pub(crate) fn piece(token: &str, kind: i64) -> Vec<u8> {
    match kind {
        CONTROL => vec![],
        USER_DEFINED => token.as_bytes().to_vec(),
        _ => match token.chars().map(|c| BYTE_OF.get(&c).copied()).collect() {
            Some(bytes) => bytes,
            None => token.as_bytes().to_vec(),
        },
    }
}
