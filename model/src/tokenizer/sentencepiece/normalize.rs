//! The normal form of a text, each byte of it with the bytes of the text that it is of.

use std::ops::Range;

use crate::tokenizer::sentencepiece::charsmap::Charsmap;
use crate::tokenizer::sentencepiece::model::{SPACE, Spaces};

/// A normalized text.
pub(super) struct Normalized {
    pub(super) text: String,
    /// For each of its bytes, the bytes of the text as it was.
    origins: Vec<Range<usize>>,
}

impl Normalized {
    fn new(capacity: usize) -> Normalized {
        Normalized {
            text: String::with_capacity(capacity),
            origins: Vec::with_capacity(capacity),
        }
    }

    fn push(&mut self, c: char, origin: Range<usize>) {
        self.text.push(c);
        self.origins.resize(self.text.len(), origin);
    }

    fn pop_space(&mut self) -> bool {
        let ends = self.text.ends_with(SPACE);
        if ends {
            self.text.truncate(self.text.len() - SPACE.len_utf8());
            self.origins.truncate(self.text.len());
        }
        ends
    }

    /// The bytes of the original text that a range is of.
    pub(super) fn origin(&self, range: Range<usize>) -> Range<usize> {
        let origins = &self.origins[range];
        match (origins.first(), origins.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        }
    }
}

/// Replaces characters by the map, and spaces as the model wants them.
pub(super) fn normalize(text: &str, spaces: Spaces, charsmap: Option<&Charsmap>) -> Normalized {
    let mut out = Normalized::new(text.len() + SPACE.len_utf8());
    if spaces.prefix {
        out.push(SPACE, 0..0);
    }

    // A U+2581 in the text counts as no space here.
    let (mut at, mut after_space) = (0, true);
    while at < text.len() {
        let (replacement, len) = next(&text[at..], charsmap);
        for c in replacement.chars() {
            if !(spaces.merged && after_space && c == ' ') {
                out.push(if c == ' ' { SPACE } else { c }, at..at + len);
            }
            after_space = c == ' ';
        }
        at += len;
    }

    while spaces.merged && out.pop_space() {}
    out
}

/// Returns the replacement of the beginning of a text, and the length of that beginning.
fn next<'a>(text: &'a str, charsmap: Option<&'a Charsmap>) -> (&'a str, usize) {
    if let Some(found) = charsmap.and_then(|map| map.longest(text)) {
        return found;
    }
    let len = text.chars().next().map_or(0, char::len_utf8);
    (&text[..len], len)
}
