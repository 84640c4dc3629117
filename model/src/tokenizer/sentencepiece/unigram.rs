//! Finds the path through a text with the best sum of scores (Viterbi), in one pass from left to
//! right.
//!
//! Each beginning of a character is reached by the best of the pieces that end there. A character
//! without a piece costs the score of the unknown token. Sums are in `f64`, as in `tokenizers` and
//! llama.cpp. SentencePiece uses `f32`.

use std::ops::Range;

use crate::tokenizer::sentencepiece::model::SentencePiece;

/// The best way to a place: its sum, and where its last piece begins.
#[derive(Clone, Copy)]
struct BestSplit {
    sum: f64,
    from: usize,
}

/// The segments of a normalized text.
pub(super) fn segments(model: &SentencePiece, text: &str) -> Vec<Range<usize>> {
    let mut best = vec![
        BestSplit {
            sum: f64::NEG_INFINITY,
            from: 0
        };
        text.len() + 1
    ];
    best[0].sum = 0.0;
    for (at, c) in text.char_indices() {
        let sum = best[at].sum;
        let mut reach = |end: usize, score: f64| {
            if sum + score > best[end].sum {
                best[end] = BestSplit {
                    sum: sum + score,
                    from: at,
                };
            }
        };
        let first = at + c.len_utf8();
        for end in ends(text, at, model.longest) {
            match model
                .pieces
                .get(&text[at..end])
                .filter(|piece| !piece.unused)
            {
                Some(piece) => reach(end, piece.score.into()),
                None if end == first => reach(end, model.unknown_score),
                None => {}
            }
        }
    }

    path(&best)
}

/// Returns the positions at which a piece that begins at `at` may end. The end of the first
/// character is always included.
fn ends(text: &str, at: usize, longest: usize) -> impl Iterator<Item = usize> {
    let ends = text[at..]
        .char_indices()
        .map(move |(offset, c)| offset + c.len_utf8());
    ends.enumerate()
        .take_while(move |(index, len)| *index == 0 || *len <= longest)
        .map(move |(_, len)| at + len)
}

/// The best path, read from its end.
fn path(best: &[BestSplit]) -> Vec<Range<usize>> {
    let mut path = vec![];
    let mut end = best.len() - 1;
    while end > 0 {
        let from = best[end].from;
        path.push(from..end);
        end = from;
    }
    path.reverse();
    path
}
