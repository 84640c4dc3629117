//! `tekken.json`, the tokenizer file of Mistral's own library, rewritten as `tokenizer.json`.
//!
//! Its vocabulary has the bytes of each token in the order of ranks. A text is cut by a pattern. Of
//! two neighbors in a piece, the pair whose concatenation has the lowest rank is merged first, as in
//! `tiktoken`. A piece that is a token is taken whole. The control tokens come first: the number of a
//! token is its rank plus `default_num_special_tokens`, and ranks that then exceed
//! `default_vocab_size` are not used (`tokens/tokenizers/tekken.py` of mistral-common).
//!
//! A merge list cannot say "the lowest rank", so it has every pair of tokens that makes a token, in
//! the order of the ranks that they make.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::tokenizer::byte_level;
use crate::tokenizer::vocabulary_fault::Fault;

/// The parts of the file that make its tokens. `V` is the vocabulary.
#[derive(Deserialize)]
struct TekkenFile<V> {
    config: TekkenConfig,
    vocab: V,
    #[serde(default)]
    special_tokens: Option<Vec<TekkenSpecial>>,
}

#[derive(Deserialize)]
struct TekkenConfig {
    pattern: String,
    default_vocab_size: u32,
    default_num_special_tokens: u32,
    #[serde(default)]
    version: String,
}

#[derive(Deserialize)]
struct TekkenToken {
    rank: u32,
    token_bytes: String,
}

#[derive(Deserialize)]
struct TekkenSpecial {
    rank: u32,
    token_str: String,
}

/// The token that begins a text.
const BOS: &str = "<s>";
/// The token that ends a text.
pub(crate) const EOS: &str = "</s>";

/// The control tokens of files that do not list theirs, which the library allows in these versions.
const UNLISTED: [&str; 20] = [
    "<unk>",
    BOS,
    EOS,
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];
const UNLISTED_VERSIONS: [&str; 4] = ["v1", "v2", "v3", "v7"];

/// The most tokens of a vocabulary.
const MOST: u32 = 1 << 24;

impl<V> TekkenFile<V> {
    /// Returns the spelling of each control token, by its number.
    fn control(&self) -> Result<Vec<String>, Fault> {
        let TekkenConfig {
            default_vocab_size: vocab,
            default_num_special_tokens: count,
            ref version,
            ..
        } = self.config;
        if vocab > MOST || count > vocab {
            return Err(Fault::Tekken(format!(
                "default_vocab_size is {vocab} and default_num_special_tokens is {count}; expected at \
                 most {MOST}, and not more control tokens than tokens"
            )));
        }

        let mut names: Vec<String> = (0..count).map(|id| format!("<SPECIAL_{id}>")).collect();
        let mut set = |rank: u32, name: &str| -> Result<(), Fault> {
            let slot = names.get_mut(rank as usize);
            let slot = slot.ok_or_else(|| {
                Fault::Tekken(format!(
                    "control token {name:?} has the rank {rank}; expected one below \
                     default_num_special_tokens ({count})"
                ))
            })?;
            name.clone_into(slot);
            Ok(())
        };
        match &self.special_tokens {
            Some(listed) => {
                for (index, special) in (0..).zip(listed) {
                    // The library numbers the tokens that are not listed from the end of the list on.
                    if special.rank != index {
                        return Err(Fault::Tekken(format!(
                            "special_tokens[{index}] has the rank {}; expected {index}",
                            special.rank
                        )));
                    }
                    set(special.rank, &special.token_str)?;
                }
            }
            None if UNLISTED_VERSIONS.contains(&version.as_str()) => {
                for (rank, name) in (0..).zip(UNLISTED) {
                    set(rank, name)?;
                }
            }
            None => {
                return Err(Fault::Tekken(format!(
                    "special_tokens is missing, which files of version {version:?} have"
                )));
            }
        }
        let mut seen = HashMap::new();
        for (id, name) in (0..).zip(&names) {
            if let Some(first) = seen.insert(name, id) {
                return Err(Fault::Duplicate {
                    first,
                    second: id,
                    text: name.clone(),
                });
            }
        }
        Ok(names)
    }
}

fn parse<'a, V: Deserialize<'a>>(bytes: &'a [u8]) -> Result<TekkenFile<V>, Fault> {
    serde_json::from_slice(bytes).map_err(|error| Fault::Tekken(error.to_string()))
}

/// Returns the spelling of each control token of a file, by its number.
pub(crate) fn control(bytes: &[u8]) -> Result<Vec<String>, Fault> {
    parse::<IgnoredAny>(bytes)?.control()
}

