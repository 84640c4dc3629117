//! The start of replies: a request becomes generations, and their events become events of replies.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use warpwright_model::{Grammar, StopStrings};

use super::event::{ReplyEvent, ReplyPart};
use super::prompt::{self, PreparedPrompt, PromptLimit, RenderedChat};
use super::reader::{ReplyReader, ReplyReaderOptions};
use super::request::{CallLimit, ChatPrompt, ReplyPrompt, ReplyRequest};
use super::work::{blocking, tokenizing};
use super::{grammar, sampling};
use crate::error::{ErrorKind, RequestError};
use crate::models::{AdapterLease, ServedModel};
use crate::scheduler::{Generation, GenerationEvent, GenerationRequest, SubmitError};

/// The replies to a request. Dropping them cancels all generations.
#[derive(Debug)]
pub struct Replies {
    /// The number of tokens of the prompt.
    pub prompt_tokens: u32,
    /// The events of all replies. The channel is not bounded for the same reason as
    /// [`Generation::events`].
    pub events: mpsc::UnboundedReceiver<ReplyEvent>,
}

/// Checks a request, makes its prompt, and starts its replies.
///
/// # Errors
/// Returns an error with the name of the field if the request is wrong, or the reason why the
/// scheduler refuses it.
pub async fn start(
    model: &Arc<ServedModel>,
    request: ReplyRequest,
) -> Result<Replies, RequestError> {
    if request.count == 0 {
        return Err(RequestError::invalid("n", "n is 0; expected at least 1"));
    }

    // Templates, tokenizers and grammars can take many milliseconds, in which a thread of the
    // runtime must serve other requests.
    let shared = Arc::clone(model);
    let bytes = request.prompt.text_bytes();
    let prepared = tokenizing(bytes, move || PreparedReply::new(&shared, request)).await?;
    let prepared = Arc::new(prepared);
    let prompt_tokens = prepared.prompt.tokens.len() as u32;
    let generation = model.scheduler.submit(prepared.generation(0))?;
    let (sender, events) = mpsc::unbounded_channel();
    let task = ReplyTask {
        model: Arc::clone(model),
        prepared,
        index: 0,
        sender,
    };
    let (begun, has_begun) = oneshot::channel();
    if task.prepared.request.count > 1 {
        tokio::spawn(start_others(task.clone(), has_begun));
    }
    tokio::spawn(task.read(generation, Some(begun)));
    Ok(Replies {
        prompt_tokens,
        events,
    })
}

/// Starts all replies but the first, once the first one has begun: the prompt is then in the cache,
/// and is processed only once.
async fn start_others(first: ReplyTask, has_begun: oneshot::Receiver<()>) {
    tokio::select! {
        // The sender is dropped without a message if the first reply ends before its first token.
        _ = has_begun => {}
        () = first.sender.closed() => return,
    }
    for index in 1..first.prepared.request.count {
        let task = ReplyTask {
            index,
            ..first.clone()
        };
        match task.submit().await {
            Some(Ok(generation)) => drop(tokio::spawn(task.read(generation, None))),
            Some(Err(error)) => task.fail(error),
            None => return,
        }
    }
}

/// Returns the tokens of a prompt.
///
/// # Errors
/// Returns an error if the template refuses the conversation, if a text is much longer than the
/// limit, or if it cannot be tokenized.
pub(crate) async fn prompt_tokens(
    model: &Arc<ServedModel>,
    prompt: ReplyPrompt,
    limit: PromptLimit,
) -> Result<Vec<u32>, RequestError> {
    let model = Arc::clone(model);
    tokenizing(prompt.text_bytes(), move || {
        Ok(PreparedPrompt::new(&model, prompt, limit)?.tokens)
    })
    .await
}

/// Returns the text that the chat template renders from a conversation.
///
/// # Errors
/// Returns an error if there is no template, or if it refuses the conversation.
pub async fn render(model: &Arc<ServedModel>, prompt: ChatPrompt) -> Result<String, RequestError> {
    let model = Arc::clone(model);
    blocking(move || Ok(prompt::render(&model, prompt)?.text)).await
}

/// A request that is ready to be submitted.
struct PreparedReply {
    request: ReplyRequest,
    prompt: PreparedPrompt,
    sampling: warpwright_engine::Sampling,
    stops: StopStrings,
    grammar: Option<Grammar>,
    /// The adapter, which stays loaded while the reply is generated.
    adapter: Option<Arc<AdapterLease>>,
}

