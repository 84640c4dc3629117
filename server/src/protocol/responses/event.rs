//! The events of a stream.

use serde::Serialize;

use super::object::{OutputItem, OutputPart, ResponseObject, SummaryPart};
use crate::protocol::openai::TokenLogprob;
use crate::protocol::shared::SseEvent;

/// An event with its number in the stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NumberedEvent {
    /// The event.
    #[serde(flatten)]
    pub event: ResponseEvent,
    /// The number, from 0.
    pub sequence_number: u64,
}

/// The place of a part that an event changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContentPlace {
    /// The id of the item.
    pub item_id: String,
    /// The index of the item.
    pub output_index: usize,
    /// The index of the part. A message has one part.
    pub content_index: usize,
}

/// The place of a part of a summary that an event changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SummaryPlace {
    /// The id of the item.
    pub item_id: String,
    /// The index of the item.
    pub output_index: usize,
    /// The index of the part. A summary has one part.
    pub summary_index: usize,
}

/// The place of a call that an event changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallPlace {
    /// The id of the item.
    pub item_id: String,
    /// The index of the item.
    pub output_index: usize,
}

/// An event of a stream. Its name is its type.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
#[expect(missing_docs, reason = "the variants and fields are those of the API")]
pub enum ResponseEvent {
    #[serde(rename = "response.created")]
    Created { response: ResponseObject },
    #[serde(rename = "response.in_progress")]
    InProgress { response: ResponseObject },
    #[serde(rename = "response.completed")]
    Completed { response: ResponseObject },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: ResponseObject },
    #[serde(rename = "response.failed")]
    Failed { response: ResponseObject },
    #[serde(rename = "response.output_item.added")]
    ItemAdded {
        output_index: usize,
        item: OutputItem,
    },
    #[serde(rename = "response.output_item.done")]
    ItemDone {
        output_index: usize,
        item: OutputItem,
    },
    #[serde(rename = "response.content_part.added")]
    PartAdded {
        #[serde(flatten)]
        place: ContentPlace,
        part: OutputPart,
    },
    #[serde(rename = "response.content_part.done")]
    PartDone {
        #[serde(flatten)]
        place: ContentPlace,
        part: OutputPart,
    },
    #[serde(rename = "response.output_text.delta")]
    TextDelta {
        #[serde(flatten)]
        place: ContentPlace,
        delta: String,
        logprobs: Vec<TokenLogprob>,
    },
    #[serde(rename = "response.output_text.done")]
    TextDone {
        #[serde(flatten)]
        place: ContentPlace,
        text: String,
        logprobs: Vec<TokenLogprob>,
    },
    #[serde(rename = "response.reasoning_summary_part.added")]
    SummaryPartAdded {
        #[serde(flatten)]
        place: SummaryPlace,
        part: SummaryPart,
    },
    #[serde(rename = "response.reasoning_summary_part.done")]
    SummaryPartDone {
        #[serde(flatten)]
        place: SummaryPlace,
        part: SummaryPart,
    },
    #[serde(rename = "response.reasoning_summary_text.delta")]
    SummaryTextDelta {
        #[serde(flatten)]
        place: SummaryPlace,
        delta: String,
    },
    #[serde(rename = "response.reasoning_summary_text.done")]
    SummaryTextDone {
        #[serde(flatten)]
        place: SummaryPlace,
        text: String,
    },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta {
        #[serde(flatten)]
        place: CallPlace,
        delta: String,
    },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone {
        #[serde(flatten)]
        place: CallPlace,
        name: String,
        arguments: String,
    },
    #[serde(rename = "error")]
    Error {
        code: &'static str,
        message: String,
        param: Option<String>,
    },
}

impl ResponseEvent {
    /// Returns the name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            ResponseEvent::Created { .. } => "response.created",
            ResponseEvent::InProgress { .. } => "response.in_progress",
            ResponseEvent::Completed { .. } => "response.completed",
            ResponseEvent::Incomplete { .. } => "response.incomplete",
            ResponseEvent::Failed { .. } => "response.failed",
            ResponseEvent::ItemAdded { .. } => "response.output_item.added",
            ResponseEvent::ItemDone { .. } => "response.output_item.done",
            ResponseEvent::PartAdded { .. } => "response.content_part.added",
            ResponseEvent::PartDone { .. } => "response.content_part.done",
            ResponseEvent::TextDelta { .. } => "response.output_text.delta",
            ResponseEvent::TextDone { .. } => "response.output_text.done",
            ResponseEvent::SummaryPartAdded { .. } => "response.reasoning_summary_part.added",
            ResponseEvent::SummaryPartDone { .. } => "response.reasoning_summary_part.done",
            ResponseEvent::SummaryTextDelta { .. } => "response.reasoning_summary_text.delta",
            ResponseEvent::SummaryTextDone { .. } => "response.reasoning_summary_text.done",
            ResponseEvent::ArgumentsDelta { .. } => "response.function_call_arguments.delta",
            ResponseEvent::ArgumentsDone { .. } => "response.function_call_arguments.done",
            ResponseEvent::Error { .. } => "error",
        }
    }
}

impl NumberedEvent {
    /// Returns the event as a server-sent event.
    pub fn sse(&self) -> SseEvent {
        SseEvent::named(self.event.name(), self)
    }
}
