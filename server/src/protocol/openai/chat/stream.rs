//! The server-sent events of a chat.

use serde::Serialize;
use utoipa::ToSchema;

use crate::error::RequestError;
use crate::protocol::openai::error::error_body;
use crate::protocol::openai::form::ResponseForm;
use crate::protocol::openai::head::{
    FINGERPRINT, FinishFields, ResponseHead, StreamState, interrupted, unknown_index,
};
use crate::protocol::openai::logprobs::{ChatLogprobs, chat_logprobs};
use crate::protocol::openai::usage::{PromptShare, Timings, Usage, UsageMeter};
use crate::protocol::shared::{SseEvent, StreamWriter};
use crate::reply::{ReplyCall, ReplyEnded, ReplyEvent, ReplyPart, TokenText};

/// The data of an event.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ChatChunk {
    /// The id of the response, which is the same in all events.
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: &'static str,
    /// The time of the request, in seconds since 1970.
    pub created: u64,
    /// The name of the model.
    pub model: String,
    /// The configuration of the server.
    pub system_fingerprint: &'static str,
    /// The next part of a reply, or nothing in the event with the numbers of tokens.
    pub choices: Vec<ChunkChoice>,
    /// The numbers of tokens, in the last event if they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The times, in the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// The progress of the prompt, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<PromptProgress>,
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ChunkChoice {
    /// The index of the reply.
    pub index: u32,
    /// The change of the message.
    pub delta: ChunkDelta,
    /// The log-probabilities of the text, if they were requested.
    pub logprobs: Option<ChatLogprobs>,
    /// The reason of the end, in the last part of a reply.
    pub finish_reason: Option<&'static str>,
    /// The stop string that ended the text, or `shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// A sentence for each mark of a tool call that no valid call follows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The change of a message. In the first part of a reply, the content is null.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ChunkDelta {
    /// The first part of a reply.
    Role {
        /// `assistant`.
        role: &'static str,
        /// Null.
        #[schema(value_type = Option<String>)]
        content: (),
    },
    /// Text.
    Text {
        /// The text to append.
        content: String,
    },
    /// Reasoning.
    Reasoning {
        /// The text to append.
        reasoning_content: String,
        /// The same text, by its newer name.
        reasoning: String,
    },
    /// A part of a tool call.
    Calls {
        /// The part.
        tool_calls: [CallDelta; 1],
    },
    /// The last part of a reply.
    Nothing {},
}

/// A part of a tool call. The first part has the id and the name, and the others have pieces of the
/// arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CallDelta {
    /// The index of the call in the reply.
    pub index: u32,
    /// The id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The function.
    pub function: FunctionDelta,
}

/// A part of the function of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FunctionDelta {
    /// The name of the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The text to append to the arguments.
    pub arguments: String,
}

/// The progress of a prompt, with the names of llama.cpp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptProgress {
    /// The number of tokens of the prompt.
    pub total: u32,
    /// The number of these that were in the cache.
    pub cache: u32,
    /// The number of these that are processed.
    pub processed: u32,
}

/// Writes the events of all replies to a request.
///
/// Each reply starts with the role of its message and ends with a reason. The last choice is
/// followed by the numbers of tokens, if they were requested, and by `[DONE]`. An error ends the
/// stream without `[DONE]`, because clients take that for success.
#[derive(Debug)]
pub struct ChatStream {
    head: ResponseHead,
    form: ResponseForm,
    choices: Vec<ChoiceState>,
    meter: UsageMeter,
    state: StreamState,
}

/// The state of a reply in a stream.
#[derive(Debug, Clone, Default)]
struct ChoiceState {
    /// The tokens whose text has not been sent yet.
    tokens: Vec<TokenText>,
    /// The progress to report when the prompt is complete.
    progress: Option<PromptProgress>,
    ended: bool,
}

impl ChatStream {
    /// Returns a stream of this number of replies.
    pub fn new(head: ResponseHead, form: ResponseForm, count: u32) -> ChatStream {
        ChatStream {
            head,
            form,
            choices: (0..count).map(|_| ChoiceState::default()).collect(),
            meter: UsageMeter::default(),
            state: StreamState::Open,
        }
    }

    fn start(&mut self, index: u32, prompt_tokens: u32, cached_tokens: u32) -> Vec<SseEvent> {
        let share = if index == 0 {
            PromptShare::First
        } else {
            PromptShare::Again
        };
        self.meter.started(share, prompt_tokens, cached_tokens);

        let role = ChunkDelta::Role {
            role: "assistant",
            content: (),
        };
        let mut events = vec![self.chunk(self.choice(index, role))];
        if self.form.progress {
            let progress = PromptProgress {
                total: prompt_tokens,
                cache: cached_tokens,
                processed: cached_tokens,
            };
            events.push(self.progress_chunk(progress));
            self.choices[index as usize].progress = Some(PromptProgress {
                processed: prompt_tokens,
                ..progress
            });
        }
        events
    }

    /// Reports that the prompt is complete, before the first token.
    fn complete_progress(&mut self, index: u32) -> Vec<SseEvent> {
        let progress = self.choices[index as usize].progress.take();
        progress
            .map(|progress| self.progress_chunk(progress))
            .into_iter()
            .collect()
    }

