//! A SentencePiece vocabulary in a GGUF file: `tokenizer.ggml.model` is `llama` (BPE) or `t5`
//! (unigram).

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::gguf::value::Value;
use crate::tokenizer::byte_level::utf8;
use crate::tokenizer::sentencepiece::charsmap::Charsmap;
use crate::tokenizer::sentencepiece::model::{
    NamedToken, NamedTokens, SPACE, Segmentation, SentencePiece, Spaces, TokenMatcher, TokenPiece,
};
use crate::tokenizer::token_type::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED};
use crate::tokenizer::vocabulary_fault::Fault;
use crate::tokenizer::vocabulary_tables::VocabularyTables;

/// The penalty of a character without a token, below the least score of all normal tokens
/// (`unigram_model.cc`).
const UNKNOWN_PENALTY: f64 = 10.0;

/// The longest token that a unigram model may have, in bytes: the time that a text takes is
/// proportional to it.
const LONGEST: usize = 1024;

/// Reads a vocabulary. `unknown` is the number of the unknown token where the file does not say.
pub(crate) fn read(
    tables: &VocabularyTables<'_>,
    kind: Segmentation,
    tokens: &[&str],
    types: &[i64],
    unknown: u32,
) -> Result<SentencePiece, Fault> {
    let scores = tables.scores(tokens.len())?;
    let pieces = pieces(tokens, types, &scores)?;
    let longest = pieces.keys().map(|text| text.len()).max().unwrap_or(0);
    if kind == Segmentation::Unigram {
        check_lengths(pieces.keys().map(|text| &**text))?;
    }

    let unknown = tables.id(
        "tokenizer.ggml.unknown_token_id",
        Some(unknown),
        tokens.len(),
    );
    let bytes = bytes(tokens, types, unknown)?;
    let normal = std::iter::zip(&scores, types).filter(|(_, kind)| **kind == NORMAL);
    let least = normal
        .map(|(score, _)| f64::from(*score))
        .fold(f64::INFINITY, f64::min);
    let spaces = Spaces {
        prefix: tables.flag("tokenizer.ggml.add_space_prefix", true)?,
        merged: tables.flag("tokenizer.ggml.remove_extra_whitespaces", false)?,
    };
    Ok(SentencePiece {
        kind,
        pieces,
        longest,
        unknown_score: if least.is_finite() {
            least - UNKNOWN_PENALTY
        } else {
            -UNKNOWN_PENALTY
        },
        bytes,
        unknown,
        named: named(tables, tokens, types)?,
        spaces,
        charsmap: charsmap(tables)?,
    })
}

/// Returns the tokens that a text can consist of. Control tokens and byte tokens are excluded, even
/// if a text spells them.
fn pieces(
    tokens: &[&str],
    types: &[i64],
    scores: &[f32],
) -> Result<HashMap<Box<str>, TokenPiece>, Fault> {
    let mut seen = HashMap::with_capacity(tokens.len());
    let mut pieces = HashMap::with_capacity(tokens.len());
    for (((id, text), kind), score) in (0..).zip(tokens).zip(types).zip(scores) {
        // Numbers without a token have no spelling.
        if text.is_empty() {
            continue;
        }

        if let Some(first) = seen.insert(*text, id) {
            return Err(Fault::Duplicate {
                first,
                second: id,
                text: (*text).to_owned(),
            });
        }

        let score = if *kind == USER_DEFINED { 0.0 } else { *score };
        if matches!(*kind, NORMAL | USER_DEFINED | UNUSED) {
            pieces.insert(
                (*text).into(),
                TokenPiece {
                    id,
                    score,
                    unused: *kind == UNUSED,
                },
            );
        }
    }

    Ok(pieces)
}

/// The tokens of all bytes; none where one is missing and the unknown token stands for it.
fn bytes(tokens: &[&str], types: &[i64], unknown: Option<u32>) -> Result<Option<Vec<u32>>, Fault> {
    let mut ids = [None; 256];
    for ((id, text), _) in (0..)
        .zip(tokens)
        .zip(types)
        .filter(|(_, kind)| **kind == BYTE)
    {
        let value = byte(text).ok_or_else(|| Fault::ByteToken {
            id,
            text: (*text).to_owned(),
        })?;
        ids[usize::from(value)] = Some(id);
    }
    match (0..=255u8).find(|byte| ids[usize::from(*byte)].is_none()) {
        None => Ok(Some(ids.into_iter().flatten().collect())),
        Some(_) if unknown.is_some() => Ok(None),
        Some(byte) => Err(Fault::NoByte(byte)),
    }
}

/// The byte that a token is spelled as: `<0x0A>`.
pub(crate) fn byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| hex)
}

/// Refuses tokens of a unigram vocabulary that make texts take too long.
pub(crate) fn check_lengths<'a>(tokens: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
    match tokens.map(str::len).max() {
        Some(len) if len > LONGEST => Err(Fault::LongToken { len, most: LONGEST }),
        _ => Ok(()),
    }
}

/// Refuses a vocabulary without a token for each byte of UTF-8.
pub(crate) fn check_bytes(ids: &HashMap<&str, u32>) -> Result<(), Fault> {
    let has = |byte: &u8| ids.contains_key(format!("<0x{byte:02X}>").as_str());
    utf8()
        .find(|byte| !has(byte))
        .map_or(Ok(()), |byte| Err(Fault::NoByte(byte)))
}

fn named(
    tables: &VocabularyTables<'_>,
    tokens: &[&str],
    types: &[i64],
) -> Result<NamedTokens, Fault> {
    // As Phi-3's tokenizer.json has it (`rstrip`), and `llama-vocab.cpp`.
    let phi =
        matches!(tables.get("general.architecture"), Some(Value::String(name)) if name == "phi3");
    let takes_space = |text: &str| phi && !matches!(text, "<unk>" | "<s>" | "<|endoftext|>");
    let matcher = |kinds: &[i64]| {
        let all = (0..).zip(tokens).zip(types);
        let of = all.filter(|((_, text), kind)| kinds.contains(kind) && !text.is_empty());
        let (patterns, tokens): (Vec<&str>, Vec<NamedToken>) = of
            .map(|((id, text), _)| {
                (
                    *text,
                    NamedToken {
                        id,
                        takes_space: takes_space(text),
                    },
                )
            })
            .unzip();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(patterns);
        let search = search.map_err(|e| Fault::Library(e.to_string()))?;
        Ok::<TokenMatcher, Fault>(TokenMatcher { search, tokens })
    };
    Ok(NamedTokens {
        all: matcher(&[CONTROL, USER_DEFINED, UNKNOWN])?,
        user_defined: matcher(&[USER_DEFINED])?,
    })
}

fn charsmap(tables: &VocabularyTables<'_>) -> Result<Option<Charsmap>, Fault> {
    match tables.bytes("tokenizer.ggml.precompiled_charsmap")? {
        None => Ok(None),
        Some(bytes) if bytes.is_empty() => Ok(None),
        Some(bytes) => Charsmap::new(&bytes).map(Some).ok_or(Fault::Charsmap),
    }
}

/// The bytes that a token stands for.
pub(crate) fn piece(token: &str, kind: i64) -> Vec<u8> {
    match kind {
        CONTROL | UNKNOWN => vec![],
        BYTE => byte(token).into_iter().collect(),
        _ => token.replace(SPACE, " ").into_bytes(),
    }
}
