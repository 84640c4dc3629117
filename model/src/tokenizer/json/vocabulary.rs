//! The tokenizer of a folder: `tokenizer.json`, as the library `tokenizers` reads it, if it is BPE
//! or Unigram. Without that file, it is `tekken.json`.

use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::processors::PostProcessorWrapper;

use crate::Error;
use crate::folder::folder_fault::Fault as FolderFault;
use crate::folder::read;
use crate::folder::special;
use crate::folder::special::{TEKKEN, TOKENIZER, TOKENIZER_CONFIG, spelling};
use crate::tokenizer::cuts::Library;
use crate::tokenizer::json::file::TokenizerFile;
use crate::tokenizer::json::spelled::Spelled;
use crate::tokenizer::json::tekken;
use crate::tokenizer::stop;
use crate::tokenizer::token_type::{NORMAL, USER_DEFINED};
use crate::tokenizer::vocabulary::{Encoder, Vocabulary, control};
use crate::tokenizer::vocabulary_fault::Fault;
use crate::unique_keys::unique_keys;

/// Reads the vocabulary of a folder. The model has `vocab` tokens, or as many as the folder lists
/// if `vocab` is `None`.
pub(crate) fn read(
    folder: &Path,
    vocab: Option<u32>,
    config: &Map<String, Value>,
) -> Result<Vocabulary, Error> {
    let own = read::bytes(folder, TOKENIZER)?;
    let path = folder.join(if own.is_some() { TOKENIZER } else { TEKKEN });
    let fault = |fault| Error::Tokenizer {
        path: path.clone(),
        fault: Box::new(fault),
    };
    let is_tekken = own.is_none();
    let bytes = match own {
        Some(bytes) => bytes,
        None => match read::bytes(folder, TEKKEN)? {
            Some(bytes) => tekken::tokenizer_json(&bytes).map_err(fault)?,
            None => {
                return Err(Error::Tokenizer {
                    path: folder.to_owned(),
                    fault: Box::new(Fault::NoFile),
                });
            }
        },
    };

    let file = parse(&bytes).map_err(|fault| Error::Folder {
        path: path.clone(),
        fault: Box::new(fault),
    })?;
    let vocab = vocab.map_or_else(|| file.size(), Ok).map_err(fault)?;
    let tokens = file.tokens(vocab).map_err(fault)?;
    let spare = file.check_parts(vocab).map_err(fault)?;
    let (spelled, lossy) = file.check(&tokens).map_err(fault)?;
    let encoder = encoder(&bytes, &file).map_err(fault)?;
    let settings = read::object(folder, TOKENIZER_CONFIG)?.or_else(|| {
        // The token has no other name in this format.
        let eos = || Map::from_iter([("eos_token".to_owned(), Value::from(tekken::EOS))]);
        is_tekken.then(eos)
    });
    let (bos, warning) = bos(&encoder, settings.as_ref(), vocab).map_err(fault)?;
    let eos = eos(&encoder, settings.unwrap_or_default(), config, vocab).map_err(fault)?;
    let mut encoder = encoder;

    // The tokens that it adds are known now. It would also remove white space from the offsets of
    // tokens.
    encoder.with_post_processor(None::<PostProcessorWrapper>);
    Ok(Vocabulary {
        pieces: pieces(&tokens, spelled, &encoder),
        encoder: Encoder::Library(Box::new(encoder), file.unknown()),
        control: control(tokens.iter().copied()),
        space_prefix: spelled.space_prefix(&tokens),
        bos,
        eos,
        warnings: warning.into_iter().chain(lossy).chain(spare).collect(),
    })
}

/// The file, if no object in it has a key twice.
fn parse(bytes: &[u8]) -> Result<TokenizerFile, FolderFault> {
    let file =
        serde_json::from_slice(bytes).map_err(|error| FolderFault::Json(error.to_string()))?;
    unique_keys(bytes).map_err(FolderFault::Keys)?;
    Ok(file)
}

