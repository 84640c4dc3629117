//! The state of a text that follows a grammar.

use std::time::Instant;

use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;

use super::costs::GrammarCosts;
use super::fault::sentence;
use crate::Error;

/// The state of a text that follows a [`Grammar`](super::Grammar).
///
/// Pass it to a decoder of the engine, which then generates only text that the grammar accepts. To
/// choose tokens yourself, alternate between [`allowed`](Matcher::allowed) and
/// [`take`](Matcher::take).
pub struct Matcher {
    parser: llguidance::Matcher,
    /// The size of the vocabulary in tokens.
    vocab: u32,
    /// The number of tokens in the text so far.
    tokens: u32,
    /// The last result of [`allowed`](Matcher::allowed), with one bit per token of the vocabulary.
    allowed: Vec<u32>,
    costs: GrammarCosts,
}

impl Matcher {
    pub(super) fn new(parser: llguidance::Matcher, vocab: u32) -> Matcher {
        Matcher {
            parser,
            vocab,
            tokens: 0,
            allowed: vec![],
            costs: GrammarCosts::default(),
        }
    }

    /// Returns the size of the vocabulary in tokens.
    pub fn vocab(&self) -> u32 {
        self.vocab
    }

    /// Returns the tokens that may come next, as a bit set with at least one bit.
    ///
    /// Token `t` is bit `t % 32` of word `t / 32`. A token that ends texts is included if the text
    /// so far is complete.
    ///
    /// # Errors
    /// Returns an error if no token of the vocabulary continues the text, if the grammar exceeds
    /// the library's limits, or if the text is [over](Matcher::is_over).
    pub fn allowed(&mut self) -> Result<&[u32], Error> {
        let start = Instant::now();
        let mask = self
            .parser
            .compute_mask()
            .map_err(|error| self.error(&error))?;
        self.allowed = words(&mask, self.vocab);
        self.costs.masks.push(start.elapsed());
        if self.allowed.iter().all(|word| *word == 0) {
            return Err(self.error(&NO_TOKEN));
        }

        Ok(&self.allowed)
    }

    /// Appends a token to the text.
    ///
    /// # Errors
    /// Returns an error if the token is not allowed. You cannot use the matcher afterwards.
    pub fn take(&mut self, token: u32) -> Result<(), Error> {
        self.take_all(&[token])
    }

    /// Appends the tokens that the grammar forces and returns them, at most `most`.
    ///
    /// Returns no tokens if the grammar leaves a choice. Forced text is split into tokens as the
    /// model's tokenizer splits it, because the model was trained on these tokens.
    ///
    /// # Errors
    /// Returns an error if the parser rejects the tokens, for example because the grammar exceeds
    /// the library's limits.
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

    /// Returns true if the grammar accepts the text so far.
    pub fn is_complete(&mut self) -> bool {
        self.is_over() || self.parser.is_accepting().unwrap_or(false)
    }

    /// Returns true if the text is complete and nothing can follow.
    pub fn is_over(&self) -> bool {
        matches!(
            self.parser.stop_reason(),
            StopReason::EndOfSentence | StopReason::NoExtension
        )
    }

    /// Returns the CPU times so far.
    pub fn costs(&self) -> &GrammarCosts {
        &self.costs
    }

    /// Appends a token that the model chose, and adds the time to [`costs`](Matcher::costs).
    ///
    /// # Errors
    /// Returns an error if the token is not allowed. You cannot use the matcher afterwards.
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
        // The library has no sentence for this case, only the name of its reason.
        let problem = if said == "NoExtensionBias" {
            NO_TOKEN.to_owned()
        } else {
            said
        };
        Error::GrammarFailed {
            tokens: self.tokens,
            problem,
        }
    }
}

const NO_TOKEN: &str = "no token of the vocabulary goes on";

/// Returns the bits of the first `vocab` tokens. The bits after them in the last word are 0.
fn words(mask: &SimpleVob, vocab: u32) -> Vec<u32> {
    let mut words = mask.as_slice().to_vec();
    words.resize(vocab.div_ceil(32) as usize, 0);
    let used = vocab % 32;
    if used > 0
        && let Some(last) = words.last_mut()
    {
        *last &= (1 << used) - 1;
    }
    words
}
