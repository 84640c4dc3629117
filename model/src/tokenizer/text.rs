//! The text of a stream of tokens, and the reason why it ended.
//!
//! Two parts of the text are held back until later tokens decide about them: the bytes of an
//! incomplete character, and characters that may begin a stop string. The result does not depend on
//! how the text is split into tokens. The stop string that is completed first ends the text. If
//! several are completed by the same character, the longest one counts.

use std::ops::Range;

use crate::Error;
use crate::tokenizer::codec::{Stream, Tokenizer};

/// The strings that end a text. None of them is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopStrings(Vec<String>);

impl StopStrings {
    /// Creates a list of stop strings.
    ///
    /// # Errors
    /// Returns [`Error::EmptyStop`] if a string is empty, because it would end every text before
    /// its first character.
    pub fn new(strings: Vec<String>) -> Result<StopStrings, Error> {
        if strings.iter().any(String::is_empty) {
            Err(Error::EmptyStop)
        } else {
            Ok(StopStrings(strings))
        }
    }

    /// Returns true if there are no stop strings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the stop string that is completed first in `text`, with its byte range.
    fn find(&self, text: &str) -> Option<(&str, Range<usize>)> {
        let found = self
            .0
            .iter()
            .filter_map(|stop| Some((stop, text.find(stop.as_str())?)));
        let found = found.map(|(stop, start)| (stop.as_str(), start..start + stop.len()));
        found.min_by_key(|(_, at)| (at.end, at.start))
    }

    /// Returns the number of bytes at the end of `text` that may be the beginning of a stop string.
    fn begun(&self, text: &str) -> usize {
        let begins = |stop: &str, tail: &str| tail.len() < stop.len() && stop.starts_with(tail);
        // The first such tail is the longest, so a stop string cannot begin in front of it.
        text.char_indices()
            .map(|(at, _)| &text[at..])
            .find(|tail| self.0.iter().any(|stop| begins(stop, tail)))
            .map_or(0, str::len)
    }
}

/// The reason why a text ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextEnding {
    /// A token that ends texts, by its id.
    EndToken(u32),
    /// A stop string, which is not part of the text.
    StopString(String),
    /// The requested number of tokens was generated.
    Limit,
    /// The context has no position left.
    ContextFull,
    /// The text is complete, and the grammar allows nothing more.
    Grammar,
    /// The caller stopped reading.
    Interrupted,
}

/// A converter from tokens to text that stops at the end of the text.
///
/// [`push`](TextStream::push) takes tokens one by one, and [`finish`](TextStream::finish) returns
/// the rest.
#[derive(Debug)]
pub struct TextStream<'a> {
    stream: Option<Stream<'a>>,
    end_tokens: &'a [u32],
    stops: &'a StopStrings,
    /// The text that may be the beginning of a stop string.
    held: String,
    ended: Option<TextEnding>,
}

impl<'a> TextStream<'a> {
    /// Creates a stream for a model whose texts end with one of `end_tokens`, usually
    /// [`Outline::stop`](field@crate::Outline::stop). Without a tokenizer the text is empty and
    /// only tokens end it.
    pub fn new(
        tokenizer: Option<&'a Tokenizer>,
        end_tokens: &'a [u32],
        stops: &'a StopStrings,
    ) -> Self {
        let stream = tokenizer.map(Tokenizer::stream);
        TextStream {
            stream,
            end_tokens,
            stops,
            held: String::new(),
            ended: None,
        }
    }

    /// Adds the spelling of control tokens to the text, for those whose spelling `shows` accepts.
    /// By default they are omitted.
    pub fn spell(&mut self, shows: impl Fn(&str) -> bool) {
        if let Some(stream) = &mut self.stream {
            stream.spell(shows);
        }
    }

    /// Returns the text that can be printed after `token`. After the end of the text it is empty.
    pub fn push(&mut self, token: u32) -> String {
        if self.ended.is_some() {
            return String::new();
        }

        if self.end_tokens.contains(&token) {
            self.ended = Some(TextEnding::EndToken(token));
            return self.rest();
        }

        let text = self
            .stream
            .as_mut()
            .map_or(String::new(), |stream| stream.push(token));
        self.take(&text)
    }

