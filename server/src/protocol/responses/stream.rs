//! The parts of a reply as a response, and as the events of a stream.

use super::event::{CallPlace, ContentPlace, NumberedEvent, ResponseEvent, SummaryPlace};
use super::object::{
    IncompleteDetails, InputTokensDetails, OutputItem, OutputPart, OutputTokensDetails,
    ResponseFailure, ResponseObject, ResponseParameters, ResponseStatus, ResponseUsage,
    SummaryPart,
};
use crate::error::{ErrorKind, RequestError};
use crate::protocol::openai::{TokenLogprob, chat_logprobs, error_body};
use crate::protocol::shared::unix_seconds;
use crate::reply::{FinishReason, ReplyCall, ReplyEnded, ReplyPart};

/// The beginning of a response.
#[derive(Debug, Clone)]
pub struct ResponseStart {
    /// The part of the ids after their prefixes.
    pub id: String,
    /// The time of the request, in seconds since 1970.
    pub created_at: u64,
    /// The name of the model.
    pub model: String,
    /// The parameters of the request.
    pub parameters: ResponseParameters,
}

/// Writes the parts of a reply as the events of a response, and collects the response.
#[derive(Debug)]
pub struct ResponseWriter {
    response: ResponseObject,
    /// The part of the ids after their prefixes.
    id: String,
    /// The last item can still grow.
    is_open: bool,
    /// The log-probabilities of the text that follows.
    logprobs: Vec<TokenLogprob>,
    usage: ResponseUsage,
    sequence_number: u64,
    end: WriterEnd,
}

/// The end of a response.
#[derive(Debug)]
enum WriterEnd {
    Running,
    Complete,
    Failed(RequestError),
}

impl ResponseWriter {
    /// Returns a writer for a reply from which no part has arrived.
    pub fn new(start: ResponseStart) -> ResponseWriter {
        ResponseWriter {
            response: ResponseObject {
                id: format!("resp_{}", start.id),
                object: "response",
                created_at: start.created_at,
                completed_at: None,
                status: ResponseStatus::InProgress,
                incomplete_details: None,
                error: None,
                model: start.model,
                output: vec![],
                usage: None,
                parameters: start.parameters,
            },
            id: start.id,
            is_open: false,
            logprobs: vec![],
            usage: ResponseUsage::default(),
            sequence_number: 0,
            end: WriterEnd::Running,
        }
    }

    /// Returns the first events, before any part has arrived.
    pub fn start(&mut self) -> Vec<NumberedEvent> {
        let response = self.response.clone();
        let created = ResponseEvent::Created {
            response: response.clone(),
        };
        self.numbered(vec![created, ResponseEvent::InProgress { response }])
    }

    /// Adds a part of the reply and returns its events.
    pub fn push(&mut self, part: ReplyPart) -> Vec<NumberedEvent> {
        let events = match part {
            ReplyPart::Started {
                prompt_tokens,
                cached_tokens,
            } => {
                self.usage.input_tokens = prompt_tokens;
                self.usage.input_tokens_details = InputTokensDetails { cached_tokens };
                vec![]
            }
            // The Responses API has no log-probabilities of prompts, so none are asked for.
            ReplyPart::Prompt(_) => vec![],
            ReplyPart::Tokens(tokens) => {
                self.logprobs.extend(chat_logprobs(&tokens).content);
                vec![]
            }
            ReplyPart::Reasoning(text) => self.reasoning(text),
            ReplyPart::Text(text) => self.text(text),
            ReplyPart::Call(call) => self.call(call),
            ReplyPart::Ended(ended) => self.ended(ended),
            ReplyPart::Failed(error) => self.fail(error),
        };
        self.numbered(events)
    }

    /// Ends the response because no further part will arrive.
    pub fn interrupt(&mut self) -> Vec<NumberedEvent> {
        let events = self.fail(interrupted());
        self.numbered(events)
    }

    /// Returns the response.
    ///
    /// # Errors
    /// Returns the error of a reply that has failed, or an error if it has not ended.
    pub fn finish(self) -> Result<ResponseObject, RequestError> {
        match self.end {
            WriterEnd::Complete => Ok(self.response),
            WriterEnd::Failed(error) => Err(error),
            WriterEnd::Running => Err(interrupted()),
        }
    }

    fn numbered(&mut self, events: Vec<ResponseEvent>) -> Vec<NumberedEvent> {
        let mut numbered = vec![];
        for event in events {
            numbered.push(NumberedEvent {
                event,
                sequence_number: self.sequence_number,
            });
            self.sequence_number += 1;
        }
        numbered
    }