/// Returns the `tokenizer.json` with the tokens of a file.
pub(crate) fn tokenizer_json(bytes: &[u8]) -> Result<Vec<u8>, Fault> {
    let file: TekkenFile<Vec<TekkenToken>> = parse(bytes)?;
    let control = file.control()?;
    let first = file.config.default_num_special_tokens;
    let count = file.config.default_vocab_size - first;
    let ranks = ranks(&file.vocab, count as usize)?;

    // The library numbers an added token as in the vocabulary, so control tokens are in it too.
    let numbers = (0u32..).zip(&control);
    let numbers = numbers.map(|(id, name)| (name.clone(), Value::from(id)));
    let mut vocab: Map<String, Value> = numbers.collect();
    for (token, rank) in &ranks {
        let text = byte_level::spelling(token);
        let id = first + *rank;
        if let Some(control) = vocab.insert(text.clone(), Value::from(id)) {
            return Err(Fault::Duplicate {
                first: control.as_u64().unwrap_or_default() as u32,
                second: id,
                text,
            });
        }
    }
    let merges = merges(&ranks).into_iter();
    let merges = merges.map(|pair| Value::from(pair.map(byte_level::spelling).to_vec()));
    let added = (0..).zip(&control).map(|(id, content): (u32, _)| {
        json!({
            "id": id, "content": content, "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        })
    });
    let added: Vec<Value> = added.collect();
    let bos = control.iter().position(|name| name == BOS);
    let bos = bos.ok_or_else(|| Fault::Tekken(format!("there is no control token {BOS:?}")))?;
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let begin = json!({"SpecialToken": {"id": BOS, "type_id": 0}});
    let json = json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {
                "type": "Split", "pattern": {"Regex": file.config.pattern}, "behavior": "Isolated",
                "invert": false,
            },
            bytes,
        ]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, text("A")],
            "pair": [begin, text("A"), begin, text("B")],
            "special_tokens": {BOS: {"id": BOS, "ids": [bos], "tokens": [BOS]}},
        },
        "decoder": bytes,
        "model": {
            "type": "BPE", "ignore_merges": true, "vocab": vocab,
            "merges": merges.collect::<Vec<Value>>(),
        },
    });
    Ok(json.to_string().into_bytes())
}

/// Returns the rank of each of the first `count` tokens, by their bytes.
fn ranks(vocab: &[TekkenToken], count: usize) -> Result<HashMap<Vec<u8>, u32>, Fault> {
    if vocab.len() < count {
        return Err(Fault::Tekken(format!(
            "vocab has {} tokens; expected at least {count}, the tokens of default_vocab_size that are \
             not control tokens",
            vocab.len()
        )));
    }

    let mut ranks = HashMap::with_capacity(count);
    for (index, token) in (0..).zip(&vocab[..count]) {
        let TekkenToken { rank, token_bytes } = token;
        if *rank != index {
            return Err(Fault::Tekken(format!(
                "vocab[{index}] has the rank {rank}; expected {index}"
            )));
        }
        let bytes = base64::decode(token_bytes).map_err(|error| {
            Fault::Tekken(format!(
                "token_bytes of vocab[{index}] is {token_bytes:?}, which is not base64: {error}"
            ))
        })?;
        if bytes.is_empty() {
            return Err(Fault::Tekken(format!("vocab[{index}] has no bytes")));
        }
        let text = byte_level::spelling(&bytes);
        if let Some(first) = ranks.insert(bytes, index) {
            return Err(Fault::Duplicate {
                first,
                second: index,
                text,
            });
        }
    }
    Ok(ranks)
}

/// Returns every pair of tokens whose concatenation is a token, in the order of the tokens that they
/// make. Pairs that make the same token are in the order of their own ranks.
fn merges(ranks: &HashMap<Vec<u8>, u32>) -> Vec<[&[u8]; 2]> {
    let pairs = ranks.iter().flat_map(|(token, made)| {
        (1..token.len()).filter_map(move |at| {
            let (left, right) = token.split_at(at);
            let key = [*made, *ranks.get(left)?, *ranks.get(right)?];
            Some((key, [left, right]))
        })
    });
    let mut pairs: Vec<([u32; 3], [&[u8]; 2])> = pairs.collect();
    pairs.sort_unstable_by_key(|(key, _)| *key);
    pairs.into_iter().map(|(_, pair)| pair).collect()
}
