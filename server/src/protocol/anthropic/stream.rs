//! The parts of a reply as a message, and as the events of a stream.

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::ErrorObject;
use super::object::{MessageObject, OutputBlock, SIGNATURE, StopReason, UsageObject};
use crate::error::{ErrorKind, RequestError};
use crate::protocol::shared::SseEvent;
use crate::reply::{FinishReason, ReplyCall, ReplyEnded, ReplyPart};

/// An event of a stream. Its name is its type.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageEvent {
    /// The message starts. It is empty.
    MessageStart {
        /// The message.
        message: MessageObject,
    },
    /// A sign of life.
    Ping,
    /// A block starts. It is empty.
    ContentBlockStart {
        /// The index of the block.
        index: usize,
        /// The block.
        content_block: OutputBlock,
    },
    /// A block grows.
    ContentBlockDelta {
        /// The index of the block.
        index: usize,
        /// The addition.
        delta: BlockDelta,
    },
    /// A block is complete.
    ContentBlockStop {
        /// The index of the block.
        index: usize,
    },
    /// The message has ended.
    MessageDelta {
        /// The reason.
        delta: MessageEnd,
        /// The number of tokens.
        usage: UsageObject,
    },
    /// The last event of a message.
    MessageStop,
    /// The last event of a message that has failed.
    #[serde(untagged)]
    Error(ErrorObject),
}

/// An addition to a block.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BlockDelta {
    /// Text of the reasoning.
    ThinkingDelta {
        /// The text.
        thinking: String,
    },
    /// The signature of the reasoning, which follows its text.
    SignatureDelta {
        /// The signature.
        signature: &'static str,
    },
    /// Text.
    TextDelta {
        /// The text.
        text: String,
    },
    /// Text of the JSON object with the arguments of a call.
    InputJsonDelta {
        /// The text.
        partial_json: String,
    },
}

/// The end of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageEnd {
    /// The reason.
    pub stop_reason: Option<StopReason>,
    /// The string of `stop_sequences` that ended the reply.
    pub stop_sequence: Option<String>,
}

impl MessageEvent {
    /// Returns the event as a server-sent event. The SDKs read its name first, and ignore events
    /// without one.
    pub fn sse(&self) -> SseEvent {
        let name = match self {
            MessageEvent::MessageStart { .. } => "message_start",
            MessageEvent::Ping => "ping",
            MessageEvent::ContentBlockStart { .. } => "content_block_start",
            MessageEvent::ContentBlockDelta { .. } => "content_block_delta",
            MessageEvent::ContentBlockStop { .. } => "content_block_stop",
            MessageEvent::MessageDelta { .. } => "message_delta",
            MessageEvent::MessageStop => "message_stop",
            MessageEvent::Error(_) => "error",
        };
        SseEvent::named(name, self)
    }
}

/// The reasoning that a reply contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThinkingDisplay {
    /// Blocks with the text of the reasoning.
    #[default]
    Shown,
    /// Blocks without text.
    Omitted,
}

/// The beginning of a message.
#[derive(Debug, Clone)]
pub struct MessageStart {
    /// The id of the message.
    pub id: String,
    /// The id of the HTTP request, for errors.
    pub request_id: String,
    /// The name of the model.
    pub model: String,
    /// The reasoning that the reply contains.
    pub thinking: ThinkingDisplay,
}

/// Writes the parts of a reply as the events of a message, and collects the message.
#[derive(Debug)]
pub struct MessageWriter {
    message: MessageObject,
    request_id: String,
    thinking: ThinkingDisplay,
    /// The last block of the message can still grow.
    is_open: bool,
    end: WriterEnd,
}

/// The end of a reply.
#[derive(Debug)]
enum WriterEnd {
    Running,
    Complete,
    Failed(RequestError),
}

impl MessageWriter {
    /// Returns a writer for a reply from which no part has arrived.
    pub fn new(start: MessageStart) -> MessageWriter {
        MessageWriter {
            message: MessageObject {
                id: start.id,
                kind: "message",
                role: "assistant",
                model: start.model,
                content: vec![],
                stop_reason: None,
                stop_sequence: None,
                usage: UsageObject::default(),
            },
            request_id: start.request_id,
            thinking: start.thinking,
            is_open: false,
            end: WriterEnd::Running,
        }
    }

    /// Returns true if no event follows.
    pub fn has_ended(&self) -> bool {
        match self.end {
            WriterEnd::Running => false,
            WriterEnd::Complete | WriterEnd::Failed(_) => true,
        }
    }

    /// Returns the complete message.
    ///
    /// # Errors
    /// Returns the error of a reply that has failed, or an error if it has not ended.
    pub fn finish(self) -> Result<MessageObject, RequestError> {
        match self.end {
            WriterEnd::Complete => Ok(self.message),
            WriterEnd::Failed(error) => Err(error),
            WriterEnd::Running => Err(interrupted()),
        }
    }

    /// Adds a part of the reply and returns its events.
    pub fn push(&mut self, part: ReplyPart) -> Vec<MessageEvent> {
        match part {
            ReplyPart::Started {
                prompt_tokens,
                cached_tokens,
            } => self.start(prompt_tokens, cached_tokens),
            // The Messages API has no log-probabilities, so none are asked for.
            ReplyPart::Prompt(_) | ReplyPart::Tokens(_) => vec![],
            ReplyPart::Reasoning(text) => self.reasoning(text),
            ReplyPart::Text(text) => self.text(text),
            ReplyPart::Call(call) => self.call(call),
            ReplyPart::Ended(ended) => self.ended(ended),
            ReplyPart::Failed(error) => self.fail(error),
        }
    }

    /// Ends the message because no further part will arrive.
    pub fn interrupt(&mut self) -> Vec<MessageEvent> {
        self.fail(interrupted())
    }

