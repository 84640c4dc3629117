//! The state that the handles of a scheduler share with its thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::super::adapter::AdapterJob;
use super::super::embedding::EmbeddingJob;
use super::super::request::{GenerationEvent, GenerationRequest, SubmitError};
use super::super::status::SchedulerStatus;
use crate::engine::EngineLimits;

/// The state that handles and thread share.
pub(super) struct SharedState {
    pub(super) limits: EngineLimits,
    /// The maximum number of requests that wait or run.
    most: usize,
    inbox: Mutex<Inbox>,
    /// Notified when the inbox changes.
    changed: Condvar,
    status: Mutex<SchedulerStatus>,
    /// True when the thread has ended.
    stopped: watch::Sender<bool>,
}

/// Requests on their way to the thread.
struct Inbox {
    stage: SchedulerStage,
    arrivals: Vec<Arrival>,
    /// The number of requests that the thread has.
    load: usize,
    /// An estimate of the time until a request ends.
    retry_after: Duration,
}

/// The stage in the life of a scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SchedulerStage {
    /// Requests are accepted.
    Open,
    /// Requests are refused, and those that were accepted end until the deadline.
    Closing {
        /// The deadline, or `None` if there is none.
        deadline: Option<Instant>,
    },
    /// The device is lost.
    Lost(String),
}

/// Something for the thread.
pub(super) enum Arrival {
    /// A request that was checked.
    Generate {
        request: Box<GenerationRequest>,
        events: mpsc::UnboundedSender<GenerationEvent>,
        arrived: Instant,
    },
    /// Texts whose embeddings are wanted.
    Embed(EmbeddingJob),
    /// An adapter to load.
    LoadAdapter(AdapterJob),
    /// The key of an adapter to unload when no request uses it any more.
    UnloadAdapter(String),
}

/// Whether the thread waits for arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitMode {
    /// It has other work.
    Poll,
    /// It has nothing else to do.
    Block,
}

impl SharedState {
    pub(super) fn new(limits: EngineLimits, queue: usize) -> SharedState {
        SharedState {
            limits,
            most: queue.saturating_add(limits.sequences as usize),
            inbox: Mutex::new(Inbox {
                stage: SchedulerStage::Open,
                arrivals: vec![],
                load: 0,
                retry_after: Duration::from_secs(1),
            }),
            changed: Condvar::new(),
            status: Mutex::new(SchedulerStatus::default()),
            stopped: watch::Sender::new(false),
        }
    }

    /// Hands something to the thread.
    pub(super) fn submit(&self, arrival: Arrival) -> Result<(), SubmitError> {
        let mut inbox = self.inbox();
        match &inbox.stage {
            SchedulerStage::Open => {}
            SchedulerStage::Closing { .. } => return Err(SubmitError::ShuttingDown),
            SchedulerStage::Lost(reason) => return Err(SubmitError::Lost(reason.clone())),
        }

        let load = inbox.load + inbox.arrivals.len();
        if load >= self.most {
            return Err(SubmitError::QueueFull {
                waiting: load.saturating_sub(self.limits.sequences as usize),
                retry_after: inbox.retry_after,
            });
        }
        inbox.arrivals.push(arrival);
        self.changed.notify_one();
        Ok(())
    }

    /// Hands something to the thread that takes no place in the queue.
    pub(super) fn control(&self, arrival: Arrival) -> Result<(), SubmitError> {
        let mut inbox = self.inbox();
        match &inbox.stage {
            SchedulerStage::Open => {}
            SchedulerStage::Closing { .. } => return Err(SubmitError::ShuttingDown),
            SchedulerStage::Lost(reason) => return Err(SubmitError::Lost(reason.clone())),
        }
        inbox.arrivals.push(arrival);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes the arrivals, for which it waits in [`WaitMode::Block`], and returns them with the
    /// stage.
    pub(super) fn take(&self, mode: WaitMode) -> (Vec<Arrival>, SchedulerStage) {
        let mut inbox = self.inbox();
        while mode == WaitMode::Block
            && inbox.arrivals.is_empty()
            && inbox.stage == SchedulerStage::Open
        {
            let waited = self.changed.wait(inbox);
            inbox = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let arrivals = std::mem::take(&mut inbox.arrivals);
        inbox.load += arrivals.len();
        (arrivals, inbox.stage.clone())
    }

    /// Publishes the state of the thread.
    pub(super) fn publish(&self, status: SchedulerStatus, load: usize, retry_after: Duration) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
        let mut inbox = self.inbox();
        inbox.load = load;
        inbox.retry_after = retry_after;
    }

    /// Refuses new requests. The earliest deadline counts.
    pub(super) fn close(&self, deadline: Option<Instant>) {
        let mut inbox = self.inbox();
        let earlier = match &inbox.stage {
            SchedulerStage::Open => None,
            SchedulerStage::Closing { deadline } => *deadline,
            SchedulerStage::Lost(_) => return,
        };
        let deadline = earlier.into_iter().chain(deadline).min();
        inbox.stage = SchedulerStage::Closing { deadline };
        self.changed.notify_one();
    }

    /// Records that the device is lost, and returns the arrivals that are not handled any more.
    pub(super) fn lose(&self, reason: &str) -> Vec<Arrival> {
        let mut inbox = self.inbox();
        inbox.stage = SchedulerStage::Lost(reason.to_owned());
        std::mem::take(&mut inbox.arrivals)
    }

    /// Returns the latest published state.
    pub(super) fn status(&self) -> SchedulerStatus {
        let arrivals = self.inbox().arrivals.len();
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = status.clone();
        status.waiting += arrivals;
        status
    }

    /// Records that the thread has ended.
    pub(super) fn set_stopped(&self) {
        self.stopped.send_replace(true);
    }

    /// Returns a channel that becomes true when the thread has ended.
    pub(super) fn watch_stopped(&self) -> watch::Receiver<bool> {
        self.stopped.subscribe()
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