    /// Returns the reason why the text ended, or `None` if it has not ended.
    pub fn ended(&self) -> Option<&TextEnding> {
        self.ended.as_ref()
    }

    /// Returns the text that was held back and the reason why the text ended.
    ///
    /// An incomplete character becomes U+FFFD. The reason is `why`, unless the text ended earlier
    /// or the rest completes a stop string.
    pub fn finish(mut self, why: TextEnding) -> (String, TextEnding) {
        let text = if self.ended.is_none() {
            self.rest()
        } else {
            String::new()
        };
        (text, self.ended.unwrap_or(why))
    }

    /// Returns all text that is left when no more tokens follow.
    fn rest(&mut self) -> String {
        let text = self.stream.take().map_or(String::new(), Stream::finish);
        self.take(&text) + &std::mem::take(&mut self.held)
    }

    /// Adds text and returns the part that can be printed now.
    ///
    /// A stop string ends the text even if a token ended it already, because the stop string is in
    /// front of that token.
    fn take(&mut self, text: &str) -> String {
        self.held.push_str(text);
        let found = self
            .stops
            .find(&self.held)
            .map(|(stop, at)| (stop.to_owned(), at));
        if let Some((stop, at)) = found {
            let text = self.held[..at.start].to_owned();
            self.held.clear();
            self.ended = Some(TextEnding::StopString(stop));
            return text;
        }

        let rest = self
            .held
            .split_off(self.held.len() - self.stops.begun(&self.held));
        std::mem::replace(&mut self.held, rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use tokenizers::models::bpe::BPE;

    use super::*;
    use crate::tokenizer::cuts::Library;
    use crate::tokenizer::vocabulary::{Encoder, SpacePrefix, Vocabulary};

    /// A tokenizer whose tokens are these bytes.
    fn tokenizer(pieces: &[&[u8]]) -> Tokenizer {
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        Tokenizer::new(Vocabulary {
            encoder: Encoder::Library(Box::new(Library::new(BPE::default().into())), None),
            pieces,
            control: HashMap::new(),
            space_prefix: SpacePrefix::None,
            bos: None,
            eos: None,
            warnings: vec![],
        })
    }

    fn stops(stops: &[&str]) -> StopStrings {
        StopStrings::new(stops.iter().map(|stop| (*stop).to_owned()).collect()).unwrap()
    }

    /// What is printed with each token, at last, and why the text ended, if not by its length.
    fn read(
        pieces: &[&[u8]],
        end: &[u32],
        strings: &StopStrings,
    ) -> (Vec<String>, Option<TextEnding>) {
        let tokenizer = tokenizer(pieces);
        let mut stream = TextStream::new(Some(&tokenizer), end, strings);
        let mut printed: Vec<String> = (0..pieces.len() as u32)
            .map(|token| stream.push(token))
            .collect();
        let (rest, ending) = stream.finish(TextEnding::Limit);
        printed.push(rest);
        (
            printed,
            Some(ending).filter(|ending| *ending != TextEnding::Limit),
        )
    }

    #[test]
    fn text_is_held_back_while_it_may_become_a_stop_string() {
        type Case = (
            &'static [&'static str],
            &'static [&'static str],
            &'static [&'static str],
            Option<&'static str>,
        );
        let cases: &[Case] = &[
            (&["a b", " c"], &[], &["a b", " c", ""], None),
            (&["a\n", "b"], &["\n\n"], &["a", "\nb", ""], None),
            (
                &["a\n", "\nb", "c"],
                &["\n\n"],
                &["a", "", "", ""],
                Some("\n\n"),
            ),
            (&["a\n"], &["\n\n"], &["a", "\n"], None),
            // One that begins another one is whole before it.
            (
                &["xa", "b", "c"],
                &["abc", "ab"],
                &["x", "", "", ""],
                Some("ab"),
            ),
            (&["xab", "d"], &["abc"], &["x", "abd", ""], None),
            (&["abc"], &["abc", "b"], &["a", ""], Some("b")),
            (&["abc"], &["c", "bc"], &["a", ""], Some("bc")),
            // What is held is as much as may begin one, not more.
            (
                &["aab", "ab", "x"],
                &["abab!"],
                &["a", "", "ababx", ""],
                None,
            ),
            (&["aba", "bab!"], &["abab!"], &["", "ab", ""], Some("abab!")),
            (&["f", "ü", "r"], &["ür"], &["f", "", "", ""], Some("ür")),
        ];
        for (tokens, strings, wanted, stop) in cases {
            let pieces: Vec<&[u8]> = tokens.iter().map(|token| token.as_bytes()).collect();
            let ending = stop.map(|stop| TextEnding::StopString(stop.to_owned()));
            let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(
                read(&pieces, &[], &stops(strings)),
                (wanted, ending),
                "{tokens:?} {strings:?}"
            );
        }
    }

    #[test]
    fn characters_are_held_back_until_they_are_whole() {
        let crab = "🦀".as_bytes();
        let split: [&[u8]; 4] = [&crab[..1], &crab[1..2], &crab[2..3], &crab[3..]];
        assert_eq!(read(&split, &[], &stops(&[])).0, ["", "", "", "🦀", ""]);
        assert_eq!(
            read(&split, &[], &stops(&["🦀"])).1,
            Some(TextEnding::StopString("🦀".into()))
        );
        assert_eq!(
            read(&split[..3], &[], &stops(&["🦀"])).0,
            ["", "", "", "\u{fffd}"]
        );
        assert_eq!(
            read(&[crab, &crab[..2], b"x"], &[], &stops(&["x"])).0,
            ["🦀", "", "\u{fffd}", ""]
        );
    }

    #[test]
    fn each_end_token_ends_a_text_and_is_not_printed() {
        let ending = |end: &[u32], strings: &[&str]| {
            read(&[b"a", b"b\xf0", b"</s>", b"c"], end, &stops(strings))
        };
        assert_eq!(ending(&[2, 9], &[]).0, ["a", "b", "\u{fffd}", "", ""]);
        assert_eq!(ending(&[2, 9], &[]).1, Some(TextEnding::EndToken(2)));

        // A stop string before it comes first.
        assert_eq!(
            ending(&[2], &["\u{fffd}"]).1,
            Some(TextEnding::StopString("\u{fffd}".into()))
        );
        assert_eq!(
            ending(&[2], &["b\u{fffd}<"]).0,
            ["a", "", "b\u{fffd}", "", ""]
        );
        let no_stops = stops(&[]);
        let mut ids = TextStream::new(None, &[7], &no_stops);
        assert_eq!((ids.push(5), ids.ended()), (String::new(), None));
        assert_eq!(
            (ids.push(7), ids.ended()),
            (String::new(), Some(&TextEnding::EndToken(7)))
        );
        let empty = StopStrings::new(vec!["a".into(), String::new()]).unwrap_err();
        let sentence = "a stop string is empty: it would end every text before its first character";
        assert_eq!(empty.to_string(), sentence);
    }

    /// The text up to the stop string that is whole first, the obvious way.
    fn cut<'a>(text: &'a str, strings: &[String]) -> &'a str {
        for (at, c) in text.char_indices() {
            let so_far = &text[..at + c.len_utf8()];
            let ends = strings
                .iter()
                .filter(|stop| so_far.ends_with(stop.as_str()));
            if let Some(longest) = ends.map(String::len).max() {
                return &so_far[..so_far.len() - longest];
            }
        }
        text
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_text_does_not_depend_on_where_tokens_end(
            pieces in prop::collection::vec(prop::collection::vec(
                prop::sample::select(vec![b'a', b'b', 0xc3, 0xbc, 0xf0]), 0..4), 0..12),
            strings in prop::collection::vec("[abü\u{fffd}]{1,4}", 0..4),
        ) {
            let whole = String::from_utf8_lossy(&pieces.concat()).into_owned();
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let (printed, ending) = read(&pieces, &[], &StopStrings::new(strings.clone()).unwrap());
            let wanted = cut(&whole, &strings);
            prop_assert_eq!(printed.concat(), wanted);
            prop_assert_eq!(ending.is_some(), wanted.len() < whole.len());
        }
    }
}
