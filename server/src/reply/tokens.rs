//! Tokens with log-probabilities, which are reported in front of their text.

use std::collections::VecDeque;

use warpwright_engine::LogProbabilities;
use warpwright_model::Tokenizer;
use warpwright_model::tokenizer::Stream;

use super::event::TokenText;
use crate::engine::ChosenToken;

/// Tokens whose text has not been released yet.
pub(super) struct PendingTokens<'a> {
    tokenizer: &'a Tokenizer,
    /// The number of best tokens to report.
    best: u32,
    /// A stream that holds nothing back but incomplete characters. It knows the place of each token
    /// in the text.
    stream: Stream<'a>,
    /// The number of bytes of the text of all tokens so far.
    end: usize,
    tokens: VecDeque<PlacedToken>,
}

/// A token and its byte range in the text. A token that completes no character has an empty one.
struct PlacedToken {
    start: usize,
    end: usize,
    text: TokenText,
}

impl<'a> PendingTokens<'a> {
    /// Returns a queue for tokens with this number of best tokens each. `shows` accepts the control
    /// tokens that belong to the text.
    pub(super) fn new(
        tokenizer: &'a Tokenizer,
        best: u32,
        shows: impl Fn(&str) -> bool,
    ) -> PendingTokens<'a> {
        let mut stream = tokenizer.stream();
        stream.spell(shows);
        PendingTokens {
            tokenizer,
            best,
            stream,
            end: 0,
            tokens: VecDeque::new(),
        }
    }

    /// Adds the next token.
    pub(super) fn push(&mut self, token: &ChosenToken) {
        let start = self.end;
        self.end += self.stream.push(token.token).len();
        let probabilities = token.probabilities.as_ref();
        self.tokens.push_back(PlacedToken {
            start,
            end: self.end,
            text: token_text(self.tokenizer, token.token, probabilities, self.best),
        });
    }

    /// Removes and returns the tokens of the first `bytes` of the text.
    pub(super) fn take(&mut self, bytes: usize) -> Vec<TokenText> {
        let is_released = |token: &&PlacedToken| token.start < bytes || token.end <= bytes;
        let count = self.tokens.iter().take_while(is_released).count();
        self.tokens.drain(..count).map(|token| token.text).collect()
    }
}

/// Returns a token with its bytes and at most `best` of the most likely tokens.
pub(super) fn token_text(
    tokenizer: &Tokenizer,
    token: u32,
    probabilities: Option<&LogProbabilities>,
    best: u32,
) -> TokenText {
    let likely = probabilities.map_or(&[][..], |probabilities| &probabilities.best);
    let likely = likely.iter().take(best as usize);
    TokenText {
        token,
        bytes: bytes(tokenizer, token),
        logprob: probabilities.map(|probabilities| probabilities.chosen),
        best: likely
            .map(|(token, logprob)| (*token, bytes(tokenizer, *token), *logprob))
            .collect(),
    }
}

/// Returns the bytes of a token, or its name if it is a control token without text.
fn bytes(tokenizer: &Tokenizer, token: u32) -> Vec<u8> {
    let name = tokenizer.control(token).map(str::as_bytes);
    name.unwrap_or_else(|| tokenizer.piece(token)).to_vec()
}
