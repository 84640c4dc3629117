//! The server-sent events of completions.

use super::call::Echo;
use super::response::{Completion, CompletionChoice, CompletionTexts, unexpected_call};
use crate::error::RequestError;
use crate::protocol::openai::error::error_body;
use crate::protocol::openai::form::ResponseForm;
use crate::protocol::openai::head::{
    FinishFields, ResponseHead, StreamState, interrupted, unknown_index,
};
use crate::protocol::openai::logprobs::{CompletionLogprobs, LogprobsWriter};
use crate::protocol::openai::usage::UsageMeter;
use crate::protocol::shared::{SseEvent, StreamWriter};
use crate::reply::{ReplyEnded, ReplyEvent, ReplyPart, TokenText};

/// Writes the events of all texts of a completion request.
///
/// With `echo`, the first part of a text is the prompt. The last part has a reason. The last text
/// is followed by the numbers of tokens, if they were requested, and by `[DONE]`. An error ends the
/// stream without `[DONE]`, because clients take that for success.
#[derive(Debug)]
pub struct CompletionStream {
    head: ResponseHead,
    form: ResponseForm,
    texts: CompletionTexts,
    choices: Vec<TextState>,
    meter: UsageMeter,
    state: StreamState,
}

/// The state of a text in a stream.
#[derive(Debug)]
struct TextState {
    /// The tokens whose text has not been sent yet.
    tokens: Vec<TokenText>,
    writer: LogprobsWriter,
    ended: bool,
}

impl CompletionStream {
    /// Returns a stream of these texts.
    pub fn new(head: ResponseHead, form: ResponseForm, texts: CompletionTexts) -> CompletionStream {
        let choices = (0..).take(texts.choices()).map(|index| TextState {
            tokens: vec![],
            writer: texts.writer(index),
            ended: false,
        });
        CompletionStream {
            choices: choices.collect(),
            head,
            form,
            texts,
            meter: UsageMeter::default(),
            state: StreamState::Open,
        }
    }

    fn start(&mut self, index: u32, prompt_tokens: u32, cached_tokens: u32) -> Vec<SseEvent> {
        let share = self.texts.share(index);
        self.meter.started(share, prompt_tokens, cached_tokens);
        match self.texts.echo {
            // The prompt waits for its log-probabilities.
            Echo::Prompt if self.texts.logprobs => vec![],
            Echo::Prompt => self.part(index, self.texts.prompt(index).to_owned()),
            Echo::Generated => vec![],
        }
    }

    fn prompt(&mut self, index: u32, tokens: Vec<TokenText>) -> Vec<SseEvent> {
        self.choices[index as usize].tokens.extend(tokens);
        self.part(index, self.texts.prompt(index).to_owned())
    }

    /// Writes a part of a text, with the log-probabilities of the tokens before it.
    fn part(&mut self, index: u32, text: String) -> Vec<SseEvent> {
        let choice = CompletionChoice {
            text,
            index,
            logprobs: self.take_logprobs(index),
            finish_reason: None,
            stop_reason: None,
        };
        vec![SseEvent::json(&Completion {
            choices: vec![choice],
            ..Completion::empty(&self.head)
        })]
    }

    fn end(&mut self, index: u32, end: &ReplyEnded) -> Vec<SseEvent> {
        self.meter.ended(end);
        let finish = FinishFields::new(&end.reason);
        let choice = CompletionChoice {
            text: String::new(),
            index,
            // Tokens without a text belong to a stop string.
            logprobs: self
                .take_logprobs(index)
                .filter(|logprobs| !logprobs.tokens.is_empty()),
            finish_reason: Some(finish.finish_reason),
            stop_reason: finish.stop_reason,
        };
        self.choices[index as usize].ended = true;
        let is_last = self.choices.iter().all(|choice| choice.ended);

        let mut chunk = Completion {
            choices: vec![choice],
            ..Completion::empty(&self.head)
        };
        if is_last && !self.form.usage_event {
            chunk.timings = Some(self.meter.timings());
        }
        let mut events = vec![SseEvent::json(&chunk)];
        if is_last {
            if self.form.usage_event {
                events.push(SseEvent::json(&Completion {
                    usage: Some(self.meter.usage()),
                    timings: Some(self.meter.timings()),
                    ..Completion::empty(&self.head)
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

    fn take_logprobs(&mut self, index: u32) -> Option<CompletionLogprobs> {
        let choice = &mut self.choices[index as usize];
        let tokens = std::mem::take(&mut choice.tokens);
        self.texts.logprobs.then(|| choice.writer.write(&tokens))
    }
}

impl StreamWriter for CompletionStream {
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
            ReplyPart::Prompt(tokens) => self.prompt(index, tokens),
            ReplyPart::Tokens(tokens) => {
                self.choices[index as usize].tokens.extend(tokens);
                vec![]
            }
            // A text has no marks that tell reasoning from the rest.
            ReplyPart::Text(text) | ReplyPart::Reasoning(text) => self.part(index, text),
            ReplyPart::Call(_) => self.fail(&unexpected_call()),
            ReplyPart::Ended(end) => self.end(index, &end),
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
