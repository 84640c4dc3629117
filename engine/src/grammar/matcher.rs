//! A text within a grammar, as far as it has come.

use std::time::Instant;

use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;

use super::costs::Costs;
use super::fault::sentence;
use crate::Error;

/// A text within a grammar, as far as it has come: which tokens may be next, and which must.
///
/// A decoder goes along with one: [`Decoder::decode_constrained`](crate::Decoder::decode_constrained). Whoever chooses tokens by
/// other means asks for those that are [allowed](Matcher::allowed), and says which one was [taken](Matcher::take).
pub struct Matcher {
    parser: llguidance::Matcher,
    /// Tokens of the vocabulary.
    vocab: u32,
    tokens: u32,
    /// `[words]`: a bit for each token
    allowed: Vec<u32>,
    costs: Costs,
}

impl Matcher {
    pub(super) fn new(parser: llguidance::Matcher, vocab: u32) -> Matcher {
        Matcher {
            parser,
            vocab,
            tokens: 0,
            allowed: vec![],
            costs: Costs::default(),
        }
    }

    /// The number of tokens of the vocabulary.
    pub fn vocab(&self) -> u32 {
        self.vocab
    }

    /// The tokens that may come next, at least one: a bit for each of the vocabulary, 32 a word, the first in the lowest
    /// bit. A token that ends texts is among them if the text so far is whole.
    ///
    /// # Errors
    /// No token of the vocabulary goes on; a grammar that takes too much work; a text that is [over](Matcher::is_over).
    pub fn allowed(&mut self) -> Result<&[u32], Error> {
        let start = Instant::now();
        let mask = self
            .parser
            .compute_mask()
            .map_err(|error| self.error(&error))?;
        self.allowed = words(&mask, self.vocab);
        self.costs.masks.push(start.elapsed());
        match self.allowed.iter().all(|word| *word == 0) {
            true => Err(self.error(&"no token of the vocabulary goes on")),
            false => Ok(&self.allowed),
        }
    }

    /// The text goes on with this token.
    ///
    /// # Errors
    /// A token that is not allowed; the matcher is then of no more use.
    pub fn take(&mut self, token: u32) -> Result<(), Error> {
        self.take_all(&[token])
    }

    /// Goes on with the tokens that must follow, `most` at most, and gives them; none where there is a choice. A text that
    /// the grammar forces is divided into tokens as the model's tokenizer does.
    ///
    /// # Errors
    /// As [`allowed`](Matcher::allowed).
    pub fn forced(&mut self, most: usize) -> Result<Vec<u32>, Error> {
        if self.is_over() {
            return Ok(vec![]);
        }
        let start = Instant::now();
        let mut tokens = self.parser.compute_ff_tokens();
        tokens.truncate(most);
        self.take_all(&tokens)?;
        self.costs.forced += tokens.len() as u32;
        if let Some(taken) = self.costs.taken.last_mut() {
            *taken += start.elapsed();
        }
        Ok(tokens)
    }

    /// Whether the text so far is a whole one.
    pub fn is_complete(&mut self) -> bool {
        self.is_over() || self.parser.is_accepting().unwrap_or(false)
    }

    /// Whether the text is whole and nothing can follow.
    pub fn is_over(&self) -> bool {
        matches!(
            self.parser.stop_reason(),
            StopReason::EndOfSentence | StopReason::NoExtension
        )
    }

    /// What it took so far.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// [`take`](Matcher::take) for a token that was chosen: its time is counted.
    ///
    /// # Errors
    /// As [`take`](Matcher::take).
    pub fn take_chosen(&mut self, token: u32) -> Result<(), Error> {
        let start = Instant::now();
        self.take(token)?;
        self.costs.taken.push(start.elapsed());
        Ok(())
    }

    fn take_all(&mut self, tokens: &[u32]) -> Result<(), Error> {
        if tokens.is_empty() {
            return Ok(());
        }
        self.parser
            .consume_tokens(tokens)
            .map_err(|error| self.error(&error))?;
        self.tokens += tokens.len() as u32;
        Ok(())
    }

    fn error(&self, said: &dyn std::fmt::Display) -> Error {
        let said = sentence(&said.to_string());
        let nothing = "no token of the vocabulary goes on".to_owned();
        let problem = if said == "NoExtensionBias" {
            nothing
        } else {
            said
        };
        Error::GrammarFailed {
            tokens: self.tokens,
            problem,
        }
    }
}

/// The bits of the first `vocab` tokens.
fn words(mask: &SimpleVob, vocab: u32) -> Vec<u32> {
    let mut words = mask.as_slice().to_vec();
    words.resize(vocab.div_ceil(32) as usize, 0);
    if let (Some(last), 1..) = (words.last_mut(), vocab % 32) {
        *last &= (1 << (vocab % 32)) - 1;
    }
    words
}
