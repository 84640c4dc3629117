//! The vocabulary of a GGUF file, of one of the kinds that `tokenizer.ggml.model` names.

use std::collections::HashMap;

use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;

use crate::config::known_keys as known;
use crate::gguf::file::Directory;
use crate::tokenizer::byte_level;
use crate::tokenizer::cuts::{Changes, Library, TextChange};
use crate::tokenizer::expression::Expression;
use crate::tokenizer::pre_tokenizer::{PreTokenizer, TokenSpelling};
use crate::tokenizer::sentencepiece;
use crate::tokenizer::sentencepiece::encode::NamedTokenPolicy;
use crate::tokenizer::sentencepiece::model::{SPACE, Segmentation};
use crate::tokenizer::token_type::{CONTROL, NORMAL, USER_DEFINED};
use crate::tokenizer::vocabulary::{Encoder, SpacePrefix, Vocabulary, control};
use crate::tokenizer::vocabulary_fault::Fault;
use crate::tokenizer::vocabulary_tables::VocabularyTables;

const NO_PRE_TOKENIZER: &str = "the file has no tokenizer.ggml.pre, which says how a text is cut into words, so \
                                llama.cpp's default is used; where the model was trained with another, its texts \
                                are worse. Convert it again with a newer llama.cpp";

/// A kind of vocabulary that scores its tokens: whether a text begins with BOS, and the numbers of
/// the special tokens, where the file does not say (`llama-vocab.cpp`).
struct Scored {
    name: &'static str,
    kind: Segmentation,
    add_bos: bool,
    bos: Option<u32>,
    eos: u32,
    unknown: u32,
}

const SCORED: [Scored; 2] = [
    Scored {
        name: "llama",
        kind: Segmentation::Bpe,
        add_bos: true,
        bos: Some(1),
        eos: 2,
        unknown: 0,
    },
    // llama.cpp puts EOS behind a text where the file does not say, as T5's encoder wants it; a
    // text that is to be continued has none.
    Scored {
        name: "t5",
        kind: Segmentation::Unigram,
        add_bos: false,
        bos: None,
        eos: 1,
        unknown: 2,
    },
];

/// Reads the vocabulary.
pub(crate) fn read(directory: &Directory) -> Result<Vocabulary, Fault> {
    let tables = &VocabularyTables { directory };
    known::check_tokenizer(directory)?;
    let Some(model) = tables.text("tokenizer.ggml.model")? else {
        return tables.wrong("tokenizer.ggml.model", "a string");
    };

    match SCORED.iter().find(|scored| scored.name == model) {
        Some(scored) => scores(tables, scored),
        None if model == "gpt2" => merges(tables, tables.text("tokenizer.ggml.pre")?),
        None if model == "gemma4" => merges(tables, Some("gemma4")),
        None => Err(Fault::Model(model.to_owned())),
    }
}

/// A vocabulary of scores.
fn scores(tables: &VocabularyTables<'_>, scored: &Scored) -> Result<Vocabulary, Fault> {
    let tokens = tables.tokens()?;
    let Some(types) = tables.types(&tokens)? else {
        let expected = "an array that says which tokens are bytes and which are control tokens";
        return tables.wrong("tokenizer.ggml.token_type", expected);
    };

    let model = sentencepiece::read::read(tables, scored.kind, &tokens, &types, scored.unknown)?;
    let pieces =
        std::iter::zip(&tokens, &types).map(|(t, kind)| sentencepiece::read::piece(t, *kind));
    Ok(Vocabulary {
        space_prefix: if model.has_space_prefix() {
            SpacePrefix::Any
        } else {
            SpacePrefix::None
        },
        encoder: Encoder::SentencePiece(Box::new(model), NamedTokenPolicy::Special),
        pieces: pieces.collect(),
        control: control(std::iter::zip(
            tokens.iter().copied(),
            types.iter().copied(),
        )),
        bos: tables.bos(scored.add_bos, scored.bos, tokens.len())?,
        eos: tables.id(
            "tokenizer.ggml.eos_token_id",
            Some(scored.eos),
            tokens.len(),
        ),
        warnings: vec![],
    })
}

/// A vocabulary of merges, with how a text is cut before.
fn merges(tables: &VocabularyTables<'_>, name: Option<&str>) -> Result<Vocabulary, Fault> {
    let pre = PreTokenizer::named(name.unwrap_or("default"))?;
    let tokens = tables.tokens()?;
    let types = tables
        .types(&tokens)?
        .unwrap_or_else(|| vec![NORMAL; tokens.len()]);
    let ids = byte_level::ids(&tokens)?;
    let lossy = match pre.spelling {
        TokenSpelling::Bytes => byte_level::check_bytes(&ids)?,
        TokenSpelling::Spaces => sentencepiece::read::check_bytes(&ids).map(|()| None)?,
    };
    let encoder = encoder(pre, &tokens, &types, tables, &ids)?;
    let piece = match pre.spelling {
        TokenSpelling::Bytes => byte_level::piece,
        TokenSpelling::Spaces => sentencepiece::read::piece,
    };
    Ok(Vocabulary {
        encoder: Encoder::Library(Box::new(encoder), None),
        pieces: std::iter::zip(&tokens, &types)
            .map(|(text, kind)| piece(text, *kind))
            .collect(),
        control: control(std::iter::zip(
            tokens.iter().copied(),
            types.iter().copied(),
        )),
        space_prefix: SpacePrefix::None,
        bos: tables.bos(pre.add_bos, None, tokens.len())?,
        eos: tables.id("tokenizer.ggml.eos_token_id", None, tokens.len()),
        warnings: name
            .is_none()
            .then(|| NO_PRE_TOKENIZER.to_owned())
            .into_iter()
            .chain(lossy)
            .collect(),
    })
}

fn encoder(
    pre: &PreTokenizer,
    tokens: &[&str],
    types: &[i64],
    tables: &VocabularyTables<'_>,
    ids: &HashMap<&str, u32>,
) -> Result<Library, Fault> {
    let lines = tables.merges()?;
    let merges = byte_level::merges(
        lines.iter().map(|line| line.split_once(' ').ok_or(*line)),
        ids,
    )?;
    let library = |e: tokenizers::Error| Fault::Library(e.to_string());
    let vocab: Vocab = ids
        .iter()
        .map(|(text, id)| ((*text).to_owned(), *id))
        .collect();
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(pre.ignore_merges);
    let bpe = bpe.byte_fallback(pre.spelling == TokenSpelling::Spaces);
    let mut encoder = Library::new(bpe.build().map_err(library)?.into());
    encoder.with_pre_tokenizer(Some(pre.cuts().map_err(library)?));
    if let Some(normalizer) = normalizer(pre).map_err(library)? {
        encoder.with_normalizer(Some(normalizer)).map_err(library)?;
    }

    let added = std::iter::zip(tokens, types)
        .filter(|(_, kind)| matches!(**kind, CONTROL | USER_DEFINED))
        .map(|(text, kind)| AddedToken::from(*text, *kind == CONTROL).normalized(false));
    encoder.add_tokens(added).map_err(library)?;
    Ok(encoder)
}

fn normalizer(pre: &PreTokenizer) -> tokenizers::Result<Option<Changes>> {
    let change = match pre.spelling {
        TokenSpelling::Spaces => Some(TextChange::Replace(
            Expression::literal(" ")?,
            SPACE.to_string(),
        )),
        TokenSpelling::Bytes => pre.nfc.then(|| TextChange::Library(NFC.into())),
    };
    Ok(change.map(|change| Changes(vec![change])))
}
