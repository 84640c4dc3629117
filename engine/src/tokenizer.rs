//! Text to tokens and back, from the tables in a GGUF: byte-level BPE.
//!
//! A byte-level vocabulary spells each byte of a text as one printable character (GPT-2's alphabet), so
//! that every text has tokens and every token has bytes; one token may hold a part of a character.

use std::collections::HashMap;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{AddedToken, PreTokenizerWrapper};

use crate::Error;
use crate::gguf::{Gguf, Value};

/// A vocabulary in both directions.
#[derive(Debug)]
pub struct Tokenizer {
    encoder: tokenizers::Tokenizer,
    pieces: Vec<Vec<u8>>,
    bos: Option<u32>,
}

/// What is wrong with a vocabulary.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
pub enum Fault {
    #[error("tokenizer.ggml.model is \"{0}\"; supported: gpt2 (byte-level BPE)")]
    Model(String),
    #[error("tokenizer.ggml.pre is \"{found}\"; supported: {supported}")]
    PreTokenizer { found: String, supported: String },
    #[error("the vocabulary has no merges (tokenizer.ggml.merges), without which a text has no tokens")]
    NoMerges,
    #[error("key \"{key}\" is {found}; expected {expected}")]
    Key { key: &'static str, found: String, expected: String },
    #[error("tokens {first} and {second} are both \"{text}\"")]
    Duplicate { first: u32, second: u32, text: String },
    #[error("the vocabulary has no token for the byte {0:#04x}")]
    NoByte(u8),
    #[error("merge {index} is \"{text}\"; expected two tokens whose concatenation is a token")]
    Merge { index: usize, text: String },
    #[error("the tokenizer library refuses the vocabulary: {0}")]
    Library(String),
}

/// How a text is cut before merging: by name, the pattern, whether a piece that is a token is taken whole,
/// and whether a text begins with BOS where the file does not say.
struct PreTokenizer {
    names: &'static [&'static str],
    pattern: &'static str,
    ignore_merges: bool,
    add_bos: bool,
    nfc: bool,
}

/// The pre-tokenizers of `llama-vocab.cpp` in llama.cpp, with the patterns of the models' own
/// `tokenizer.json`.
const PRE_TOKENIZERS: [PreTokenizer; 3] = [
    PreTokenizer {
        names: &["gpt-2", "default"],
        pattern: r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        ignore_merges: false,
        add_bos: false,
        nfc: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ignore_merges: true,
        add_bos: true,
        nfc: false,
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen"],
        pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ignore_merges: false,
        add_bos: false,
        nfc: true,
    },
];

/// `enum llama_token_type` of `llama.h`: a token that steers the model and has no text.
const CONTROL: i64 = 3;
/// A token that is found in a text as it stands, before any merging.
const USER_DEFINED: i64 = 4;

impl Tokenizer {
    /// Builds the tokenizer that a file describes.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, Error> {
        Tokenizer::read(&Tables { gguf })
            .map_err(|fault| Error::Tokenizer { path: gguf.path.clone(), fault: Box::new(fault) })
    }

    fn read(tables: &Tables<'_>) -> Result<Tokenizer, Fault> {
        let pre = tables.pre_tokenizer()?;
        let tokens = tables.tokens()?;
        let types = tables.types(tokens.len())?;
        let alphabet = alphabet();
        let encoder = encoder(pre, &tokens, &types, tables, &alphabet)?;
        let spelled = byte_of(&alphabet);
        let pieces = std::iter::zip(&tokens, &types).map(|(t, kind)| piece(t, *kind, &spelled)).collect();
        Ok(Tokenizer { encoder, pieces, bos: tables.bos(pre.add_bos, tokens.len())? })
    }

    /// The tokens of a text, after BOS where the model wants it. Control tokens may stand in the text by
    /// name.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let encoding = self.encoder.encode_fast(text, false).map_err(|e| Error::Encode(e.to_string()))?;
        let ids = encoding.get_ids();
        let bos = self.bos.filter(|bos| ids.first() != Some(bos));
        Ok(bos.into_iter().chain(ids.iter().copied()).collect())
    }

    /// The bytes of one token: none for a control token or a number outside the vocabulary.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// The text of some tokens; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| self.piece(*id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A decoder for tokens that come one by one.
    pub fn stream(&self) -> Stream<'_> {
        Stream { tokenizer: self, pending: vec![] }
    }
}

