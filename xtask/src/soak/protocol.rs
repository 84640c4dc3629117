//! The endpoints that generate text: their requests, responses and events.

use serde_json::{Value, json};

use super::question::Question;

/// An endpoint that generates text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextEndpoint {
    /// llama.cpp's `/completion`.
    Native,
    Completions,
    Chat,
    Responses,
    Messages,
}

pub(super) const ENDPOINTS: [TextEndpoint; 5] = [
    TextEndpoint::Native,
    TextEndpoint::Completions,
    TextEndpoint::Chat,
    TextEndpoint::Responses,
    TextEndpoint::Messages,
];

/// The form in which a reply is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyForm {
    Whole,
    Streamed,
}

/// The meaning of an event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StreamEvent {
    Text(String),
    /// The reply is complete.
    End,
    Error(String),
    Other,
}

impl TextEndpoint {
    pub(super) fn path(self) -> &'static str {
        match self {
            TextEndpoint::Native => "/completion",
            TextEndpoint::Completions => "/v1/completions",
            TextEndpoint::Chat => "/v1/chat/completions",
            TextEndpoint::Responses => "/v1/responses",
            TextEndpoint::Messages => "/v1/messages",
        }
    }

    /// Returns the request for the answer to a question. The Responses API has no stop strings.
    pub(super) fn request(self, question: &Question, form: ReplyForm, stop: Option<&str>) -> Value {
        let prompt = &question.prompt;
        let tokens = question.tokens;
        let messages = json!([{ "role": "user", "content": prompt }]);
        let mut body = match self {
            TextEndpoint::Native => json!({ "prompt": prompt, "n_predict": tokens }),
            TextEndpoint::Completions => json!({ "prompt": prompt, "max_tokens": tokens }),
            TextEndpoint::Chat => json!({ "messages": messages, "max_tokens": tokens }),
            TextEndpoint::Responses => json!({ "input": prompt, "max_output_tokens": tokens }),
            TextEndpoint::Messages => json!({ "messages": messages, "max_tokens": tokens }),
        };
        body["model"] = json!("soak");
        body["temperature"] = json!(question.temperature);
        body["stream"] = json!(form == ReplyForm::Streamed);
        if let Some(stop) = stop {
            let name = match self {
                TextEndpoint::Messages => "stop_sequences",
                TextEndpoint::Native
                | TextEndpoint::Completions
                | TextEndpoint::Chat
                | TextEndpoint::Responses => "stop",
            };
            body[name] = json!([stop]);
        }
        body
    }

    pub(super) fn has_stop_strings(self) -> bool {
        self != TextEndpoint::Responses
    }

    /// Returns the text of a complete response.
    pub(super) fn text(self, response: &Value) -> Option<String> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match self {
            TextEndpoint::Native => text(&response["content"]),
            TextEndpoint::Completions => text(&response["choices"][0]["text"]),
            TextEndpoint::Chat => {
                let message = &response["choices"][0]["message"];
                // A reply without text has null in this place.
                text(&message["content"]).or_else(|| message.is_object().then(String::new))
            }
            TextEndpoint::Responses => {
                let items = response["output"].as_array()?.iter();
                let parts = items.filter_map(|item| item["content"].as_array());
                let parts = parts.flatten().filter_map(|part| part["text"].as_str());
                Some(parts.collect())
            }
            TextEndpoint::Messages => {
                let parts = response["content"].as_array()?.iter();
                Some(parts.filter_map(|part| part["text"].as_str()).collect())
            }
        }
    }

    /// Returns the meaning of the data of an event.
    pub(super) fn event(self, data: &str) -> StreamEvent {
        if data == "[DONE]" {
            return match self {
                TextEndpoint::Completions | TextEndpoint::Chat => StreamEvent::End,
                TextEndpoint::Native | TextEndpoint::Responses | TextEndpoint::Messages => {
                    StreamEvent::Other
                }
            };
        }
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            return StreamEvent::Error(format!("the data of an event is not JSON: {data:?}"));
        };
        if event["error"].is_object() || event["type"] == "response.failed" {
            return StreamEvent::Error(format!("the stream has an error: {data}"));
        }
        let text = |value: &Value| match value.as_str() {
            Some(text) => StreamEvent::Text(text.to_owned()),
            None => StreamEvent::Other,
        };
        let kind = event["type"].as_str().unwrap_or_default();
        match self {
            TextEndpoint::Native if event["stop"] == true => StreamEvent::End,
            TextEndpoint::Native => text(&event["content"]),
            TextEndpoint::Completions => text(&event["choices"][0]["text"]),
            TextEndpoint::Chat => text(&event["choices"][0]["delta"]["content"]),
            TextEndpoint::Responses => match kind {
                "response.output_text.delta" => text(&event["delta"]),
                "response.completed" | "response.incomplete" => StreamEvent::End,
                _ => StreamEvent::Other,
            },
            TextEndpoint::Messages => match kind {
                "content_block_delta" => text(&event["delta"]["text"]),
                "message_stop" => StreamEvent::End,
                _ => StreamEvent::Other,
            },
        }
    }
}
