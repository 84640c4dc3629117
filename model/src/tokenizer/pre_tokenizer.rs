//! Pre-tokenizers: the division of a text into pieces before the pieces are merged, by the names in
//! `tokenizer.ggml.pre`.
//!
//! The names come from `llama-vocab.cpp` in llama.cpp. The patterns come from the `tokenizer.json`
//! of each model, which that file cites where it rewrites them for its own regular expressions. The
//! two differ in rare texts. Names of models that do not generate text are missing: `jina-v1-en`,
//! `jina-v2-code` and `roberta-bpe`, which put a separator after a text, and `whitespace`.

use crate::tokenizer::cuts::{Cut, Cuts, GPT_2};
use crate::tokenizer::vocabulary_fault::Fault;

/// The division of texts, with the names under which files refer to it.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    names: &'static [&'static str],
    /// The patterns, each of which divides the pieces of the previous one.
    patterns: &'static [&'static str],
    /// Whether a piece that is a token is taken whole.
    pub(crate) ignore_merges: bool,
    /// Whether a text begins with BOS where the file does not say.
    pub(crate) add_bos: bool,
    /// Whether a text is brought to NFC before.
    pub(crate) nfc: bool,
    pub(crate) spelling: TokenSpelling,
}

/// The encoding of bytes in the spelling of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenSpelling {
    /// Each byte as a character of GPT-2's alphabet.
    Bytes,
    /// As they are, with U+2581 for a space; a character without a token in bytes such as `<0x0A>`.
    Spaces,
}

impl PreTokenizer {
    /// The cut of a name.
    pub(crate) fn named(name: &str) -> Result<&'static PreTokenizer, Fault> {
        PRE_TOKENIZERS
            .iter()
            .find(|pre| pre.names.contains(&name))
            .ok_or_else(|| Fault::PreTokenizer {
                found: name.to_owned(),
                supported: PRE_TOKENIZERS
                    .iter()
                    .flat_map(|p| p.names)
                    .copied()
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// One cut after the other, and the spelling of bytes.
    pub(crate) fn cuts(&self) -> tokenizers::Result<Cuts> {
        let spell = match self.spelling {
            TokenSpelling::Bytes => Some(Ok(Cut::bytes())),
            TokenSpelling::Spaces => None,
        };
        let cuts = self
            .patterns
            .iter()
            .map(|pattern| Cut::isolated(pattern))
            .chain(spell);
        Ok(Cuts(cuts.collect::<tokenizers::Result<_>>()?))
    }
}

const fn cut(names: &'static [&'static str], patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer {
        names,
        patterns,
        ignore_merges: false,
        add_bos: false,
        nfc: false,
        spelling: TokenSpelling::Bytes,
    }
}

impl PreTokenizer {
    const fn whole_tokens(self) -> PreTokenizer {
        PreTokenizer {
            ignore_merges: true,
            ..self
        }
    }

    const fn bos(self) -> PreTokenizer {
        PreTokenizer {
            add_bos: true,
            ..self
        }
    }

    const fn nfc(self) -> PreTokenizer {
        PreTokenizer { nfc: true, ..self }
    }