/// Turns tokens into text as soon as the characters are whole.
#[derive(Debug)]
pub struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    pending: Vec<u8>,
}

impl Stream<'_> {
    /// The text that `id` completes. At most three bytes are held back: the start of a character.
    pub fn push(&mut self, id: u32) -> String {
        self.pending.extend_from_slice(self.tokenizer.piece(id));
        let held = unfinished(&self.pending);
        let rest = self.pending.split_off(self.pending.len() - held);
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending = rest;
        text
    }

    /// What is left at the end: U+FFFD if a character never became whole.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// The length of the character that starts but does not end in `bytes`.
fn unfinished(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let tail = last.map_or(&[][..], |chunk| chunk.invalid());
    let starts = std::str::from_utf8(tail).is_err_and(|e| e.error_len().is_none());
    if starts { tail.len() } else { 0 }
}

/// The file's tables, typed.
struct Tables<'a> {
    gguf: &'a Gguf,
}

impl<'a> Tables<'a> {
    fn get(&self, key: &'static str) -> Option<&'a Value> {
        self.gguf.directory.metadata.get(key)
    }

    fn wrong<T>(&self, key: &'static str, expected: impl ToString) -> Result<T, Fault> {
        let found = self.get(key).map_or("missing".to_owned(), Value::to_string);
        Err(Fault::Key { key, found, expected: expected.to_string() })
    }

    fn pre_tokenizer(&self) -> Result<&'static PreTokenizer, Fault> {
        match self.get("tokenizer.ggml.model") {
            Some(Value::String(model)) if model == "gpt2" => {}
            Some(Value::String(model)) => return Err(Fault::Model(model.clone())),
            _ => return self.wrong("tokenizer.ggml.model", "a text"),
        }
        let name = match self.get("tokenizer.ggml.pre") {
            None => "default",
            Some(Value::String(name)) => name,
            Some(_) => return self.wrong("tokenizer.ggml.pre", "a text"),
        };
        PRE_TOKENIZERS.iter().find(|pre| pre.names.contains(&name)).ok_or_else(|| Fault::PreTokenizer {
            found: name.to_owned(),
            supported: PRE_TOKENIZERS.iter().flat_map(|p| p.names).copied().collect::<Vec<_>>().join(", "),
        })
    }

    fn strings(&self, key: &'static str) -> Result<Vec<&'a str>, Fault> {
        let text = |value: &'a Value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        };
        match self.get(key) {
            Some(Value::Array(values)) => values.iter().map(text).collect::<Option<Vec<_>>>(),
            _ => None,
        }
        .map_or_else(|| self.wrong(key, "an array of texts"), Ok)
    }

    fn tokens(&self) -> Result<Vec<&'a str>, Fault> {
        self.strings("tokenizer.ggml.tokens")
    }

    fn types(&self, tokens: usize) -> Result<Vec<i64>, Fault> {
        let key = "tokenizer.ggml.token_type";
        let number = |value: &Value| match value {
            Value::Signed(n) => Some(*n),
            Value::Unsigned(n) => i64::try_from(*n).ok(),
            _ => None,
        };
        match self.get(key) {
            None => Ok(vec![1; tokens]),
            Some(Value::Array(values)) if values.len() == tokens => {
                let types = values.iter().map(number).collect::<Option<Vec<_>>>();
                types.map_or_else(|| self.wrong(key, "an array of whole numbers"), Ok)
            }
            Some(_) => self.wrong(key, format!("an array of {tokens}, one for each token")),
        }
    }

    fn merges(&self) -> Result<Vec<&'a str>, Fault> {
        match self.get("tokenizer.ggml.merges") {
            None => Err(Fault::NoMerges),
            Some(Value::Array(merges)) if merges.is_empty() => Err(Fault::NoMerges),
            Some(_) => self.strings("tokenizer.ggml.merges"),
        }
    }

    /// The token that begins a text, if the model wants one.
    fn bos(&self, default: bool, tokens: usize) -> Result<Option<u32>, Fault> {
        let wanted = match self.get("tokenizer.ggml.add_bos_token") {
            None => default,
            Some(Value::Bool(wanted)) => *wanted,
            Some(_) => return self.wrong("tokenizer.ggml.add_bos_token", "a bool"),
        };
        match self.get("tokenizer.ggml.bos_token_id") {
            _ if !wanted => Ok(None),
            Some(Value::Unsigned(id)) if *id < tokens as u64 => Ok(Some(*id as u32)),
            _ => self.wrong("tokenizer.ggml.bos_token_id", format!("a token below {tokens}")),
        }
    }
}

