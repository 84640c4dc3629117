//! A text within a grammar, as far as it has come.

use std::collections::BTreeMap;
use std::time::Instant;

use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;
use rayon::prelude::*;

use super::costs::Costs;
use super::fault::sentence;
use super::starts::Lexer;
use crate::Error;

/// A text within a grammar, as far as it has come: which tokens may be next, and which must.
///
/// A decoder goes along with one: [`Decoder::decode_within`](crate::Decoder::decode_within). Whoever chooses tokens by
/// other means asks for those that are [allowed](Matcher::allowed), and says which one was [taken](Matcher::take).
pub struct Matcher {
    parser: llguidance::Matcher,
    /// What it shares with others of its grammar.
    lexer: Lexer,
    /// Tokens of the vocabulary.
    vocab: u32,
    tokens: u32,
    /// `[words]`: a bit for each token
    allowed: Vec<u32>,
    costs: Costs,
}

impl Matcher {
    pub(super) fn new((parser, lexer): (llguidance::Matcher, Lexer), vocab: u32) -> Matcher {
        Matcher { parser, lexer, vocab, tokens: 0, allowed: vec![], costs: Costs::default() }
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
        let mask = self.parser.compute_mask().map_err(|error| self.error(&error))?;
        self.allowed = words(&mask, self.vocab);
        self.costs.masks.push(start.elapsed());
        match self.allowed.iter().all(|word| *word == 0) {
            true => Err(self.error(&"no token of the vocabulary goes on")),
            false => Ok(&self.allowed),
        }
    }

    /// Finds the tokens that may come next of each of these, on several threads: as [`allowed`](Matcher::allowed) does
    /// of one. Those of one grammar wait for each other where there are more of them than threads, eight at most.
    ///
    /// # Errors
    /// As [`allowed`](Matcher::allowed), of the first that has one.
    pub fn find_allowed(matchers: &mut [&mut Matcher]) -> Result<(), Error> {
        let mut groups: BTreeMap<usize, Vec<(usize, &mut Matcher)>> = BTreeMap::new();
        for (place, matcher) in matchers.iter_mut().enumerate() {
            groups.entry(matcher.lexer.key()).or_default().push((place, matcher));
        }
        let find = |group: Vec<(usize, &mut Matcher)>| {
            let found = group.into_iter().map(|(place, matcher)| (place, matcher.allowed().err()));
            found.filter_map(|(place, error)| Some((place, error?))).next()
        };
        let groups: Vec<_> = groups.into_values().collect();
        // A thread that has one group alone would only wait for another.
        let first = match groups.len() {
            0 | 1 => groups.into_iter().filter_map(find).next(),
            _ => groups.into_par_iter().filter_map(find).min_by_key(|(place, _)| *place),
        };
        first.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The tokens that were [found](Matcher::find_allowed) last, as [`allowed`](Matcher::allowed) gives them.
    pub fn found(&self) -> &[u32] {
        &self.allowed
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
        matches!(self.parser.stop_reason(), StopReason::EndOfSentence | StopReason::NoExtension)
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
        self.parser.consume_tokens(tokens).map_err(|error| self.error(&error))?;
        self.tokens += tokens.len() as u32;
        Ok(())
    }

    fn error(&self, said: &dyn std::fmt::Display) -> Error {
        let said = sentence(&said.to_string());
        let nothing = "no token of the vocabulary goes on".to_owned();
        let problem = if said == "NoExtensionBias" { nothing } else { said };
        Error::WithinGrammar { tokens: self.tokens, problem }
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