    fn reasoning(&mut self, text: String) -> Vec<ResponseEvent> {
        // Log-probabilities are returned for texts only.
        self.logprobs.clear();
        if text.is_empty() {
            return vec![];
        }
        let mut events = vec![];
        let continues = self.is_open
            && matches!(
                self.response.output.last(),
                Some(OutputItem::Reasoning { .. })
            );
        if !continues {
            self.open_reasoning(&mut events);
        }

        if let Some(OutputItem::Reasoning { summary, .. }) = self.response.output.last_mut()
            && let Some(SummaryPart::SummaryText { text: whole }) = summary.last_mut()
        {
            whole.push_str(&text);
        }
        events.push(ResponseEvent::SummaryTextDelta {
            place: self.summary_place(),
            delta: text,
        });
        events
    }

    fn open_reasoning(&mut self, events: &mut Vec<ResponseEvent>) {
        self.close(events, ResponseStatus::Completed);
        let item = OutputItem::Reasoning {
            id: self.next_id("rs_"),
            summary: vec![],
        };
        self.add(events, item);
        self.is_open = true;
        let part = SummaryPart::SummaryText {
            text: String::new(),
        };
        if let Some(OutputItem::Reasoning { summary, .. }) = self.response.output.last_mut() {
            summary.push(part.clone());
        }
        events.push(ResponseEvent::SummaryPartAdded {
            place: self.summary_place(),
            part,
        });
    }

    fn text(&mut self, text: String) -> Vec<ResponseEvent> {
        if text.is_empty() {
            return vec![];
        }
        let mut events = vec![];
        let continues = self.is_open
            && matches!(
                self.response.output.last(),
                Some(OutputItem::Message { .. })
            );
        if !continues {
            self.open_message(&mut events);
        }

        let new = std::mem::take(&mut self.logprobs);
        if let Some(OutputItem::Message { content, .. }) = self.response.output.last_mut()
            && let Some(OutputPart::OutputText {
                text: whole,
                logprobs,
                ..
            }) = content.last_mut()
        {
            whole.push_str(&text);
            logprobs.extend(new.iter().cloned());
        }
        events.push(ResponseEvent::TextDelta {
            place: self.content_place(),
            delta: text,
            logprobs: new,
        });
        events
    }

    fn open_message(&mut self, events: &mut Vec<ResponseEvent>) {
        self.close(events, ResponseStatus::Completed);
        let item = OutputItem::Message {
            id: self.next_id("msg_"),
            status: ResponseStatus::InProgress,
            role: "assistant",
            content: vec![],
        };
        self.add(events, item);
        self.is_open = true;
        let part = OutputPart::OutputText {
            text: String::new(),
            annotations: [],
            logprobs: vec![],
        };
        if let Some(OutputItem::Message { content, .. }) = self.response.output.last_mut() {
            content.push(part.clone());
        }
        events.push(ResponseEvent::PartAdded {
            place: self.content_place(),
            part,
        });
    }

    fn call(&mut self, call: ReplyCall) -> Vec<ResponseEvent> {
        self.logprobs.clear();
        let mut events = vec![];
        self.close(&mut events, ResponseStatus::Completed);
        let id = self.next_id("fc_");
        let place = CallPlace {
            item_id: id.clone(),
            output_index: self.response.output.len(),
        };
        let item = |arguments: String, status| OutputItem::FunctionCall {
            id: id.clone(),
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments,
            status,
        };

        self.add(&mut events, item(String::new(), ResponseStatus::InProgress));
        // Calls arrive when they are complete, because only then is it known that they are calls.
        events.push(ResponseEvent::ArgumentsDelta {
            place: place.clone(),
            delta: call.arguments.clone(),
        });
        events.push(ResponseEvent::ArgumentsDone {
            place: place.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        });
        let done = item(call.arguments.clone(), ResponseStatus::Completed);
        events.push(ResponseEvent::ItemDone {
            output_index: place.output_index,
            item: done.clone(),
        });
        self.response.output[place.output_index] = done;
        events
    }