    const fn spaces(self) -> PreTokenizer {
        PreTokenizer {
            spelling: TokenSpelling::Spaces,
            ..self
        }
    }
}

/// The pattern of `cl100k_base`, with up to three digits.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The pattern of `cl100k_base`, with one digit.
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The pattern of `o200k_base`.
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

/// Chinese characters and kana, and the rest, of DeepSeek V3.
const CJK: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
const DEEPSEEK_3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

const LINES: &str = r"[^\n]+|[\n]+";

const DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = r"\p{N}{1,3}";

#[rustfmt::skip] // one cut a paragraph
const PRE_TOKENIZERS: &[PreTokenizer] = &[
    // The fallback of converters that do not know the pre-tokenizer. No model is trained with it.
    cut(&["default"], &[r"[\p{P}$+<=>^~|]+", GPT_2, r"\p{N}+", r"[0-9][0-9][0-9]"]),
    cut(
        &["gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum",
          "modern-bert", "mpt", "jais", "trillion", "granite-docling", "exaone4"],
        &[GPT_2],
    ),
    cut(&["olmo"], &[GPT_2]).nfc(),
    cut(
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        &[LLAMA_3],
    ).whole_tokens().bos(),
    cut(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[LLAMA_3]),
    cut(&["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"], &[QWEN_2]).nfc(),
    cut(&["stablelm2", "hunyuan", "solar-open", "grok-2"], &[QWEN_2]),
    cut(
        &["qwen35"],
        &[r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    ).nfc(),
    cut(
        &["starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[DIGIT, GPT_2],
    ),
    cut(&["command-r"], &[DIGIT, GPT_2]).nfc(),
    cut(
        &["falcon"],
        &[r"[\p{P}$+<=>^~|`]+", GPT_2, r"[0-9][0-9][0-9]"],
    ),
    cut(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1f7d}ᾀ-ᾴᾶ-ᾼ\u{1fbe}ῂ-ῄῆ-ῌῐ-\u{1fd3}ῖ-\u{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
            "\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+",
            r"\s+$",
            "[一-龥\u{800}-一가-\u{d7ff}]+",
            DIGIT,
        ],
    ),
    cut(
        &["deepseek-coder"],
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u{800}-一가-\u{d7ff}]+", DIGIT],
    ),
    cut(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[THREE_DIGITS, CJK, DEEPSEEK_3]),
    cut(
        &["spark2_5"],
        &[
            THREE_DIGITS,
            CJK,
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##,
            DIGIT,
        ],
    ),
    cut(
        &["youtu"],
        &[
            "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-\u{303f}︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u{3040}-ゟ゠-ヿ]+",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ).whole_tokens(),
    cut(
        &["jais-2"],
        &[r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"],
    ),
    cut(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    cut(&["viking"], &[BLOOM, DIGIT]),
    cut(
        &["tekken"],
        &[r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    ).whole_tokens().bos(),
    cut(
        &["chameleon"],
        &[
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            DIGIT,
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT_2,
        ],
    ).bos(),
    cut(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT_4O]),
    cut(&["granite-embed-multi-97m"], &[GPT_4O]).whole_tokens(),
    cut(&["tiny_aya", "cohere2moe"], &[r"\d{1,3}(?=(?:\d{3})*\b)", GPT_4O]),
    cut(
        &["kimi-k2"],
        &[r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    ),
    cut(&["superbpe"], &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    cut(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    ),
    cut(
        &["seed-coder"],
        &[r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    ),
    cut(
        &["ufakzeka"],
        &[r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    ),
    cut(
        &["afmoe"],
        &[
            // From the right, groups of three digits.
            r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
            "[一-鿿㐀-䶿豈-\u{faff}\u{3040}-ゟ゠-ヿ･-ﾟ⼀-\u{2fdf}\u{0e00}-\u{0e7f}\u{0e80}-\u{0eff}ក-\u{17ff}က-႟ꩠ-ꩿꧠ-\u{a9ff}가-\u{d7af}ᄀ-ᇿ]+",
            DEEPSEEK_3,
        ],
    ),
    cut(&["laguna"], &[LINES, QWEN_2]),
    cut(
        &["exaone-moe"],
        &[r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    ),
    cut(
        &["minicpm5"],
        &[
            THREE_DIGITS,
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ).whole_tokens(),
    cut(&["gemma4", "granite-embed-multi-311m"], &[LINES]).spaces().bos(),
    cut(&["sarvam-moe"], &[LINES]).spaces(),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

    use super::*;

    /// Returns the pieces of a text.
    fn cuts(pre: &PreTokenizer, text: &str) -> Vec<String> {
        let mut steps = pre.cuts().unwrap();
        if pre.spelling == TokenSpelling::Bytes {
            steps.0.pop();
        }

        let mut string = PreTokenizedString::from(text);
        steps.pre_tokenize(&mut string).unwrap();
        let splits = string.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits
            .into_iter()
            .map(|(piece, _, _)| piece.to_owned())
            .collect()
    }

    /// Compares the pieces with llama.cpp's own splitter (`unicode_regex_split`) and its default
    /// patterns.
    #[test]
    fn the_default_cuts_as_llama_cpp_does() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/data/default-cuts.json"
        );
        let cases: Vec<(String, Vec<String>)> =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(cases.len() > 100);
        let default = PreTokenizer::named("default").unwrap();
        for (text, pieces) in cases {
            assert_eq!(cuts(default, &text), pieces, "{text:?}");
        }
    }

    /// Checks that names are unique, and that the pieces together are the text.
    #[test]
    fn every_cut_is_named_once_and_keeps_the_text() {
        let names: Vec<_> = PRE_TOKENIZERS.iter().flat_map(|pre| pre.names).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        let text = "Don't  stop\r\n\n 1234567 na\u{ef}ve caf\u{e9}s \u{4e00}\u{306e}\u{ac00} \u{1f980}\u{200d} <a|b>  \t x ";
        for pre in PRE_TOKENIZERS {
            let cuts = cuts(pre, text);
            assert_eq!(cuts.concat(), text, "{:?}", pre.names);
            assert!(cuts.len() > 1, "{:?}", pre.names);
        }
    }
}
