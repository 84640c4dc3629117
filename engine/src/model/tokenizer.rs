//! Text to tokens and back, from the tables in a GGUF: byte-level BPE.
//!
//! A byte-level vocabulary spells each byte of a text as one printable character (GPT-2's alphabet), so
//! that every text has tokens and every token has bytes; one token may hold a part of a character.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{AddedToken, PreTokenizerWrapper};

use crate::Error;
use crate::model::gguf::{Directory, Gguf, Value};
use crate::model::known;
use crate::model::stop;
use crate::model::token_type::{CONTROL, NORMAL, USER_DEFINED, types};
pub use crate::model::vocabulary_fault::Fault;

/// A vocabulary in both directions.
#[derive(Debug)]
pub struct Tokenizer {
    encoder: tokenizers::Tokenizer,
    pieces: Vec<Vec<u8>>,
    bos: Option<u32>,
    eos: Option<u32>,
    warnings: Vec<String>,
}

/// How a text is cut before merging: by name, the patterns, each of which cuts what the one before left, whether a piece that is a token is taken whole,
/// and whether a text begins with BOS where the file does not say.
struct PreTokenizer {
    names: &'static [&'static str],
    patterns: &'static [&'static str],
    ignore_merges: bool,
    add_bos: bool,
    nfc: bool,
}

impl PreTokenizer {
    /// One cut after the other, and the spelling of bytes.
    fn steps(&self) -> Result<Vec<PreTokenizerWrapper>, tokenizers::Error> {
        let cut = |pattern: &&str| -> Result<PreTokenizerWrapper, tokenizers::Error> {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into())
        };
        let spell = PreTokenizerWrapper::from(ByteLevel::new(false, true, false));
        self.patterns.iter().map(cut).chain([Ok(spell)]).collect()
    }
}

/// The pattern of GPT-2's `encoder.py`.
const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The pre-tokenizers of `llama-vocab.cpp` in llama.cpp, with the patterns of the models' own
/// `tokenizer.json`.
const PRE_TOKENIZERS: [PreTokenizer; 4] = [
    // What a file says whose maker did not know better; no model has it of its own.
    PreTokenizer {
        names: &["default"],
        patterns: &[r"[\p{P}$+<=>^~|]+", GPT_2, r"\p{N}+", r"[0-9][0-9][0-9]"],
        ignore_merges: false,
        add_bos: false,
        nfc: false,
    },
    PreTokenizer { names: &["gpt-2"], patterns: &[GPT_2], ignore_merges: false, add_bos: false, nfc: false },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        patterns: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: true,
        add_bos: true,
        nfc: false,
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen"],
        patterns: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: false,
        add_bos: false,
        nfc: true,
    },
];

const NO_PRE_TOKENIZER: &str = "the file has no tokenizer.ggml.pre, which says how a text is cut into words, so \
                                llama.cpp's default is used; where the model was trained with another, its texts \
                                are worse. Convert it again with a newer llama.cpp";