fn encoder(
    pre: &PreTokenizer,
    tokens: &[&str],
    types: &[i64],
    tables: &Tables<'_>,
    alphabet: &[char; 256],
) -> Result<tokenizers::Tokenizer, Fault> {
    let ids = ids(tokens)?;
    let missing = (0..=255u8).find(|b| !ids.contains_key(alphabet[usize::from(*b)].to_string().as_str()));
    if let Some(byte) = missing {
        return Err(Fault::NoByte(byte));
    }
    let merges = merges(&tables.merges()?, &ids)?;
    let library = |e: tokenizers::Error| Fault::Library(e.to_string());
    let vocab: Vocab = ids.iter().map(|(text, id)| ((*text).to_owned(), *id)).collect();
    let bpe = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(pre.ignore_merges);
    let mut encoder = tokenizers::Tokenizer::new(bpe.build().map_err(library)?);
    let pattern = SplitPattern::Regex(pre.pattern.to_owned());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(library)?;
    let spell = ByteLevel::new(false, true, false);
    let steps: Vec<PreTokenizerWrapper> = vec![split.into(), spell.into()];
    encoder.with_pre_tokenizer(Some(Sequence::new(steps)));
    if pre.nfc {
        encoder.with_normalizer(Some(NFC)).map_err(library)?;
    }
    let added = std::iter::zip(tokens, types)
        .filter(|(_, kind)| matches!(**kind, CONTROL | USER_DEFINED))
        .map(|(text, kind)| AddedToken::from(*text, *kind == CONTROL).normalized(false));
    encoder.add_tokens(added).map_err(library)?;
    Ok(encoder)
}

fn ids<'a>(tokens: &[&'a str]) -> Result<HashMap<&'a str, u32>, Fault> {
    let mut ids = HashMap::with_capacity(tokens.len());
    for (id, text) in (0..).zip(tokens) {
        if let Some(first) = ids.insert(*text, id) {
            return Err(Fault::Duplicate { first, second: id, text: (*text).to_owned() });
        }
    }
    Ok(ids)
}

/// The merges as pairs. The library panics on a pair that makes no token, so none reaches it.
fn merges(lines: &[&str], ids: &HashMap<&str, u32>) -> Result<Vec<(String, String)>, Fault> {
    let pair = |(index, line): (usize, &&str)| {
        let known = |(a, b): &(&str, &str)| {
            [*a, *b].iter().all(|part| ids.contains_key(part)) && ids.contains_key(format!("{a}{b}").as_str())
        };
        let pair = line.split_once(' ').filter(known);
        pair.map(|(a, b)| (a.to_owned(), b.to_owned()))
            .ok_or_else(|| Fault::Merge { index, text: (*line).to_owned() })
    };
    lines.iter().enumerate().map(pair).collect()
}

/// GPT-2's alphabet (`bytes_to_unicode` in its `encoder.py`): printable Latin-1 stands for itself, the other
/// 68 bytes for the characters from U+0100 on.
fn alphabet() -> [char; 256] {
    let mut next = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        b @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(b),
        _ => next.next().expect("68 characters follow U+0100"),
    })
}

fn byte_of(alphabet: &[char; 256]) -> HashMap<char, u8> {
    alphabet.iter().copied().zip(0..=255).collect()
}

/// The bytes that a token stands for.
fn piece(token: &str, kind: i64, spelled: &HashMap<char, u8>) -> Vec<u8> {
    match kind {
        CONTROL => vec![],
        USER_DEFINED => token.as_bytes().to_vec(),
        _ => match token.chars().map(|c| spelled.get(&c).copied()).collect() {
            Some(bytes) => bytes,
            None => token.as_bytes().to_vec(),
        },
    }
}