    fn progress_chunk(&self, progress: PromptProgress) -> SseEvent {
        SseEvent::json(&ChatChunk {
            prompt_progress: Some(progress),
            ..self.empty_chunk()
        })
    }

    /// Writes a part of a reply, with the log-probabilities of the tokens before it.
    fn part(&mut self, index: u32, delta: ChunkDelta) -> Vec<SseEvent> {
        let mut events = self.complete_progress(index);
        let mut choice = self.choice(index, delta);
        choice.logprobs = self.take_logprobs(index);
        events.push(self.chunk(choice));
        events
    }

    fn call(&mut self, index: u32, call: ReplyCall) -> Vec<SseEvent> {
        let first = CallDelta {
            index: call.index,
            id: Some(call.id),
            kind: Some("function"),
            function: FunctionDelta {
                name: Some(call.name),
                arguments: String::new(),
            },
        };
        let second = CallDelta {
            index: call.index,
            id: None,
            kind: None,
            function: FunctionDelta {
                name: None,
                arguments: call.arguments,
            },
        };
        let mut events = vec![];
        for delta in [first, second] {
            let tool_calls = [delta];
            events.extend(self.part(index, ChunkDelta::Calls { tool_calls }));
        }
        events
    }

    fn end(&mut self, index: u32, end: ReplyEnded) -> Vec<SseEvent> {
        self.meter.ended(&end);
        let finish = FinishFields::new(&end.reason);
        let mut events = self.complete_progress(index);
        let mut choice = self.choice(index, ChunkDelta::Nothing {});
        choice.finish_reason = Some(finish.finish_reason);
        choice.stop_reason = finish.stop_reason;
        choice.problems = end.problems;

        // Tokens without a text belong to a stop string.
        if !self.choices[index as usize].tokens.is_empty() {
            choice.logprobs = self.take_logprobs(index);
        }
        self.choices[index as usize].ended = true;
        let last = self.choices.iter().all(|choice| choice.ended);

        let mut chunk = ChatChunk {
            choices: vec![choice],
            ..self.empty_chunk()
        };
        if last && !self.form.usage_event {
            chunk.timings = Some(self.meter.timings());
        }
        events.push(SseEvent::json(&chunk));
        if last {
            if self.form.usage_event {
                events.push(SseEvent::json(&ChatChunk {
                    usage: Some(self.meter.usage()),
                    timings: Some(self.meter.timings()),
                    ..self.empty_chunk()
                }));
            }
            events.push(SseEvent::text("[DONE]"));
            self.state = StreamState::Closed;
        }
        events
    }

    fn fail(&mut self, error: &RequestError) -> Vec<SseEvent> {
        self.state = StreamState::Closed;
        vec![SseEvent::json(&error_body(error))]
    }

    fn take_logprobs(&mut self, index: u32) -> Option<ChatLogprobs> {
        let tokens = std::mem::take(&mut self.choices[index as usize].tokens);
        self.form.logprobs.then(|| chat_logprobs(&tokens))
    }

    fn choice(&self, index: u32, delta: ChunkDelta) -> ChunkChoice {
        ChunkChoice {
            index,
            delta,
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            problems: vec![],
        }
    }

    fn chunk(&self, choice: ChunkChoice) -> SseEvent {
        SseEvent::json(&ChatChunk {
            choices: vec![choice],
            ..self.empty_chunk()
        })
    }

    fn empty_chunk(&self) -> ChatChunk {
        ChatChunk {
            id: self.head.id.clone(),
            object: "chat.completion.chunk",
            created: self.head.created,
            model: self.head.model.clone(),
            system_fingerprint: FINGERPRINT,
            choices: vec![],
            usage: None,
            timings: None,
            prompt_progress: None,
        }
    }
}

impl StreamWriter for ChatStream {
    fn is_closed(&self) -> bool {
        self.state == StreamState::Closed
    }

    fn write(&mut self, event: ReplyEvent) -> Vec<SseEvent> {
        if self.state == StreamState::Closed {
            return vec![];
        }
        let index = event.index;
        if self.choices.get(index as usize).is_none() {
            return self.fail(&unknown_index(index));
        }
        match event.part {
            ReplyPart::Started {
                prompt_tokens,
                cached_tokens,
            } => self.start(index, prompt_tokens, cached_tokens),
            // Chats cannot ask for the tokens of the prompt.
            ReplyPart::Prompt(_) => vec![],
            ReplyPart::Tokens(tokens) => {
                self.choices[index as usize].tokens.extend(tokens);
                self.complete_progress(index)
            }
            ReplyPart::Text(content) => self.part(index, ChunkDelta::Text { content }),
            ReplyPart::Reasoning(reasoning) => {
                let delta = ChunkDelta::Reasoning {
                    reasoning_content: reasoning.clone(),
                    reasoning,
                };
                self.part(index, delta)
            }
            ReplyPart::Call(call) => self.call(index, call),
            ReplyPart::Ended(end) => self.end(index, end),
            ReplyPart::Failed(error) => self.fail(&error),
        }
    }

    fn close(&mut self) -> Vec<SseEvent> {
        match self.state {
            StreamState::Closed => vec![],
            StreamState::Open => self.fail(&interrupted()),
        }
    }
}
