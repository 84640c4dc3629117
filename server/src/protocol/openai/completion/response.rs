//! The response to a completion request that is not streamed.

use serde::Serialize;
use utoipa::ToSchema;

use super::call::Echo;
use crate::error::{ErrorKind, RequestError};
use crate::protocol::openai::head::{
    FINGERPRINT, FinishFields, ResponseHead, interrupted, unknown_index,
};
use crate::protocol::openai::logprobs::{CompletionLogprobs, LogprobsWriter};
use crate::protocol::openai::usage::{PromptShare, Timings, Usage, UsageMeter};
use crate::reply::{ReplyEvent, ReplyPart, TokenText};

/// The response to a completion request, or the data of an event.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Completion {
    /// The id of the response.
    pub id: String,
    /// `text_completion`.
    pub object: &'static str,
    /// The time of the request, in seconds since 1970.
    pub created: u64,
    /// The name of the model.
    pub model: String,
    /// The configuration of the server.
    pub system_fingerprint: &'static str,
    /// The texts, or the next part of one in a stream.
    pub choices: Vec<CompletionChoice>,
    /// The numbers of tokens. In a stream, they are in the last event if they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The times. In a stream, they are in the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

impl Completion {
    /// Returns a response without choices.
    pub(super) fn empty(head: &ResponseHead) -> Completion {
        Completion {
            id: head.id.clone(),
            object: "text_completion",
            created: head.created,
            model: head.model.clone(),
            system_fingerprint: FINGERPRINT,
            choices: vec![],
            usage: None,
            timings: None,
        }
    }
}

/// A text, or a part of one.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CompletionChoice {
    /// The text.
    pub text: String,
    /// The index of the text: that of its prompt times `n`, plus its own.
    pub index: u32,
    /// The log-probabilities, if they were requested.
    pub logprobs: Option<CompletionLogprobs>,
    /// `stop` or `length`, or null if more parts follow.
    pub finish_reason: Option<&'static str>,
    /// The stop string that ended the text, or `shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

/// The prompts of a completion request, and the form of its texts.
#[derive(Debug, Clone, Default)]
pub struct CompletionTexts {
    /// The texts of the prompts. They are empty if neither `echo` nor log-probabilities need them.
    pub prompts: Vec<String>,
    /// The number of texts per prompt, at least one.
    pub count: u32,
    /// The beginning of the texts.
    pub echo: Echo,
    /// Whether choices contain log-probabilities.
    pub logprobs: bool,
}

impl CompletionTexts {
    /// Returns the number of texts.
    pub(super) fn choices(&self) -> usize {
        self.prompts.len() * self.count as usize
    }

    /// Returns the prompt of the text with this index.
    pub(super) fn prompt(&self, index: u32) -> &str {
        &self.prompts[(index / self.count) as usize]
    }

    /// Returns the share of the text with this index in its prompt.
    pub(super) fn share(&self, index: u32) -> PromptShare {
        if index.is_multiple_of(self.count) {
            PromptShare::First
        } else {
            PromptShare::Again
        }
    }

    /// Returns the writer of the log-probabilities of the text with this index.
    pub(super) fn writer(&self, index: u32) -> LogprobsWriter {
        match self.echo {
            Echo::Prompt => LogprobsWriter::starting_at(0),
            Echo::Generated => {
                let characters = self.prompt(index).chars().count();
                LogprobsWriter::starting_at(u32::try_from(characters).unwrap_or(u32::MAX))
            }
        }
    }
}

/// Returns the error for a tool call in a reply to a text.
pub(super) fn unexpected_call() -> RequestError {
    RequestError::new(
        ErrorKind::Internal,
        "the reply to a text contains a tool call",
    )
}

/// Collects the events of all texts of a completion request.
#[derive(Debug)]
pub struct CompletionCollector {
    texts: CompletionTexts,
    choices: Vec<PartialText>,
    meter: UsageMeter,
}

#[derive(Debug, Default)]
struct PartialText {
    text: String,
    tokens: Vec<TokenText>,
    finish: Option<FinishFields>,
}

impl CompletionCollector {
    /// Returns a collector for these texts.
    pub fn new(texts: CompletionTexts) -> CompletionCollector {
        CompletionCollector {
            choices: (0..texts.choices())
                .map(|_| PartialText::default())
                .collect(),
            texts,
            meter: UsageMeter::default(),
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Returns the error of a text that has failed.
    pub fn add(&mut self, event: ReplyEvent) -> Result<(), RequestError> {
        let Some(choice) = self.choices.get_mut(event.index as usize) else {
            return Err(unknown_index(event.index));
        };
        match event.part {
            ReplyPart::Started {
                prompt_tokens,
                cached_tokens,
            } => {
                let share = self.texts.share(event.index);
                self.meter.started(share, prompt_tokens, cached_tokens);
            }
            ReplyPart::Prompt(tokens) | ReplyPart::Tokens(tokens) => choice.tokens.extend(tokens),
            // A text has no marks that tell reasoning from the rest.
            ReplyPart::Text(text) | ReplyPart::Reasoning(text) => choice.text.push_str(&text),
            ReplyPart::Call(_) => return Err(unexpected_call()),
            ReplyPart::Ended(end) => {
                self.meter.ended(&end);
                choice.finish = Some(FinishFields::new(&end.reason));
            }
            ReplyPart::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the response after all events.
    ///
    /// # Errors
    /// Returns an error if a text has not ended.
    pub fn finish(self, head: &ResponseHead) -> Result<Completion, RequestError> {
        let mut choices = vec![];
        for (index, choice) in (0..).zip(self.choices) {
            let finish = choice.finish.ok_or_else(interrupted)?;
            let text = match self.texts.echo {
                Echo::Prompt => format!("{}{}", self.texts.prompt(index), choice.text),
                Echo::Generated => choice.text,
            };
            let mut writer = self.texts.writer(index);
            choices.push(CompletionChoice {
                text,
                index,
                logprobs: self.texts.logprobs.then(|| writer.write(&choice.tokens)),
                finish_reason: Some(finish.finish_reason),
                stop_reason: finish.stop_reason,
            });
        }
        Ok(Completion {
            choices,
            usage: Some(self.meter.usage()),
            timings: Some(self.meter.timings()),
            ..Completion::empty(head)
        })
    }
}