    fn ended(&mut self, ended: ReplyEnded) -> Vec<ResponseEvent> {
        let status = match ended.reason {
            FinishReason::Stop | FinishReason::StopString(_) | FinishReason::Calls => {
                ResponseStatus::Completed
            }
            FinishReason::Length => ResponseStatus::Incomplete,
            FinishReason::Shutdown => {
                return self.fail(RequestError::new(
                    ErrorKind::Unavailable,
                    "the server is shutting down, and the response is not complete",
                ));
            }
        };

        let mut events = vec![];
        // Programs expect an item, so a reply without any text is a message without text.
        let has_reply = self.response.output.iter().any(|item| match item {
            OutputItem::Message { .. } | OutputItem::FunctionCall { .. } => true,
            OutputItem::Reasoning { .. } => false,
        });
        if !has_reply {
            self.open_message(&mut events);
        }
        self.close(&mut events, status);
        self.usage.output_tokens = ended.tokens;
        self.usage.output_tokens_details = OutputTokensDetails {
            reasoning_tokens: ended.reasoning_tokens,
        };
        self.usage.total_tokens = self.usage.input_tokens.saturating_add(ended.tokens);
        self.response.usage = Some(self.usage);
        self.response.status = status;
        self.end = WriterEnd::Complete;
        if status == ResponseStatus::Incomplete {
            self.response.incomplete_details = Some(IncompleteDetails {
                reason: "max_output_tokens",
            });
            events.push(ResponseEvent::Incomplete {
                response: self.response.clone(),
            });
        } else {
            self.response.completed_at = Some(unix_seconds().max(self.response.created_at));
            events.push(ResponseEvent::Completed {
                response: self.response.clone(),
            });
        }
        events
    }

    fn fail(&mut self, error: RequestError) -> Vec<ResponseEvent> {
        match self.end {
            WriterEnd::Running => {}
            WriterEnd::Complete | WriterEnd::Failed(_) => return vec![],
        }
        let mut events = vec![];
        self.close(&mut events, ResponseStatus::Incomplete);
        let fields = error_body(&error).error;
        let code = fields.code.unwrap_or("server_error");
        self.response.status = ResponseStatus::Failed;
        self.response.error = Some(ResponseFailure {
            code,
            message: error.message.clone(),
        });
        // Some clients read only one of the two events.
        events.push(ResponseEvent::Error {
            code,
            message: error.message.clone(),
            param: error.param.clone(),
        });
        events.push(ResponseEvent::Failed {
            response: self.response.clone(),
        });
        self.end = WriterEnd::Failed(error);
        events
    }

    /// Adds an item.
    fn add(&mut self, events: &mut Vec<ResponseEvent>, item: OutputItem) {
        events.push(ResponseEvent::ItemAdded {
            output_index: self.response.output.len(),
            item: item.clone(),
        });
        self.response.output.push(item);
    }

    /// Closes the last item, if it is open.
    fn close(&mut self, events: &mut Vec<ResponseEvent>, end: ResponseStatus) {
        if !self.is_open {
            return;
        }
        self.is_open = false;
        let content_place = self.content_place();
        let summary_place = self.summary_place();
        let Some(item) = self.response.output.last_mut() else {
            return;
        };
        match item {
            OutputItem::Message {
                status, content, ..
            } => {
                *status = end;
                for part in content {
                    let OutputPart::OutputText { text, logprobs, .. } = &*part;
                    events.push(ResponseEvent::TextDone {
                        place: content_place.clone(),
                        text: text.clone(),
                        logprobs: logprobs.clone(),
                    });
                    events.push(ResponseEvent::PartDone {
                        place: content_place.clone(),
                        part: part.clone(),
                    });
                }
            }
            OutputItem::Reasoning { summary, .. } => {
                for part in summary {
                    let SummaryPart::SummaryText { text } = &*part;
                    events.push(ResponseEvent::SummaryTextDone {
                        place: summary_place.clone(),
                        text: text.clone(),
                    });
                    events.push(ResponseEvent::SummaryPartDone {
                        place: summary_place.clone(),
                        part: part.clone(),
                    });
                }
            }
            // A call is added and completed at the same time.
            OutputItem::FunctionCall { .. } => {}
        }
        events.push(ResponseEvent::ItemDone {
            output_index: content_place.output_index,
            item: item.clone(),
        });
    }

    /// Returns the id of the next item.
    fn next_id(&self, prefix: &str) -> String {
        format!("{prefix}{}{}", self.id, self.response.output.len())
    }

    fn content_place(&self) -> ContentPlace {
        ContentPlace {
            item_id: self.last_id(),
            output_index: self.response.output.len().saturating_sub(1),
            content_index: 0,
        }
    }

    fn summary_place(&self) -> SummaryPlace {
        SummaryPlace {
            item_id: self.last_id(),
            output_index: self.response.output.len().saturating_sub(1),
            summary_index: 0,
        }
    }

    /// Returns the id of the last item.
    fn last_id(&self) -> String {
        match self.response.output.last() {
            Some(
                OutputItem::Message { id, .. }
                | OutputItem::Reasoning { id, .. }
                | OutputItem::FunctionCall { id, .. },
            ) => id.clone(),
            None => String::new(),
        }
    }
}

/// Returns the error of a reply whose events end without an end.
fn interrupted() -> RequestError {
    RequestError::new(ErrorKind::Internal, "the reply was interrupted")
}
