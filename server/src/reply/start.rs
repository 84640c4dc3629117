//! The start of replies: a request becomes generations, and their events become events of replies.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use warpwright_model::StopStrings;

use super::event::{ReplyEvent, ReplyPart};
use super::prompt::{self, PreparedPrompt, RenderedChat};
use super::reader::{ReplyReader, ReplyReaderOptions};
use super::request::{CallLimit, ChatPrompt, ReplyPrompt, ReplyRequest};
use super::sampling;
use crate::error::{ErrorKind, RequestError};
use crate::models::ServedModel;
use crate::scheduler::{Generation, GenerationRequest};

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
    // Templates, tokenizers and grammars can take many milliseconds, in which a thread of the
    // runtime must serve other requests.
    let shared = Arc::clone(model);
    let prepared = blocking(move || PreparedReply::new(&shared, request)).await?;
    let prompt_tokens = prepared.prompt.tokens.len() as u32;
    let (sender, events) = mpsc::unbounded_channel();
    let prepared = Arc::new(prepared);
    for index in 0..prepared.request.count {
        let generation = model.scheduler.submit(prepared.generation(index))?;
        tokio::spawn(read(
            Arc::clone(model),
            Arc::clone(&prepared),
            index,
            generation,
            sender.clone(),
        ));
    }

    Ok(Replies {
        prompt_tokens,
        events,
    })
}

/// Returns the tokens of a prompt.
///
/// # Errors
/// Returns an error if the template refuses the conversation, or if a text cannot be tokenized.
pub async fn prompt_tokens(
    model: &Arc<ServedModel>,
    prompt: ReplyPrompt,
) -> Result<Vec<u32>, RequestError> {
    let model = Arc::clone(model);
    blocking(move || Ok(PreparedPrompt::new(&model, prompt)?.tokens)).await
}

/// Returns the text that the chat template renders from a conversation.
///
/// # Errors
/// Returns an error if there is no template, or if it refuses the conversation.
pub async fn render(model: &Arc<ServedModel>, prompt: ChatPrompt) -> Result<String, RequestError> {
    let model = Arc::clone(model);
    blocking(move || Ok(prompt::render(&model, prompt)?.text)).await
}

/// Runs work that takes long on a thread for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RequestError::new(ErrorKind::Internal, error.to_string())))
}

/// A request that is ready to be submitted.
struct PreparedReply {
    request: ReplyRequest,
    prompt: PreparedPrompt,
    sampling: warpwright_engine::Sampling,
    stops: StopStrings,
}

impl PreparedReply {
    fn new(model: &ServedModel, mut request: ReplyRequest) -> Result<PreparedReply, RequestError> {
        let prompt = std::mem::replace(&mut request.prompt, ReplyPrompt::Tokens(vec![]));
        let prompt = PreparedPrompt::new(model, prompt)?;
        request.sampling.seed = request.sampling.seed.or(model.seed);
        request.max_tokens = match (request.max_tokens, model.max_tokens) {
            (Some(wanted), Some(most)) => Some(wanted.min(most)),
            (wanted, most) => wanted.or(most),
        };
        let sampling = sampling::over(&model.defaults, &request.sampling, request.logprobs);
        let stops = StopStrings::new(std::mem::take(&mut request.stop))
            .map_err(|error| RequestError::invalid("stop", error.to_string()))?;
        Ok(PreparedReply {
            request,
            prompt,
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
            grammar: None,
            adapter: self.request.adapter.clone(),
            salt: self.request.salt,
            prompt_logprobs: self.request.prompt_logprobs,
        }
    }
}

/// Reads a generation to its end and sends the events of its reply.
async fn read(
    model: Arc<ServedModel>,
    prepared: Arc<PreparedReply>,
    index: u32,
    mut generation: Generation,
    sender: mpsc::UnboundedSender<ReplyEvent>,
) {
    let PreparedReply {
        request,
        prompt,
        stops,
        ..
    } = &*prepared;
    let chat = prompt.chat.as_ref();
    let shows = |spelling: &str| chat.is_some_and(|chat| chat.shows(spelling));
    let mut reader = ReplyReader::new(ReplyReaderOptions {
        tokenizer: &model.tokenizer,
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
            () = sender.closed() => return,
        };
        let parts = match event {
            Some(event) => reader.event(event),
            None => vec![ReplyPart::Failed(RequestError::new(
                ErrorKind::Internal,
                "the scheduler has stopped",
            ))],
        };
        for part in parts {
            let is_last = matches!(part, ReplyPart::Ended(_) | ReplyPart::Failed(_));
            let is_gone = sender.send(ReplyEvent { index, part }).is_err();
            if is_last || is_gone {
                return;
            }
        }
    }
}
