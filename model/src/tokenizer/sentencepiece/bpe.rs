//! Merging: the neighbours whose concatenation has the best score first, the leftmost of several.
//!
//! Each pair that makes a piece waits in a heap, so a text of n characters takes O(n log n). A pair
//! of which one part has changed since is left out when its turn comes.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use crate::tokenizer::sentencepiece::model::SentencePiece;

const NONE: usize = usize::MAX;

/// A part of the text. It is empty after it was merged into the previous symbol.
struct Symbol {
    range: Range<usize>,
    before: usize,
    after: usize,
}

/// Two neighbours that make a piece.
struct MergePair {
    score: f32,
    left: usize,
    right: usize,
    /// The piece's bytes: others, once a part has changed.
    len: usize,
}

struct Merger<'a> {
    model: &'a SentencePiece,
    text: &'a str,
    symbols: Vec<Symbol>,
    heap: BinaryHeap<MergePair>,
    /// The positions at which unused pieces divide into their parts.
    parts: HashMap<&'a str, usize>,
}

/// The segments of a normalized text.
pub(super) fn segments(model: &SentencePiece, text: &str) -> Vec<Range<usize>> {
    let mut merger = Merger {
        model,
        text,
        symbols: symbols(text),
        heap: BinaryHeap::new(),
        parts: HashMap::new(),
    };
    for right in 1..merger.symbols.len() {
        merger.propose(right - 1, right);
    }
    while let Some(pair) = merger.heap.pop() {
        merger.merge(&pair);
    }

    let whole = merger
        .symbols
        .iter()
        .filter(|symbol| !symbol.range.is_empty());
    whole
        .flat_map(|symbol| merger.used(symbol.range.clone()))
        .collect()
}

/// The characters.
fn symbols(text: &str) -> Vec<Symbol> {
    let count = text.chars().count();
    let symbol = |(index, (at, c)): (usize, (usize, char))| Symbol {
        range: at..at + c.len_utf8(),
        before: index.checked_sub(1).unwrap_or(NONE),
        after: if index + 1 < count { index + 1 } else { NONE },
    };
    text.char_indices().enumerate().map(symbol).collect()
}

impl Merger<'_> {
    /// Puts two neighbours into the heap, if they make a piece.
    fn propose(&mut self, left: usize, right: usize) {
        if left == NONE || right == NONE {
            return;
        }

        let range = self.symbols[left].range.start..self.symbols[right].range.end;
        let text = &self.text[range.clone()];
        let Some(piece) = self.model.pieces.get(text) else {
            return;
        };
        if piece.unused {
            self.parts.insert(text, self.symbols[left].range.len());
        }

        self.heap.push(MergePair {
            score: piece.score,
            left,
            right,
            len: range.len(),
        });
    }

    fn merge(&mut self, pair: &MergePair) {
        let MergePair {
            left, right, len, ..
        } = *pair;
        let [a, b] = [left, right].map(|index| self.symbols[index].range.clone());
        if a.is_empty() || b.is_empty() || a.len() + b.len() != len {
            return;
        }

        let after = self.symbols[right].after;
        self.symbols[left].range.end = b.end;
        self.symbols[left].after = after;
        self.symbols[right].range.end = b.start;
        if let Some(symbol) = self.symbols.get_mut(after) {
            symbol.before = left;
        }

        self.propose(self.symbols[left].before, left);
        self.propose(left, after);
    }

    /// Returns the symbol, or the symbols from which it was merged if it is an unused piece.
    fn used(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let (mut out, mut open) = (vec![], vec![range]);
        while let Some(range) = open.pop() {
            match self.parts.get(&self.text[range.clone()]) {
                Some(left) => {
                    let middle = range.start + left;
                    open.extend([middle..range.end, range.start..middle]);
                }
                None => out.push(range),
            }
        }
        out
    }
}

impl Ord for MergePair {
    fn cmp(&self, other: &MergePair) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then_with(|| Reverse(self.left).cmp(&Reverse(other.left)))
    }
}

impl PartialOrd for MergePair {
    fn partial_cmp(&self, other: &MergePair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MergePair {
    fn eq(&self, other: &MergePair) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for MergePair {}