    fn start(&mut self, prompt_tokens: u32, cached_tokens: u32) -> Vec<MessageEvent> {
        self.message.usage.input_tokens = prompt_tokens.saturating_sub(cached_tokens);
        self.message.usage.cache_read_input_tokens = cached_tokens;
        vec![
            MessageEvent::MessageStart {
                message: self.message.clone(),
            },
            MessageEvent::Ping,
        ]
    }

    fn reasoning(&mut self, text: String) -> Vec<MessageEvent> {
        if text.is_empty() {
            return vec![];
        }
        let mut events = vec![];
        let continues = self.is_open
            && matches!(
                self.message.content.last(),
                Some(OutputBlock::Thinking { .. })
            );
        if !continues {
            self.open(
                &mut events,
                OutputBlock::Thinking {
                    thinking: String::new(),
                    signature: "",
                },
            );
        }

        match self.thinking {
            ThinkingDisplay::Shown => {
                if let Some(OutputBlock::Thinking { thinking, .. }) =
                    self.message.content.last_mut()
                {
                    thinking.push_str(&text);
                }
                let delta = BlockDelta::ThinkingDelta { thinking: text };
                events.push(self.delta(delta));
            }
            ThinkingDisplay::Omitted => {}
        }
        events
    }

    fn text(&mut self, text: String) -> Vec<MessageEvent> {
        if text.is_empty() {
            return vec![];
        }
        let mut events = vec![];
        let continues =
            self.is_open && matches!(self.message.content.last(), Some(OutputBlock::Text { .. }));
        if !continues {
            self.open(
                &mut events,
                OutputBlock::Text {
                    text: String::new(),
                },
            );
        }

        if let Some(OutputBlock::Text { text: whole }) = self.message.content.last_mut() {
            whole.push_str(&text);
        }
        events.push(self.delta(BlockDelta::TextDelta { text }));
        events
    }

    fn call(&mut self, call: ReplyCall) -> Vec<MessageEvent> {
        let mut events = vec![];
        self.open(
            &mut events,
            OutputBlock::ToolUse {
                id: call.id,
                name: call.name,
                input: Map::new(),
            },
        );
        if let Some(OutputBlock::ToolUse { input, .. }) = self.message.content.last_mut()
            && let Ok(Value::Object(arguments)) = serde_json::from_str(&call.arguments)
        {
            *input = arguments;
        }
        events.push(self.delta(BlockDelta::InputJsonDelta {
            partial_json: call.arguments,
        }));
        self.close(&mut events);
        events
    }

    fn ended(&mut self, ended: ReplyEnded) -> Vec<MessageEvent> {
        let mut stop_sequence = None;
        let stop_reason = match ended.reason {
            FinishReason::Stop => StopReason::EndTurn,
            FinishReason::Length => StopReason::MaxTokens,
            FinishReason::Calls => StopReason::ToolUse,
            FinishReason::StopString(text) => {
                stop_sequence = Some(text);
                StopReason::StopSequence
            }
            FinishReason::Shutdown => {
                return self.fail(RequestError::new(
                    ErrorKind::Unavailable,
                    "the server is shutting down, and the reply is not complete",
                ));
            }
        };

        let mut events = vec![];
        // Programs read `content[0].text` without a check, so there is always a block.
        let has_reply = self.message.content.iter().any(|block| match block {
            OutputBlock::Text { .. } | OutputBlock::ToolUse { .. } => true,
            OutputBlock::Thinking { .. } => false,
        });
        if !has_reply {
            self.open(
                &mut events,
                OutputBlock::Text {
                    text: String::new(),
                },
            );
        }
        self.close(&mut events);
        self.message.stop_reason = Some(stop_reason);
        self.message.stop_sequence = stop_sequence;
        self.message.usage.output_tokens = ended.tokens;
        self.end = WriterEnd::Complete;
        events.push(MessageEvent::MessageDelta {
            delta: MessageEnd {
                stop_reason: self.message.stop_reason,
                stop_sequence: self.message.stop_sequence.clone(),
            },
            usage: self.message.usage,
        });
        events.push(MessageEvent::MessageStop);
        events
    }

    fn fail(&mut self, error: RequestError) -> Vec<MessageEvent> {
        if self.has_ended() {
            return vec![];
        }
        let object = ErrorObject::new(&error, Some(&self.request_id));
        self.end = WriterEnd::Failed(error);
        vec![MessageEvent::Error(object)]
    }

    /// Closes the last block and adds another one.
    fn open(&mut self, events: &mut Vec<MessageEvent>, block: OutputBlock) {
        self.close(events);
        events.push(MessageEvent::ContentBlockStart {
            index: self.message.content.len(),
            content_block: block.clone(),
        });
        self.message.content.push(block);
        self.is_open = true;
    }

    /// Closes the last block, if it is open.
    fn close(&mut self, events: &mut Vec<MessageEvent>) {
        if !self.is_open {
            return;
        }
        self.is_open = false;
        if let Some(OutputBlock::Thinking { signature, .. }) = self.message.content.last_mut() {
            *signature = SIGNATURE;
            events.push(self.delta(BlockDelta::SignatureDelta {
                signature: SIGNATURE,
            }));
        }
        events.push(MessageEvent::ContentBlockStop {
            index: self.message.content.len() - 1,
        });
    }

    /// Returns the event for an addition to the last block.
    fn delta(&self, delta: BlockDelta) -> MessageEvent {
        MessageEvent::ContentBlockDelta {
            index: self.message.content.len() - 1,
            delta,
        }
    }
}

/// Returns the error of a reply whose events end without an end.
fn interrupted() -> RequestError {
    RequestError::new(ErrorKind::Internal, "the reply was interrupted")
}
