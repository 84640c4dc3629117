//! A lower bound of the number of a text's tokens, which is found without tokenizing the text.
//!
//! The encoder takes about 60 times as much memory as the text. A server can refuse a text that is
//! much too long before that. The bound follows from the length of the longest token, so it only
//! holds if each byte of a text is a byte of a token. A vocabulary for which this is not certain has
//! the bound 0.

use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{ModelWrapper, SplitDelimiterBehavior};

use crate::tokenizer::byte_level;
use crate::tokenizer::codec::Tokenizer;
use crate::tokenizer::cuts::{Cut, Library, TextChange};
use crate::tokenizer::vocabulary::Encoder;

/// The largest factor by which the normal form NFC is shorter than a text. For example, three marks
/// of 2 bytes each and a letter of 3 bytes can become one character of 3 bytes.
const NFC_FACTOR: usize = 4;

/// A lower bound of the number of a text's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBound {
    /// The number of bytes of the longest token, or `None` for a vocabulary without a bound.
    longest: Option<usize>,
    counted: CountedBytes,
}

/// The bytes of a text that are bytes of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountedBytes {
    All,
    /// A token by name takes any amount of white space next to it.
    NoWhiteSpace,
}

impl TokenBound {
    /// Returns a number of tokens that the text has at least.
    pub fn least_tokens(self, text: &str) -> usize {
        let Some(longest) = self.longest else {
            return 0;
        };
        let bytes = match self.counted {
            CountedBytes::All => text.len(),
            CountedBytes::NoWhiteSpace => text
                .chars()
                .filter(|c| !c.is_whitespace())
                .map(char::len_utf8)
                .sum(),
        };
        bytes.div_ceil(longest)
    }
}

impl Tokenizer {
    /// Returns a lower bound of the number of tokens of texts.
    pub fn token_bound(&self) -> TokenBound {
        let vocabulary = self.vocabulary();
        let names = vocabulary.control.values().map(|name| name.len());
        let pieces = vocabulary.pieces.iter().map(Vec::len);
        let longest = pieces.chain(names).max().unwrap_or(0).max(1);
        match &vocabulary.encoder {
            Encoder::Library(library, _) => of_library(library, longest),
            Encoder::SentencePiece(model, _) => TokenBound {
                longest: model
                    .keeps_all_bytes()
                    .then(|| longest.max(model.longest_piece())),
                counted: if model.takes_space() {
                    CountedBytes::NoWhiteSpace
                } else {
                    CountedBytes::All
                },
            },
        }
    }
}

/// Returns the bound of a tokenizer of the library, whose longest token has `longest` bytes.
fn of_library(library: &Library, longest: usize) -> TokenBound {
    let has_bytes = matches!(library.get_model(), ModelWrapper::BPE(_))
        && byte_level::has_bytes(|spelling| library.token_to_id(spelling).is_some());
    let cuts = library.get_pre_tokenizer().map_or(&[][..], |cuts| &cuts.0);
    let spells_bytes = cuts
        .iter()
        .any(|cut| matches!(cut, Cut::Library(PreTokenizerWrapper::ByteLevel(_))));
    let keeps_all = cuts.iter().all(|cut| match cut {
        Cut::Split(split) => split.behavior() != SplitDelimiterBehavior::Removed,
        Cut::Space => true,
        Cut::Library(step) => matches!(
            step,
            PreTokenizerWrapper::ByteLevel(_) | PreTokenizerWrapper::Digits(_)
        ),
    });

    // The factor by which the changes shorten a text at most, or `None` if there is no limit.
    let changes = library.get_normalizer();
    let factor = changes.map_or(&[][..], |changes| &changes.0);
    let factor = factor.iter().try_fold(1, |factor, change| match change {
        TextChange::Library(NormalizerWrapper::NFC(_)) => Some(factor * NFC_FACTOR),
        TextChange::Library(_) | TextChange::Replace(..) => None,
    });

    let added = library.get_added_vocabulary().get_added_tokens_decoder();
    let takes_space = added.values().any(|token| token.lstrip || token.rstrip);
    let longest_added = added.values().map(|token| token.content.len()).max();
    let longest = longest.max(longest_added.unwrap_or(0));
    TokenBound {
        longest: factor
            .filter(|_| has_bytes && spells_bytes && keeps_all)
            .map(|factor| factor * longest),
        counted: if takes_space {
            CountedBytes::NoWhiteSpace
        } else {
            CountedBytes::All
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn tokenizer() -> Tokenizer {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets");
        Tokenizer::open(&folder.join("rustdoc-7m-Q4_K_M.gguf")).unwrap()
    }

    #[test]
    fn the_bound_is_never_above_the_number_of_tokens() {
        let tokenizer = tokenizer();
        let bound = tokenizer.token_bound();
        let spaces = " ".repeat(300);
        let marks = "\u{212a}\u{1fbe}\u{308}\u{301}".repeat(20);
        let named = "<|endoftext|>".repeat(30);
        // Each token by itself, so that the longest one is among the texts.
        let tokens = (0..tokenizer.size() as u32).filter_map(|id| tokenizer.spelling(id));
        let texts = ["", "a", "fn main() {\n    println!(\"é\");\n}\n"].map(str::to_owned);
        let texts = texts
            .into_iter()
            .chain([spaces, marks, named])
            .chain(tokens);
        for text in texts {
            let least = bound.least_tokens(&text);
            let count = tokenizer.encode_rendered(&text).unwrap().len();
            assert!(least <= count, "{least} of {count} in {text:?}");
        }
        assert_eq!(bound.least_tokens(""), 0);
        let long = bound.least_tokens(&"word ".repeat(10_000));
        assert!((100..=10_001).contains(&long), "{long}");
    }

    #[test]
    fn white_space_is_not_counted_if_a_token_takes_it() {
        let bound = TokenBound {
            longest: Some(4),
            counted: CountedBytes::NoWhiteSpace,
        };
        assert_eq!(bound.least_tokens("ab c\n\n\n\n\u{a0}d é"), 2);
        let none = TokenBound {
            longest: None,
            ..bound
        };
        assert_eq!(none.least_tokens("abcdefgh"), 0);
    }
}
