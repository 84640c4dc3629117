//! An HTTP client that sends one request and measures its reply.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::args::Endpoint;

/// The client of a server.
pub(super) struct LoadClient {
    http: reqwest::Client,
    base: String,
    key: Option<String>,
    endpoint: Endpoint,
    /// The name of the model in the requests.
    pub(super) model: String,
    /// Whether replies are streamed.
    pub(super) stream: bool,
}

/// The measured reply to a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MeasuredReply {
    /// The time from the request to the first token, if the reply was streamed.
    pub(super) first: Option<Duration>,
    /// The times between events with tokens.
    pub(super) gaps: Vec<Duration>,
    /// The time from the request to the end of the reply.
    pub(super) whole: Duration,
    /// The number of generated tokens by the server's account.
    pub(super) tokens: u64,
    /// The number of prompt tokens that the server found in its cache.
    pub(super) cached: u64,
}

impl LoadClient {
    /// Creates a client. Without a model's name, the server is asked for one.
    ///
    /// # Errors
    /// Returns a sentence if the server does not answer.
    pub(super) async fn new(
        url: &str,
        endpoint: Endpoint,
        model: Option<String>,
        key: Option<String>,
        stream: bool,
        timeout: Duration,
    ) -> Result<LoadClient, String> {
        let http = reqwest::Client::builder()
            .timeout(timeout)
            .pool_max_idle_per_host(usize::MAX)
            .build()
            .map_err(|error| chain(&error))?;
        let client = LoadClient {
            http,
            base: url.trim_end_matches('/').to_owned(),
            key,
            endpoint,
            model: String::new(),
            stream,
        };
        let model = match model {
            Some(model) => model,
            None => client.first_model().await?,
        };
        Ok(LoadClient { model, ..client })
    }

    /// Returns the name of the first model that the server lists.
    async fn first_model(&self) -> Result<String, String> {
        let url = format!("{}/v1/models", self.base);
        let reply = self.authorized(self.http.get(&url)).send().await;
        let reply = reply.map_err(|error| format!("{url} does not answer: {}", chain(&error)))?;
        let reply = accepted(&url, reply).await?;
        let list: Value = reply.json().await.map_err(|error| chain(&error))?;
        list["data"][0]["id"]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| format!("{url} lists no model; name one with --model"))
    }

    /// Sends a prompt and reads the reply to its end.
    ///
    /// # Errors
    /// Returns a sentence if the request fails or the reply is not complete.
    pub(super) async fn complete(&self, prompt: &[u32], new: u32) -> Result<MeasuredReply, String> {
        let url = format!("{}{}", self.base, self.endpoint.path());
        let body = self.body(prompt, new);
        let start = Instant::now();
        let sent = self.authorized(self.http.post(&url)).json(&body).send();
        let reply = sent.await.map_err(|error| chain(&error))?;
        let mut reply = accepted(&url, reply).await?;
        if !self.stream {
            let whole: Value = reply.json().await.map_err(|error| chain(&error))?;
            let mut measured = MeasuredReply {
                whole: start.elapsed(),
                ..MeasuredReply::default()
            };
            measured.count(&whole);
            return measured.checked(new);
        }

        let mut events = EventReader::default();
        let mut measured = MeasuredReply::default();
        let mut last = None;
        while let Some(bytes) = reply.chunk().await.map_err(|error| chain(&error))? {
            let now = Instant::now();
            events.push(&bytes);
            while let Some(data) = events.next() {
                if data == "[DONE]" {
                    continue;
                }

                let event: Value = serde_json::from_str(&data)
                    .map_err(|error| format!("an event is not JSON ({error}): {data}"))?;
                if let Some(error) = event.get("error") {
                    return Err(format!("the stream ended with an error: {error}"));
                }
                measured.count(&event);
                if !has_token(&event) {
                    continue;
                }
                match last.replace(now) {
                    None => measured.first = Some(now - start),
                    Some(before) => measured.gaps.push(now - before),
                }
            }
        }

        measured.whole = start.elapsed();
        measured.checked(new)
    }

    fn body(&self, prompt: &[u32], new: u32) -> Value {
        match self.endpoint {
            Endpoint::Completions => {
                let mut body = json!({
                    "model": self.model,
                    "prompt": prompt,
                    "max_tokens": new,
                    "ignore_eos": true,
                    "temperature": 0.0,
                    "stream": self.stream,
                });
                if self.stream {
                    body["stream_options"] = json!({ "include_usage": true });
                }
                body
            }
            Endpoint::Llama => json!({
                "prompt": prompt,
                "n_predict": new,
                "ignore_eos": true,
                "temperature": 0.0,
                "stream": self.stream,
            }),
        }
    }

    fn authorized(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }
}

