//! Micro-batches, the input of a pass.

use crate::Error;

/// The tokens of one pass: the rows of a batch, one after another. Each row has one or more
/// documents.
#[derive(Clone, PartialEq, Debug)]
pub struct MicroBatch {
    /// The number of the micro-batch over all steps, from 0. It selects the masks of dropout.
    pub number: u32,
    /// The token ids, `[tokens]`.
    pub ids: Vec<u32>,
    /// The next token at each position if it is learned, `[tokens]`.
    pub labels: Vec<Option<u32>>,
    /// The positions in the document, `[tokens]`.
    pub positions: Vec<u32>,
    /// The index in the micro-batch of the document's first token, `[tokens]`.
    pub starts: Vec<u32>,
    /// The divisor of the sum of losses: the number of labelled tokens in all micro-batches of the
    /// optimizer step.
    pub n: usize,
}

impl MicroBatch {
    /// Returns the number of tokens with a label in this micro-batch.
    pub fn labelled(&self) -> usize {
        self.labels.iter().flatten().count()
    }

    /// Returns an error if the lists have different lengths, a token is not in the vocabulary, or a
    /// document starts after one of its tokens.
    pub(crate) fn check(&self, vocab: usize) -> Result<(), Error> {
        let tokens = self.ids.len();
        let lists = [
            ("the list of labels", self.labels.len()),
            ("the list of positions", self.positions.len()),
            ("the list of starts", self.starts.len()),
        ];
        for (what, found) in lists {
            require(found == tokens, || Error::Micro {
                what,
                found,
                tokens,
            })?;
        }

        require(self.n > 0, || Error::Unlabelled)?;
        for index in 0..tokens {
            self.check_token(index, vocab)?;
        }

        Ok(())
    }

    fn check_token(&self, index: usize, vocab: usize) -> Result<(), Error> {
        let words = [("id", Some(self.ids[index])), ("label", self.labels[index])];
        for (what, token) in words
            .into_iter()
            .filter_map(|(what, token)| Some((what, token?)))
        {
            require((token as usize) < vocab, || Error::Token {
                what,
                token,
                index,
                vocab,
            })?;
        }

        let start = self.starts[index];
        require(start as usize <= index, || Error::Start { index, start })
    }
}

fn require(right: bool, error: impl FnOnce() -> Error) -> Result<(), Error> {
    if right { Ok(()) } else { Err(error()) }
}