impl Tokenizer {
    /// Builds the tokenizer that a file describes.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, Error> {
        Tokenizer::read(&Tables { directory: &gguf.directory })
            .map_err(|fault| Error::Tokenizer { path: gguf.path.clone(), fault: Box::new(fault) })
    }

    fn read(tables: &Tables<'_>) -> Result<Tokenizer, Fault> {
        known::check_tokenizer(tables.directory)?;
        let (pre, warning) = tables.pre_tokenizer()?;
        let tokens = tables.tokens()?;
        let types = tables.types(&tokens)?;
        let encoder = encoder(pre, &tokens, &types, tables)?;
        let pieces = std::iter::zip(&tokens, &types).map(|(t, kind)| piece(t, *kind)).collect();
        let bos = tables.bos(pre.add_bos, tokens.len())?;
        let eos = tables.id("tokenizer.ggml.eos_token_id", tokens.len());
        Ok(Tokenizer::new(encoder, pieces, bos, eos, warning.into_iter().collect()))
    }

    /// The encoder has no post-processor; of each token, the bytes are known.
    pub(crate) fn new(
        encoder: tokenizers::Tokenizer,
        pieces: Vec<Vec<u8>>,
        bos: Option<u32>,
        eos: Option<u32>,
        warnings: Vec<String>,
    ) -> Tokenizer {
        Tokenizer { encoder, pieces, bos, eos, warnings }
    }

    /// What makes it doubtful that texts get the tokens that the model was trained on, a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tokens of a text, after BOS where the model wants it. Control tokens may stand in the text by
    /// name.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let ids = self.encode_rest(text)?;
        let bos = self.bos.filter(|bos| ids.first() != Some(bos));
        Ok(bos.into_iter().chain(ids).collect())
    }

    /// The tokens of a text that goes on from another one: as [`encode`](Self::encode), without BOS.
    pub fn encode_rest(&self, text: &str) -> Result<Vec<u32>, Error> {
        let encoding = self.encoder.encode_fast(text, false).map_err(|e| Error::Encode(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// As [`encode_rest`](Self::encode_rest), each token with the bytes of the text that it is of. Tokens that share a
    /// character have all of it.
    pub fn encode_places(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>, Error> {
        let encoding = self.encoder.encode(text, false).map_err(|e| Error::Encode(e.to_string()))?;
        let places = encoding.get_offsets().iter().map(|(start, end)| *start..*end);
        Ok(std::iter::zip(encoding.get_ids().iter().copied(), places).collect())
    }

    /// The token that begins a text, if the model wants one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text, if the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The bytes of one token: none for a control token or a number outside the vocabulary.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// How the vocabulary spells a token: `<|im_end|>`.
    pub fn spelling(&self, id: u32) -> Option<String> {
        self.encoder.id_to_token(id)
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
    directory: &'a Directory,
}

impl<'a> Tables<'a> {
    fn get(&self, key: &'static str) -> Option<&'a Value> {
        self.directory.metadata.get(key)
    }

    fn wrong<T>(&self, key: &'static str, expected: impl ToString) -> Result<T, Fault> {
        let found = self.get(key).map_or("missing".to_owned(), Value::described);
        Err(Fault::Key { key, found, expected: expected.to_string() })
    }

    /// How a text is cut, and a warning where the file does not say.
    fn pre_tokenizer(&self) -> Result<(&'static PreTokenizer, Option<String>), Fault> {
        match self.text("tokenizer.ggml.model")? {
            Some("gpt2") => {}
            Some(other) => return Err(Fault::Model(other.to_owned())),
            None => return self.wrong("tokenizer.ggml.model", "a string"),
        }
        let name = self.text("tokenizer.ggml.pre")?;
        let warning = name.is_none().then(|| NO_PRE_TOKENIZER.to_owned());
        let name = name.unwrap_or("default");
        let pre = PRE_TOKENIZERS.iter().find(|pre| pre.names.contains(&name));
        let pre = pre.ok_or_else(|| Fault::PreTokenizer {
            found: name.to_owned(),
            supported: PRE_TOKENIZERS.iter().flat_map(|p| p.names).copied().collect::<Vec<_>>().join(", "),
        })?;
        Ok((pre, warning))
    }

    fn text(&self, key: &'static str) -> Result<Option<&'a str>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => self.wrong(key, "a string"),
        }
    }

    fn strings(&self, key: &'static str) -> Result<Vec<&'a str>, Fault> {
        let strings = match self.get(key) {
            Some(Value::Array(values)) => values.strings(),
            _ => None,
        };
        strings.map_or_else(|| self.wrong(key, "an array of strings"), |strings| Ok(strings.collect()))
    }

    fn tokens(&self) -> Result<Vec<&'a str>, Fault> {
        self.strings("tokenizer.ggml.tokens")
    }

    /// The type of each token. What ends a text by its spelling is a control token whatever the file says.
    fn types(&self, tokens: &[&str]) -> Result<Vec<i64>, Fault> {
        let types = types(self.directory, tokens.len())?.unwrap_or_else(|| vec![NORMAL; tokens.len()]);
        let kind = |(kind, token): (i64, &&str)| if stop::is_marker(token) { CONTROL } else { kind };
        Ok(types.into_iter().zip(tokens).map(kind).collect())
    }

    fn merges(&self) -> Result<Vec<&'a str>, Fault> {
        match self.get("tokenizer.ggml.merges") {
            None => Err(Fault::NoMerges),
            Some(Value::Array(merges)) if merges.is_empty() => Err(Fault::NoMerges),
            Some(_) => self.strings("tokenizer.ggml.merges"),
        }
    }

    /// The token of the vocabulary that a key names.
    fn id(&self, key: &'static str, tokens: usize) -> Option<u32> {
        let id = self.get(key).and_then(Value::integer);
        id.and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < tokens)
    }

    /// The token that begins a text, if the model wants one.
    fn bos(&self, default: bool, tokens: usize) -> Result<Option<u32>, Fault> {
        let wanted = match self.get("tokenizer.ggml.add_bos_token") {
            None => default,
            Some(Value::Bool(wanted)) => *wanted,
            Some(_) => return self.wrong("tokenizer.ggml.add_bos_token", "a bool"),
        };
        match self.id("tokenizer.ggml.bos_token_id", tokens) {
            _ if !wanted => Ok(None),
            Some(id) => Ok(Some(id)),
            None => self.wrong("tokenizer.ggml.bos_token_id", format!("a token below {tokens}")),
        }
    }
}

fn encoder(
    pre: &PreTokenizer,
    tokens: &[&str],
    types: &[i64],
    tables: &Tables<'_>,
) -> Result<tokenizers::Tokenizer, Fault> {
    let ids = ids(tokens)?;
    check_bytes(&ids)?;
    let merges = merges(tables.merges()?.iter().map(|line| line.split_once(' ').ok_or(*line)), &ids)?;
    let library = |e: tokenizers::Error| Fault::Library(e.to_string());
    let vocab: Vocab = ids.iter().map(|(text, id)| ((*text).to_owned(), *id)).collect();
    let bpe = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(pre.ignore_merges);
    let mut encoder = tokenizers::Tokenizer::new(bpe.build().map_err(library)?);
    let steps = pre.steps().map_err(library)?;
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

/// Refuses a vocabulary without a token for each byte.
pub(crate) fn check_bytes(ids: &HashMap<&str, u32>) -> Result<(), Fault> {
    let has = |byte: &u8| ids.contains_key(ALPHABET[usize::from(*byte)].to_string().as_str());
    (0..=255u8).find(|byte| !has(byte)).map_or(Ok(()), |byte| Err(Fault::NoByte(byte)))
}

/// The merges as pairs; an error is a line that is none. The library panics on a pair that makes no token, so none reaches it.
pub(crate) fn merges<'a>(
    pairs: impl Iterator<Item = Result<(&'a str, &'a str), &'a str>>,
    ids: &HashMap<&str, u32>,
) -> Result<Vec<(String, String)>, Fault> {
    let known = |(a, b): (&str, &str)| {
        [a, b].iter().all(|part| ids.contains_key(part)) && ids.contains_key(format!("{a}{b}").as_str())
    };
    let pair = |(index, pair): (usize, Result<(&str, &str), &str>)| match pair {
        Ok((a, b)) if known((a, b)) => Ok((a.to_owned(), b.to_owned())),
        Ok((a, b)) => Err(Fault::Merge { index, text: format!("{a} {b}") }),
        Err(line) => Err(Fault::Merge { index, text: line.to_owned() }),
    };
    pairs.enumerate().map(pair).collect()
}

static ALPHABET: LazyLock<[char; 256]> = LazyLock::new(alphabet);
static BYTE_OF: LazyLock<HashMap<char, u8>> =
    LazyLock::new(|| ALPHABET.iter().copied().zip(0..=255).collect());

/// GPT-2's alphabet (`bytes_to_unicode` in its `encoder.py`): printable Latin-1 stands for itself, the other
/// 68 bytes for the characters from U+0100 on.
fn alphabet() -> [char; 256] {
    let mut next = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        b @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(b),
        _ => next.next().expect("68 characters follow U+0100"),
    })
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

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

    use super::*;

    /// What a text is cut into.
    fn cuts(pre: &str, text: &str) -> Vec<String> {
        let pre = PRE_TOKENIZERS.iter().find(|p| p.names.contains(&pre)).unwrap();
        let mut steps = pre.steps().unwrap();
        steps.pop(); // the spelling of bytes
        let mut string = PreTokenizedString::from(text);
        Sequence::new(steps).pre_tokenize(&mut string).unwrap();
        let splits = string.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(piece, _, _)| piece.to_owned()).collect()
    }

    /// The pieces are those of llama.cpp's own splitter (`unicode_regex_split`) with its default patterns.
    #[test]
    fn the_default_cuts_as_llama_cpp_does() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/default-cuts.json");
        let cases: Vec<(String, Vec<String>)> =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(cases.len() > 100);
        for (text, pieces) in cases {
            assert_eq!(cuts("default", &text), pieces, "{text:?}");
        }
    }
}
