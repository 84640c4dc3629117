//! Log-probabilities in the shapes of both kinds of completions.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::reply::TokenText;

/// The smallest log-probability in a response, as in OpenAI's protocol. JSON has no infinity.
const LEAST: f64 = -9999.0;

/// The log-probabilities of a choice of a chat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct ChatLogprobs {
    /// The tokens of the text.
    pub content: Vec<TokenLogprob>,
    /// The tokens of a refusal, which no model here distinguishes from text.
    #[schema(value_type = Option<Vec<TokenLogprob>>)]
    pub refusal: (),
}

/// A token with its log-probability.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TokenLogprob {
    /// The text of the token. Bytes that are not UTF-8 are replaced.
    pub token: String,
    /// The log-probability.
    pub logprob: f64,
    /// The bytes of the token.
    pub bytes: Vec<u8>,
    /// The most likely tokens at this position.
    pub top_logprobs: Vec<TopLogprob>,
}

/// One of the most likely tokens at a position.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TopLogprob {
    /// The text of the token.
    pub token: String,
    /// The log-probability.
    pub logprob: f64,
    /// The bytes of the token.
    pub bytes: Vec<u8>,
}

/// Returns the log-probabilities of tokens in the shape of chats.
pub fn chat_logprobs(tokens: &[TokenText]) -> ChatLogprobs {
    let content = tokens
        .iter()
        .map(|token| TokenLogprob {
            token: text(&token.bytes),
            logprob: token.logprob.unwrap_or(0.0).max(LEAST),
            bytes: token.bytes.clone(),
            top_logprobs: token
                .best
                .iter()
                .map(|(_, bytes, logprob)| TopLogprob {
                    token: text(bytes),
                    logprob: logprob.max(LEAST),
                    bytes: bytes.clone(),
                })
                .collect(),
        })
        .collect();
    ChatLogprobs {
        content,
        refusal: (),
    }
}

/// The log-probabilities of a choice of a completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct CompletionLogprobs {
    /// The texts of the tokens.
    pub tokens: Vec<String>,
    /// Their log-probabilities. The first token of a prompt has none.
    pub token_logprobs: Vec<Option<f64>>,
    /// The log-probabilities of the most likely tokens and of the chosen one, by their texts.
    #[schema(value_type = Vec<Option<Object>>)]
    pub top_logprobs: Vec<Option<Map<String, Value>>>,
    /// The positions of the tokens in the text, in characters.
    pub text_offset: Vec<u32>,
}

/// Writes log-probabilities in the shape of completions. It counts characters over all parts of a
/// text.
#[derive(Debug, Clone, Default)]
pub(super) struct LogprobsWriter {
    offset: u32,
}

impl LogprobsWriter {
    /// Returns a writer for tokens that begin at a character of the text.
    pub(super) fn starting_at(offset: u32) -> LogprobsWriter {
        LogprobsWriter { offset }
    }

    /// Returns the log-probabilities of the next tokens.
    pub(super) fn write(&mut self, tokens: &[TokenText]) -> CompletionLogprobs {
        let mut written = CompletionLogprobs::default();
        for token in tokens {
            let name = text(&token.bytes);
            written.text_offset.push(self.offset);
            self.offset += u32::try_from(name.chars().count()).unwrap_or(u32::MAX);
            written
                .token_logprobs
                .push(token.logprob.map(|logprob| logprob.max(LEAST)));
            written
                .top_logprobs
                .push(token.logprob.map(|chosen| best_by_text(token, chosen)));
            written.tokens.push(name);
        }
        written
    }
}

/// Returns the most likely tokens and the chosen one. Of several tokens with the same text, the
/// most likely counts.
fn best_by_text(token: &TokenText, chosen: f64) -> Map<String, Value> {
    let mut map = Map::new();
    let best = token
        .best
        .iter()
        .map(|(_, bytes, logprob)| (bytes, *logprob));
    for (bytes, logprob) in best.chain([(&token.bytes, chosen)]) {
        map.entry(text(bytes))
            .or_insert_with(|| logprob.max(LEAST).into());
    }
    map
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
