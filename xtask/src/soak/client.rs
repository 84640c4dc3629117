//! A client that sends random requests, one after the other.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::actions::{ACTIONS, Action};
use super::http::{self, Response};
use super::protocol::{ENDPOINTS, ReplyForm, StreamEvent};
use super::questions::{Reference, References};
use super::random::Random;
use super::tally::{Outcome, Tally};

/// A client and its random numbers.
pub(super) struct Client<'a> {
    number: u64,
    random: Random,
    port: u16,
    references: &'a References,
    tally: &'a Mutex<Tally>,
}

/// The number of events after which a client leaves a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    AtTheEnd,
    After(usize),
}

impl<'a> Client<'a> {
    pub(super) fn new(
        seed: u64,
        number: u64,
        port: u16,
        references: &'a References,
        tally: &'a Mutex<Tally>,
    ) -> Client<'a> {
        Client {
            number,
            random: Random::new(seed, number),
            port,
            references,
            tally,
        }
    }

    /// Sends requests until the end, or until `stop` is true.
    pub(super) fn run(&mut self, end: Instant, stop: &AtomicBool) {
        let mut sent = 0_u64;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            let action = self.choose();
            let start = Instant::now();
            let result = self.act(action);
            let time = start.elapsed();
            sent += 1;
            let mut tally = self
                .tally
                .lock()
                .unwrap_or_else(|poison| poison.into_inner());
            tally.count(action, result.as_ref().ok().copied(), time);
            if let Err(error) = &result {
                let client = self.number;
                let name = action.name();
                tally.problem(format!(
                    "client {client}, request {sent}, {name}: {error:#}"
                ));
            }
            drop(tally);
            match result {
                // A client that is refused comes back later.
                Ok(Outcome::Refused) => thread::sleep(self.up_to(Duration::from_secs(2))),
                // A server that fails would be asked again at once for the whole time.
                Err(_) => thread::sleep(Duration::from_secs(1)),
                Ok(Outcome::Complete) => {}
            }
        }
    }

    /// Returns a random duration below `limit`.
    fn up_to(&mut self, limit: Duration) -> Duration {
        let millis = limit.as_millis() as usize;
        Duration::from_millis(self.random.below(millis.max(1)) as u64)
    }

    /// Returns a random kind of request.
    fn choose(&mut self) -> Action {
        let total = ACTIONS.iter().map(|(_, share)| share).sum();
        let mut place = self.random.below(total);
        for (action, share) in ACTIONS {
            if place < share {
                return action;
            }
            place -= share;
        }
        unreachable!("the place is below the sum of the shares")
    }

    fn reference(&mut self) -> &'a Reference {
        let references = self.references;
        self.random.choose(&references.all)
    }

    fn act(&mut self, action: Action) -> Result<Outcome> {
        match action {
            Action::Whole => self.whole(),
            Action::Streamed => self.streamed(Leave::AtTheEnd, Duration::ZERO),
            Action::Stopped => self.stopped(),
            Action::LeaveStream => {
                let events = self.random.below(8);
                self.streamed(Leave::After(events), Duration::ZERO)
            }
            Action::LeaveEarly => self.leave_early(),
            Action::SlowReader => {
                let pause = self.up_to(Duration::from_millis(500));
                self.streamed(Leave::AtTheEnd, pause)
            }
            Action::HugePrompt => self.huge_prompt(),
            Action::Malformed => self.malformed(),
            Action::Half => self.half(),
            Action::WrongMethod => self.wrong_method(),
            Action::NotHttp => self.not_http(),
            Action::State => self.state(),
            Action::Tokens => self.tokens(),
        }
    }

    /// Asks for a complete reply and compares it.
    fn whole(&mut self) -> Result<Outcome> {
        let reference = self.reference();
        let body = reference
            .endpoint
            .request(&reference.question, ReplyForm::Whole, None);
        self.compared(reference, &body, &reference.answer)
    }

    /// Asks for a reply with a stop string that its reference contains.
    fn stopped(&mut self) -> Result<Outcome> {
        let reference = self.reference();
        let answer = &reference.answer;
        let ends: Vec<usize> = answer.char_indices().map(|(at, _)| at).collect();
        if ends.len() < 2 || !reference.endpoint.has_stop_strings() {
            return self.whole();
        }
        let start = ends[1 + self.random.below(ends.len() - 1)];
        let length = 1 + self.random.below(3);
        let stop: String = answer[start..].chars().take(length).collect();
        // The string may occur earlier than where it was taken from.
        let Some((before, _)) = answer.split_once(&stop) else {
            bail!("{stop:?} is not in {answer:?}");
        };
        let body = reference
            .endpoint
            .request(&reference.question, ReplyForm::Whole, Some(&stop));
        self.compared(reference, &body, before)
            .with_context(|| format!("with the stop string {stop:?}"))
    }

    /// Sends a request and compares the text of the complete reply.
    fn compared(&self, reference: &Reference, body: &Value, expected: &str) -> Result<Outcome> {
        let path = reference.endpoint.path();
        let mut response = http::request(self.port, "POST", path, &body.to_string())?;
        if let Some(refused) = refused(&mut response)? {
            return Ok(refused);
        }
        let text = response.text()?;
        ensure!(
            response.status == 200,
            "{path}: {}: {text}",
            response.status
        );
        let json: Value = serde_json::from_str(&text)?;
        let found = reference.endpoint.text(&json).context("no text")?;
        ensure!(
            found == expected,
            "{path} answers {:?} with {found:?} instead of {expected:?}",
            reference.question.prompt
        );
        Ok(Outcome::Complete)
    }

    /// Reads a stream, with a pause after each piece, and compares the text up to the end or to the
    /// event after which the client leaves.
    fn streamed(&mut self, leave: Leave, pause: Duration) -> Result<Outcome> {
        let reference = self.reference();
        let endpoint = reference.endpoint;
        let path = endpoint.path();
        let body = endpoint.request(&reference.question, ReplyForm::Streamed, None);
        let mut response = http::request(self.port, "POST", path, &body.to_string())?;
        if let Some(refused) = refused(&mut response)? {
            return Ok(refused);
        }
        if response.status != 200 {
            let text = response.text()?;
            bail!("{path}: {}: {text}", response.status);
        }
        let mut bytes: Vec<u8> = vec![];
        let mut text = String::new();
        let mut events = 0;
        let mut has_ended = false;
        while let Some(piece) = response.piece()? {
            bytes.extend(piece);
            // An event ends with an empty line. Its bytes may arrive in several pieces.
            while let Some(end) = bytes.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = bytes.drain(..end + 2).collect();
                let event = String::from_utf8(event).context("an event is not UTF-8")?;
                let data = event.lines().filter_map(|line| line.strip_prefix("data:"));
                let data: Vec<&str> = data.map(str::trim_start).collect();
                if data.is_empty() {
                    continue;
                }
                events += 1;
                match endpoint.event(&data.join("\n")) {
                    StreamEvent::Text(more) => text.push_str(&more),
                    StreamEvent::End => has_ended = true,
                    StreamEvent::Error(error) => bail!("{path}: {error}"),
                    StreamEvent::Other => {}
                }
            }
            if leave == Leave::After(events) || matches!(leave, Leave::After(n) if n < events) {
                ensure!(
                    reference.answer.starts_with(&text),
                    "{path} begins its answer to {:?} with {text:?} instead of {:?}",
                    reference.question.prompt,
                    reference.answer
                );
                return Ok(Outcome::Complete);
            }
            thread::sleep(pause);
        }
        ensure!(
            has_ended,
            "{path}: the stream ends without its last event after {text:?}"
        );
        ensure!(
            text == reference.answer,
            "{path} streams {text:?} to {:?} instead of {:?}",
            reference.question.prompt,
            reference.answer
        );
        Ok(Outcome::Complete)
    }

    /// Sends a request and leaves without reading the response.
    fn leave_early(&mut self) -> Result<Outcome> {
        let reference = self.reference();
        let endpoint = reference.endpoint;
        let form = *self.random.choose(&[ReplyForm::Whole, ReplyForm::Streamed]);
        let body = endpoint
            .request(&reference.question, form, None)
            .to_string();
        let mut stream = http::connect(self.port)?;
        let head = http::head("POST", endpoint.path(), body.len());
        stream.write_all(format!("{head}{body}").as_bytes())?;
        thread::sleep(self.up_to(Duration::from_millis(400)));
        Ok(Outcome::Complete)
    }

    /// Sends a prompt of 1 MB, which no context of the server holds.
    fn huge_prompt(&mut self) -> Result<Outcome> {
        let mut question = self.reference().question.clone();
        let word = *self.random.choose(&["word ", "äöü ", "x", "\n"]);
        question.prompt = word.repeat((1 << 20) / word.len());
        let endpoint = *self.random.choose(&ENDPOINTS);
        let form = *self.random.choose(&[ReplyForm::Whole, ReplyForm::Streamed]);
        let body = endpoint.request(&question, form, None).to_string();
        let mut response = http::request(self.port, "POST", endpoint.path(), &body)?;
        let text = response.text()?;
        ensure!(response.status == 400, "{}: {text}", response.status);
        let error = &serde_json::from_str::<Value>(&text)?["error"];
        let prompt = error["n_prompt_tokens"].as_u64();
        let ctx = error["n_ctx"].as_u64();
        ensure!(
            prompt > ctx && ctx > Some(0),
            "the sizes are missing: {text}"
        );
        Ok(Outcome::Complete)
    }

    /// Sends a body that no endpoint accepts.
    fn malformed(&mut self) -> Result<Outcome> {
        let reference = self.reference();
        let endpoint = reference.endpoint;
        let valid = endpoint
            .request(&reference.question, ReplyForm::Whole, None)
            .to_string();
        let cut = 1 + self.random.below(valid.len() - 1);
        let cut = (0..=cut).rev().find(|at| valid.is_char_boundary(*at));
        let bodies = [
            valid[..cut.unwrap_or(0)].to_owned(),
            String::new(),
            "[]".to_owned(),
            "null".to_owned(),
            "{\"temperature\": \"hot\"}".to_owned(),
            format!("{valid}{valid}"),
            "[".repeat(100_000),
            format!("{{\"prompt\": {}1{}}}", "[".repeat(500), "]".repeat(500)),
        ];
        let body = self.random.choose(&bodies);
        let mut response = http::request(self.port, "POST", endpoint.path(), body)?;
        let text = response.text()?;
        ensure!(response.status == 400, "{}: {text}", response.status);
        let json: Value = serde_json::from_str(&text)?;
        ensure!(
            json["error"]["message"].is_string(),
            "the error has no message: {text}"
        );
        Ok(Outcome::Complete)
    }

    /// Stops in the middle of a request, and leaves or waits for the answer.
    fn half(&mut self) -> Result<Outcome> {
        let reference = self.reference();
        let endpoint = reference.endpoint;
        let body = endpoint
            .request(&reference.question, ReplyForm::Whole, None)
            .to_string();
        let head = http::head("POST", endpoint.path(), body.len());
        let request = format!("{head}{body}").into_bytes();
        let sent = self.random.below(request.len());
        let mut stream = http::connect(self.port)?;
        stream.write_all(&request[..sent])?;
        if self.random.below(2) == 0 {
            thread::sleep(self.up_to(Duration::from_millis(200)));
            return Ok(Outcome::Complete);
        }
        // The client may also say that nothing more comes.
        if self.random.below(2) == 0 {
            stream.shutdown(Shutdown::Write)?;
        }
        let mut answer = vec![];
        // The connection may be reset instead of being closed.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let is_error = ["408", "400"]
            .iter()
            .any(|status| answer.starts_with(&format!("HTTP/1.1 {status} ")));
        ensure!(
            answer.is_empty() || is_error,
            "{sent} of {} bytes are answered with {answer}",
            request.len()
        );
        Ok(Outcome::Complete)
    }

    fn wrong_method(&mut self) -> Result<Outcome> {
        let cases = [
            ("GET", "/completion", 405),
            ("DELETE", "/v1/chat/completions", 405),
            ("PUT", "/v1/messages", 405),
            ("PATCH", "/v1/responses", 405),
            ("POST", "/health", 405),
            ("GET", "/v1/chat/completion", 404),
            ("POST", "/../etc/passwd", 404),
            ("GET", "/%00%ff?x=1", 404),
        ];
        let (method, path, status) = *self.random.choose(&cases);
        let mut response = http::request(self.port, method, path, "")?;
        let text = response.text()?;
        let found = response.status;
        ensure!(found == status, "{method} {path}: {found}: {text}");
        Ok(Outcome::Complete)
    }

    /// Sends bytes that are not HTTP. The server answers with an error or closes the connection.
    fn not_http(&mut self) -> Result<Outcome> {
        let bytes: Vec<u8> = (0..1 + self.random.below(300))
            .map(|_| self.random.below(256) as u8)
            .collect();
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(200_000)).into_bytes();
        let choices = [bytes, long, b"\x16\x03\x01\x02\x00\x01\x00".to_vec()];
        let bytes = self.random.choose(&choices);
        let mut stream = http::connect(self.port)?;
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = vec![];
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        ensure!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "bytes that are not HTTP are answered with {answer}"
        );
        Ok(Outcome::Complete)
    }

    fn state(&mut self) -> Result<Outcome> {
        let paths = [
            "/health",
            "/props",
            "/slots",
            "/metrics",
            "/v1/models",
            "/",
            "/openapi.json",
        ];
        let path = *self.random.choose(&paths);
        let mut response = http::request(self.port, "GET", path, "")?;
        let text = response.text()?;
        ensure!(
            response.status == 200,
            "{path}: {}: {text}",
            response.status
        );
        ensure!(!text.is_empty(), "{path} is empty");
        Ok(Outcome::Complete)
    }

    /// Checks that the tokens of a text have the same text.
    fn tokens(&mut self) -> Result<Outcome> {
        let text = self.reference().question.prompt.clone();
        let post = |path: &str, body: Value| -> Result<Value> {
            let mut response = http::request(self.port, "POST", path, &body.to_string())?;
            let text = response.text()?;
            ensure!(
                response.status == 200,
                "{path}: {}: {text}",
                response.status
            );
            Ok(serde_json::from_str(&text)?)
        };
        let tokens = post("/tokenize", json!({ "content": text }))?;
        let again = post("/detokenize", json!({ "tokens": tokens["tokens"] }))?;
        ensure!(
            again["content"] == text,
            "the tokens of {text:?} have the text {}",
            again["content"]
        );
        Ok(Outcome::Complete)
    }
}

/// Returns the outcome of a response that refuses a request because the queue is full.
fn refused(response: &mut Response) -> Result<Option<Outcome>> {
    if response.status != 429 {
        return Ok(None);
    }
    let seconds = response.header("retry-after").map(str::parse::<u64>);
    ensure!(
        matches!(seconds, Some(Ok(1..))),
        "status 429 has the header Retry-After {:?}",
        response.header("retry-after")
    );
    let text = response.text()?;
    let json: Value = serde_json::from_str(&text)?;
    ensure!(
        json["error"]["type"] == "rate_limit_error",
        "status 429 has the body {text}"
    );
    Ok(Some(Outcome::Refused))
}
