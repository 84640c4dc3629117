//! The response to a chat request that is not streamed.

use serde::Serialize;
use utoipa::ToSchema;

use crate::error::RequestError;
use crate::protocol::openai::head::{
    FINGERPRINT, FinishFields, ResponseHead, interrupted, unknown_index,
};
use crate::protocol::openai::logprobs::{ChatLogprobs, chat_logprobs};
use crate::protocol::openai::usage::{PromptShare, Timings, Usage, UsageMeter};
use crate::reply::{ReplyCall, ReplyEvent, ReplyPart, TokenText};

/// The response to a chat request.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ChatCompletion {
    /// The id of the response.
    pub id: String,
    /// `chat.completion`.
    pub object: &'static str,
    /// The time of the request, in seconds since 1970.
    pub created: u64,
    /// The name of the model.
    pub model: String,
    /// The configuration of the server.
    pub system_fingerprint: &'static str,
    /// The replies.
    pub choices: Vec<ChatChoice>,
    /// The numbers of tokens.
    pub usage: Usage,
    /// The times.
    pub timings: Timings,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ChatChoice {
    /// The index of the reply.
    pub index: u32,
    /// The message of the assistant.
    pub message: ReplyMessage,
    /// The log-probabilities, if they were requested.
    pub logprobs: Option<ChatLogprobs>,
    /// `stop`, `length` or `tool_calls`.
    pub finish_reason: &'static str,
    /// The stop string that ended the text, or `shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// A sentence for each mark of a tool call that no valid call follows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A message of the assistant.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ReplyMessage {
    /// `assistant`.
    pub role: &'static str,
    /// The text, or null next to tool calls.
    pub content: Option<String>,
    /// The reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The reasoning, by its newer name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The tool calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<CallMessage>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CallMessage {
    /// The id of the call.
    pub id: String,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The function and its arguments.
    pub function: CallFunction,
}

/// The function of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CallFunction {
    /// The name of the function.
    pub name: String,
    /// The text of a JSON object.
    pub arguments: String,
}

/// Collects the events of all replies to a request.
#[derive(Debug)]
pub struct ChatCollector {
    choices: Vec<PartialChoice>,
    meter: UsageMeter,
}

#[derive(Debug, Default)]
struct PartialChoice {
    text: String,
    reasoning: String,
    calls: Vec<ReplyCall>,
    tokens: Vec<TokenText>,
    finish: Option<FinishFields>,
    problems: Vec<String>,
}

impl ChatCollector {
    /// Returns a collector for this number of replies.
    pub fn new(count: u32) -> ChatCollector {
        ChatCollector {
            choices: (0..count).map(|_| PartialChoice::default()).collect(),
            meter: UsageMeter::default(),
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Returns the error of a reply that has failed.
    pub fn add(&mut self, event: ReplyEvent) -> Result<(), RequestError> {
        let Some(choice) = self.choices.get_mut(event.index as usize) else {
            return Err(unknown_index(event.index));
        };
        match event.part {
            ReplyPart::Started {
                prompt_tokens,
                cached_tokens,
            } => {
                let share = if event.index == 0 {
                    PromptShare::First
                } else {
                    PromptShare::Again
                };
                self.meter.started(share, prompt_tokens, cached_tokens);
            }
            // Chats cannot ask for the tokens of the prompt.
            ReplyPart::Prompt(_) => {}
            ReplyPart::Tokens(tokens) => choice.tokens.extend(tokens),
            ReplyPart::Reasoning(text) => choice.reasoning.push_str(&text),
            ReplyPart::Text(text) => choice.text.push_str(&text),
            ReplyPart::Call(call) => choice.calls.push(call),
            ReplyPart::Ended(end) => {
                self.meter.ended(&end);
                choice.finish = Some(FinishFields::new(&end.reason));
                choice.problems = end.problems;
            }
            ReplyPart::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the response after all events.
    ///
    /// # Errors
    /// Returns an error if a reply has not ended.
    pub fn finish(
        self,
        head: ResponseHead,
        logprobs: LogprobsWanted,
    ) -> Result<ChatCompletion, RequestError> {
        let mut choices = vec![];
        for (index, choice) in (0..).zip(self.choices) {
            choices.push(choice.finish(index, logprobs)?);
        }
        Ok(ChatCompletion {
            id: head.id,
            object: "chat.completion",
            created: head.created,
            model: head.model,
            system_fingerprint: FINGERPRINT,
            choices,
            usage: self.meter.usage(),
            timings: self.meter.timings(),
        })
    }
}

/// Tells whether a client has asked for log-probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogprobsWanted {
    /// Choices have none.
    No,
    /// Each choice has them, even if it has no tokens.
    Yes,
}

impl PartialChoice {
    fn finish(self, index: u32, logprobs: LogprobsWanted) -> Result<ChatChoice, RequestError> {
        let Some(finish) = self.finish else {
            return Err(interrupted());
        };

        // A reply of calls alone has no content, as in OpenAI's protocol. An empty reply has an
        // empty one.
        let silent = self.text.is_empty() && !self.calls.is_empty();
        let content = Some(self.text).filter(|_| !silent);
        let reasoning = Some(self.reasoning).filter(|text| !text.is_empty());
        Ok(ChatChoice {
            index,
            message: ReplyMessage {
                role: "assistant",
                content,
                reasoning_content: reasoning.clone(),
                reasoning,
                tool_calls: self.calls.into_iter().map(call_message).collect(),
            },
            logprobs: match logprobs {
                LogprobsWanted::No => None,
                LogprobsWanted::Yes => Some(chat_logprobs(&self.tokens)),
            },
            finish_reason: finish.finish_reason,
            stop_reason: finish.stop_reason,
            problems: self.problems,
        })
    }
}

fn call_message(call: ReplyCall) -> CallMessage {
    CallMessage {
        id: call.id,
        kind: "function",
        function: CallFunction {
            name: call.name,
            arguments: call.arguments,
        },
    }
}