impl MeasuredReply {
    /// Takes the counts of a reply or of an event, if it has any.
    fn count(&mut self, value: &Value) {
        // OpenAI's form, then the form of llama-server.
        let usage = &value["usage"];
        if let Some(tokens) = usage["completion_tokens"]
            .as_u64()
            .or_else(|| value["tokens_predicted"].as_u64())
        {
            self.tokens = tokens;
        }
        if let Some(cached) = usage["prompt_tokens_details"]["cached_tokens"].as_u64() {
            self.cached = cached;
        }
    }

    /// Returns the reply if it has as many tokens as were asked for.
    fn checked(self, new: u32) -> Result<MeasuredReply, String> {
        if self.tokens == u64::from(new) {
            return Ok(self);
        }
        Err(format!(
            "a reply has {} tokens instead of {new}",
            self.tokens
        ))
    }
}

/// Returns true if an event carries generated text. Text can be empty, because a token may be a part
/// of a character.
fn has_token(event: &Value) -> bool {
    let choice = &event["choices"][0];
    let of_openai = choice.get("text").is_some() && choice["finish_reason"].is_null();
    let of_llama = event.get("content").is_some() && event["stop"] != json!(true);
    of_openai || of_llama
}

/// Returns a reply with a status of success.
async fn accepted(url: &str, reply: reqwest::Response) -> Result<reqwest::Response, String> {
    let status = reply.status();
    if status.is_success() {
        return Ok(reply);
    }
    let text = reply.text().await.unwrap_or_default();
    let shown: String = text.chars().take(300).collect();
    Err(format!("{url} answered {status}: {shown}"))
}

/// Returns an error with its causes, which say more than reqwest's own message.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// A reader of server-sent events that arrive in pieces. Only their data is returned.
#[derive(Default)]
struct EventReader {
    held: Vec<u8>,
}

impl EventReader {
    fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Returns the data of the next event that has arrived completely.
    fn next(&mut self) -> Option<String> {
        loop {
            let end = self.held.iter().position(|&byte| byte == b'\n')?;
            let line: Vec<u8> = self.held.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(data) = line.trim_end().strip_prefix("data:") {
                return Some(data.trim_start().to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = ": ping\n\ndata: {\"a\": 1}\n\nevent: x\ndata:[DONE]\r\n\r\n";
        for size in 1..text.len() {
            let mut reader = EventReader::default();
            let mut read = vec![];
            for piece in text.as_bytes().chunks(size) {
                reader.push(piece);
                while let Some(data) = reader.next() {
                    read.push(data);
                }
            }
            assert_eq!(read, ["{\"a\": 1}", "[DONE]"], "pieces of {size} bytes");
        }
    }

    #[test]
    fn replies_are_counted_in_both_forms() {
        let mut reply = MeasuredReply::default();
        reply.count(&json!({ "choices": [{ "text": "a" }] }));
        assert_eq!(reply.tokens, 0);
        reply.count(&json!({
            "usage": { "completion_tokens": 7, "prompt_tokens_details": { "cached_tokens": 64 } }
        }));
        assert_eq!((reply.tokens, reply.cached), (7, 64));
        assert_eq!(
            reply.clone().checked(8),
            Err("a reply has 7 tokens instead of 8".to_owned())
        );
        reply.count(&json!({ "content": "", "stop": true, "tokens_predicted": 8 }));
        assert!(reply.checked(8).is_ok());
    }

    #[test]
    fn only_events_with_text_count_as_tokens() {
        assert!(has_token(
            &json!({ "choices": [{ "text": "", "finish_reason": null }] })
        ));
        assert!(!has_token(
            &json!({ "choices": [{ "text": "", "finish_reason": "length" }] })
        ));
        assert!(!has_token(&json!({ "choices": [], "usage": {} })));
        assert!(has_token(&json!({ "content": "a", "stop": false })));
        assert!(!has_token(&json!({ "content": "", "stop": true })));
    }
}
