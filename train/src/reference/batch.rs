//! What a pass takes in.

use crate::Error;

/// The tokens of one pass: rows of a batch one after another, each of one or several documents.
#[derive(Clone, PartialEq, Debug)]
pub struct MicroBatch {
    /// The number of this micro-batch, from 0, over all steps: it chooses dropout's masks.
    pub number: u32,
    /// `[tokens]`
    pub ids: Vec<u32>,
    /// `[tokens]`: the next token, where it is to be learned.
    pub labels: Vec<Option<u32>>,
    /// `[tokens]`: positions in the document.
    pub positions: Vec<u32>,
    /// `[tokens]`: the index, here, of the first token of the document.
    pub starts: Vec<u32>,
    /// What the sum of the losses is divided by: the labelled tokens of all micro-batches of the optimizer's step.
    pub n: usize,
}

impl MicroBatch {
    /// The tokens of this micro-batch that have a label.
    pub fn labelled(&self) -> usize {
        self.labels.iter().flatten().count()
    }

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