impl PreparedReply {
    fn new(model: &ServedModel, mut request: ReplyRequest) -> Result<PreparedReply, RequestError> {
        let prompt = std::mem::replace(&mut request.prompt, ReplyPrompt::Tokens(vec![]));
        let prompt = PreparedPrompt::new(model, prompt, PromptLimit::Context)?;
        request.sampling.seed = request.sampling.seed.or(model.seed);
        request.max_tokens = match (request.max_tokens, model.max_tokens) {
            (Some(wanted), Some(most)) => Some(wanted.min(most)),
            (wanted, most) => wanted.or(most),
        };
        let sampling = sampling::over(&model.defaults, &request.sampling, request.logprobs);
        let stops = StopStrings::new(std::mem::take(&mut request.stop))
            .map_err(|error| RequestError::invalid("stop", error.to_string()))?;
        Ok(PreparedReply {
            grammar: grammar::compile(model, prompt.chat.as_ref(), request.format.as_ref())?,
            adapter: model.adapter.clone(),
            prompt,
            request,
            sampling,
            stops,
        })
    }

    /// Returns the request for the reply with this index.
    fn generation(&self, index: u32) -> GenerationRequest {
        let seed = self.sampling.seed.wrapping_add(index.into());
        GenerationRequest {
            request_id: self.request.request_id.clone(),
            prompt: self.prompt.tokens.clone(),
            max_tokens: self.request.max_tokens,
            sampling: warpwright_engine::Sampling {
                seed,
                ..self.sampling.clone()
            },
            at_end: self.request.at_end,
            grammar: self.grammar.as_ref().map(Grammar::matcher),
            adapter: self.adapter.as_ref().map(|lease| lease.key().to_owned()),
            salt: self.request.salt,
            prompt_logprobs: self.request.prompt_logprobs,
        }
    }
}

/// One of the replies to a request.
#[derive(Clone)]
struct ReplyTask {
    model: Arc<ServedModel>,
    prepared: Arc<PreparedReply>,
    index: u32,
    sender: mpsc::UnboundedSender<ReplyEvent>,
}

/// The longest time to wait before a full queue is tried again.
const RETRY: Duration = Duration::from_millis(250);

impl ReplyTask {
    /// Submits the reply, and waits while the queue is full, because a request of which one reply
    /// runs was accepted as a whole. Returns `None` if the client has gone.
    async fn submit(&self) -> Option<Result<Generation, RequestError>> {
        loop {
            let generation = self.prepared.generation(self.index);
            let wait = match self.model.scheduler.submit(generation) {
                Ok(generation) => return Some(Ok(generation)),
                Err(SubmitError::QueueFull { retry_after, .. }) => retry_after.min(RETRY),
                Err(error) => return Some(Err(error.into())),
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.sender.closed() => return None,
            }
        }
    }

    fn fail(&self, error: RequestError) {
        // The client may have gone, and then does not need the error.
        drop(self.sender.send(ReplyEvent {
            index: self.index,
            part: ReplyPart::Failed(error),
        }));
    }

    /// Reads a generation to its end and sends the events of its reply. `begun` is notified of the
    /// first tokens.
    async fn read(self, mut generation: Generation, mut begun: Option<oneshot::Sender<()>>) {
        let PreparedReply {
            request,
            prompt,
            stops,
            ..
        } = &*self.prepared;
        let chat = prompt.chat.as_ref();
        let shows = |spelling: &str| chat.is_some_and(|chat| chat.shows(spelling));
        let mut reader = ReplyReader::new(ReplyReaderOptions {
            tokenizer: &self.model.tokenizer,
            prompt: &prompt.tokens,
            stops,
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            calls: chat.map(RenderedChat::reader),
            call_limit: chat.map_or(CallLimit::Many, |chat| chat.call_limit),
            shows: &shows,
        });
        loop {
            let event = tokio::select! {
                event = generation.events.recv() => event,
                () = self.sender.closed() => return,
            };
            let Some(event) = event else {
                return self.fail(RequestError::new(
                    ErrorKind::Internal,
                    "the scheduler has stopped",
                ));
            };

            if matches!(event, GenerationEvent::Tokens(_))
                && let Some(begun) = begun.take()
            {
                // The request may have one reply, and then no one waits.
                begun.send(()).ok();
            }
            for part in reader.event(event) {
                let is_last = matches!(part, ReplyPart::Ended(_) | ReplyPart::Failed(_));
                let event = ReplyEvent {
                    index: self.index,
                    part,
                };
                if self.sender.send(event).is_err() || is_last {
                    return;
                }
            }
        }
    }
}
