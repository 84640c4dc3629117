//! Turns the events of a generation into the parts of a reply. It knows nothing of channels.

use warpwright_model::Tokenizer;
use warpwright_model::tokenizer::Stream;

use super::event::{FinishReason, ReplyEnded, ReplyPart, ReplyTimes};
use crate::scheduler::{EndReason, GenerationEnded, GenerationEvent};

/// The inputs of a reader.
pub(super) struct ReplyReaderOptions<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) prompt_tokens: u32,
}

/// A reader of the events of one generation.
pub(super) struct ReplyReader<'a> {
    stream: Stream<'a>,
    prompt_tokens: u32,
    /// The number of tokens so far.
    tokens: u32,
}

impl<'a> ReplyReader<'a> {
    pub(super) fn new(options: &ReplyReaderOptions<'a>) -> ReplyReader<'a> {
        ReplyReader {
            stream: options.tokenizer.stream(),
            prompt_tokens: options.prompt_tokens,
            tokens: 0,
        }
    }

    /// Returns the parts that an event completes.
    pub(super) fn event(&mut self, event: GenerationEvent) -> Vec<ReplyPart> {
        match event {
            GenerationEvent::Started { cached } => vec![ReplyPart::Started {
                prompt_tokens: self.prompt_tokens,
                cached_tokens: cached,
            }],
            GenerationEvent::Prompt(_) => vec![],
            GenerationEvent::Tokens(tokens) => {
                let mut text = String::new();
                for token in tokens {
                    self.tokens += 1;
                    text += &self.stream.push(token.token);
                }
                if text.is_empty() {
                    vec![]
                } else {
                    vec![ReplyPart::Text(text)]
                }
            }
            GenerationEvent::Ended(ended) => vec![ReplyPart::Ended(self.ended(&ended))],
            GenerationEvent::Failed(error) => vec![ReplyPart::Failed(error.into())],
        }
    }

    fn ended(&self, ended: &GenerationEnded) -> ReplyEnded {
        let reason = match ended.reason {
            EndReason::Stop | EndReason::Grammar => FinishReason::Stop,
            EndReason::Length | EndReason::Context => FinishReason::Length,
            EndReason::Shutdown => FinishReason::Shutdown,
        };
        let end_token = u32::from(ended.reason == EndReason::Stop);
        ReplyEnded {
            reason,
            tokens: self.tokens + end_token,
            reasoning_tokens: 0,
            problems: vec![],
            times: ReplyTimes {
                queued: ended.queued,
                prompt: ended.prompt,
                decode: ended.decode,
            },
        }
    }
}