/// The bytes of each token. One that is found in a normalized text is normalized itself.
fn pieces(tokens: &[(&str, i64)], spelled: Spelled, encoder: &Library) -> Vec<Vec<u8>> {
    let added = encoder.get_added_vocabulary();
    let piece = |(id, (text, kind)): (u32, &(&str, i64))| match added.simple_id_to_token(id) {
        Some(normalized) if *kind == USER_DEFINED && normalized != *text => {
            spelled.piece(&normalized, NORMAL)
        }
        _ => spelled.piece(text, *kind),
    };
    (0..).zip(tokens).map(piece).collect()
}

/// The library's tokenizer, of a file that has been checked.
fn encoder(bytes: &[u8], file: &TokenizerFile) -> Result<Library, Fault> {
    let library = |error: tokenizers::Error| Fault::Library(error.to_string());
    let mut encoder = if file.has_common_markers() {
        Library::from_bytes(with_special_markers(bytes))
    } else {
        Library::from_bytes(bytes)
    }
    .map_err(library)?;
    encoder.with_padding(None);
    encoder.with_truncation(None).map_err(library)?;
    match file
        .added_tokens
        .iter()
        .find(|t| encoder.token_to_id(&t.content) != Some(t.id))
    {
        Some(added) => Err(Fault::AddedId {
            id: added.id,
            text: added.content.clone(),
        }),
        None => Ok(encoder),
    }
}

/// The file with all added tokens that end a text by their spelling as special ones, so that a text
/// that is taken literally has none.
fn with_special_markers(bytes: &[u8]) -> Vec<u8> {
    let mut file: Value = serde_json::from_slice(bytes).unwrap_or_default();
    for added in file["added_tokens"].as_array_mut().into_iter().flatten() {
        if added["content"].as_str().is_some_and(stop::is_marker) {
            added["special"] = true.into();
        }
    }
    file.to_string().into_bytes()
}

/// The token that ends a text: by its spelling, or by its number in `config.json`.
fn eos(
    encoder: &Library,
    settings: Map<String, Value>,
    config: &Map<String, Value>,
    vocab: u32,
) -> Result<Option<u32>, Fault> {
    let Some(text) = spelling(&settings, "eos_token") else {
        return Ok(special::ids(config, "eos_token_id", vocab)
            .unwrap_or_default()
            .first()
            .copied());
    };
    let id = encoder.token_to_id(text);
    id.map(Some).ok_or_else(|| Fault::NoSpelling {
        key: "eos_token",
        text: text.to_owned(),
    })
}

/// Returns the token that begins a text, and a warning if two files disagree about it.
///
/// It is the token that the post-processor of `tokenizer.json` puts in front of a text, as in
/// transformers since version 5. That version ignores `add_bos_token` of `tokenizer_config.json` if
/// there is a `tokenizer.json`. Version 4 obeyed it in the classes of Llama.
fn bos(
    encoder: &Library,
    settings: Option<&Map<String, Value>>,
    vocab: u32,
) -> Result<(Option<u32>, Option<String>), Fault> {
    let ids = |special| {
        let encoding = encoder
            .encode_fast("a", special)
            .map_err(|e| Fault::Library(e.to_string()))?;
        Ok::<Vec<u32>, Fault>(encoding.get_ids().to_vec())
    };
    let all = ids(true)?;
    let text = ids(false)?;
    let added = match all.strip_suffix(&text[..]) {
        Some([]) => None,
        Some([bos]) if *bos >= vocab => return Err(Fault::BeginsOutside { id: *bos, vocab }),
        Some([bos]) if !text.is_empty() => Some(*bos),
        _ => return Err(Fault::PostProcessor { all, text }),
    };
    let wanted = settings.and_then(|settings| settings.get("add_bos_token")?.as_bool());
    let differ = wanted.filter(|wanted| *wanted != added.is_some()).map(|wanted| {
        let [says, does] = [wanted, added.is_some()].map(|begins| if begins { "one" } else { "none" });
        format!(
            "add_bos_token of tokenizer_config.json says that a text begins with a token of its own: {says}; the \
             post-processor of tokenizer.json puts {does} there, and is followed, as by transformers 5 (version 4 \
             followed the former for Llama's classes)"
        )
    });
    Ok((added, differ))
}
