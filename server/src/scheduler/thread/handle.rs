//! The handle by which other threads use a scheduler.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use warpwright_model::Adapter;

use super::super::adapter::AdapterJob;
use super::super::check::{check_request, check_text, usable_ctx};
use super::super::core::SchedulerCore;
use super::super::embedding::{EmbeddingJob, EmbeddingResult};
use super::super::options::SchedulerOptions;
use super::super::request::{Generation, GenerationError, GenerationRequest, SubmitError};
use super::super::status::SchedulerStatus;
use super::run::run;
use super::shared::{Arrival, SharedState};
use crate::engine::{Engine, EngineError, EngineLimits, NO_ADAPTERS, PrepareAdapter};
use crate::error::{ErrorKind, RequestError};

/// A scheduler, which runs on its own thread. Clones share it.
///
/// When the last clone is dropped, new requests are impossible, the accepted ones end, and the
/// thread stops.
#[derive(Clone)]
pub struct Scheduler {
    owner: Arc<SharedOwner>,
}

/// Closes the scheduler when the last handle is dropped.
struct SharedOwner {
    shared: Arc<SharedState>,
    /// Prepares adapters for the engine, if it has some.
    prepare: Option<PrepareAdapter>,
}

impl Drop for SharedOwner {
    fn drop(&mut self) {
        self.shared.close(None);
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Starts the thread of a scheduler.
    ///
    /// # Panics
    /// Panics if the system cannot start a thread.
    pub fn start(engine: Box<dyn Engine>, options: SchedulerOptions) -> Scheduler {
        let shared = Arc::new(SharedState::new(engine.limits(), options.queue));
        let owner = Arc::new(SharedOwner {
            shared: Arc::clone(&shared),
            prepare: engine.adapter_preparation(),
        });
        let core = SchedulerCore::new(engine, options);
        let builder = thread::Builder::new().name("scheduler".to_owned());
        let started = builder.spawn(move || run(core, &shared));
        started.expect("the system starts a thread");
        Scheduler { owner }
    }

    /// Returns the sizes of the engine.
    pub fn limits(&self) -> EngineLimits {
        self.owner.shared.limits
    }

    /// Returns the maximum number of positions of a sequence: of the context, or of the cache if it
    /// is smaller.
    pub fn usable_ctx(&self) -> u32 {
        usable_ctx(&self.limits())
    }

    /// Checks a request and puts it into the queue. It never blocks.
    ///
    /// # Errors
    /// Returns the reason if the request is refused.
    pub fn submit(&self, request: GenerationRequest) -> Result<Generation, SubmitError> {
        check_request(&request, &self.limits())?;
        let (sender, events) = mpsc::unbounded_channel();
        self.owner.shared.submit(Arrival::Generate {
            request: Box::new(request),
            events: sender,
            arrived: Instant::now(),
        })?;
        Ok(Generation { events })
    }

    /// Computes the embeddings of texts between two steps. Dropping the future cancels it.
    ///
    /// # Errors
    /// The future returns the reason if a text is refused, the engine cannot compute embeddings, or
    /// the device is lost.
    pub fn embed(
        &self,
        texts: Vec<Vec<u32>>,
    ) -> impl Future<Output = Result<Vec<Vec<f32>>, GenerationError>> + Send + use<> {
        let submitted = self.submit_texts(texts);
        async {
            let Some(result) = submitted? else {
                return Ok(vec![]);
            };
            let lost = "the scheduler has stopped".to_owned();
            result.await.unwrap_or(Err(GenerationError::Lost(lost)))
        }
    }

    /// Checks texts and puts them into the queue. Returns `None` if there are none.
    fn submit_texts(
        &self,
        texts: Vec<Vec<u32>>,
    ) -> Result<Option<oneshot::Receiver<EmbeddingResult>>, SubmitError> {
        if texts.is_empty() {
            return Ok(None);
        }
        let limits = self.limits();
        for text in &texts {
            check_text(text, &limits)?;
        }
        let (sender, result) = oneshot::channel();
        let job = EmbeddingJob::new(texts, sender);
        self.owner.shared.submit(Arrival::Embed(job))?;
        Ok(Some(result))
    }

    /// Loads an adapter, and returns its key for [`GenerationRequest::adapter`]. It is prepared on
    /// another thread than the engine's. Running requests only wait while it is copied to the device
    /// between two steps.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Invalid`] if the adapter does not fit the model or the free memory, or
    /// an error about the scheduler.
    pub async fn load_adapter(&self, adapter: Adapter) -> Result<String, RequestError> {
        let Some(prepare) = self.owner.prepare.clone() else {
            return Err(RequestError::new(ErrorKind::Invalid, NO_ADAPTERS));
        };
        let prepared = spawn_blocking(move || prepare(&adapter)).await;
        let prepared =
            prepared.map_err(|error| RequestError::new(ErrorKind::Internal, error.to_string()))?;
        let adapter = Arc::new(prepared.map_err(|error| load_error(&error))?);
        let (sender, result) = oneshot::channel();
        let job = AdapterJob { adapter, sender };
        self.owner.shared.control(Arrival::LoadAdapter(job))?;
        let lost = EngineError::Lost("the scheduler has stopped".to_owned());
        let loaded = result.await.unwrap_or(Err(lost));
        loaded.map_err(|error| load_error(&error))
    }

    /// Unloads an adapter as soon as no request that was submitted so far uses it.
    pub fn unload_adapter(&self, key: &str) {
        let unloading = Arrival::UnloadAdapter(key.to_owned());
        // A scheduler that has stopped has no adapters any more.
        self.owner.shared.control(unloading).ok();
    }

    /// Returns the state of the scheduler. While the same sequences run, it is up to 20 ms old.
    pub fn status(&self) -> SchedulerStatus {
        self.owner.shared.status()
    }

    /// Refuses new requests, lets accepted ones end for at most `grace`, ends the rest with
    /// [`EndReason::Shutdown`](crate::scheduler::EndReason::Shutdown), and stops the thread.
    ///
    /// It begins when this function is called. The future returns when the thread has stopped.
    pub fn shut_down(&self, grace: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.owner.shared.close(Instant::now().checked_add(grace));
        let mut stopped = self.owner.shared.watch_stopped();
        // The shared state outlives the wait, because it owns the sender.
        let owner = Arc::clone(&self.owner);
        async move {
            let ended = stopped.wait_for(|stopped| *stopped).await;
            ended.expect("the sender is alive");
            drop(owner);
        }
    }
}

/// Translates the error of an adapter that is not loaded.
fn load_error(error: &EngineError) -> RequestError {
    let kind = match error {
        EngineError::Unsupported(_) => ErrorKind::Invalid,
        _ => ErrorKind::Internal,
    };
    RequestError::new(kind, error.to_string())
}
