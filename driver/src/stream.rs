//! A stream: a queue of the device. Work in it runs in order, concurrently with the work of other streams.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use driver_sys::{CUevent, CUevent_flags, CUresult, CUstream, CUstream_flags, CUstreamCaptureStatus};
use ptx_gen::Elem;

use crate::context::{Left, Owner, Release, lock};
use crate::memory::{as_bytes, as_bytes_mut};
use crate::queue::{Queue, Work};
use crate::{Context, Error, Event, View};

/// A stream of its own order: it neither waits for the legacy stream nor makes it wait. Clones share it.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

pub(crate) struct Inner {
    context: Context,
    raw: CUstream,
    flight: Mutex<Flight>,
}

/// What the queued work needs. A batch is sealed with an event, and dropped once the event has passed.
#[derive(Default)]
struct Flight {
    open: Vec<Owner>,
    sealed: VecDeque<Left>,
}

/// Owners in a batch: some hundred launches, so that the event costs nothing against them.
const BATCH: usize = 1024;

impl Stream {
    /// A new stream.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let _current = context.enter()?;
        let mut raw = CUstream::NULL;
        // SAFETY: `raw` is ours to write.
        unsafe { cu!(context.driver(), cuStreamCreate(&mut raw, CUstream_flags::NON_BLOCKING)) }?;
        let inner = Inner { context: context.clone(), raw, flight: Mutex::default() };
        let inner = Arc::new(inner);
        context.add_stream(&inner);
        Ok(Self(inner))
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Waits until everything queued so far is done.
    ///
    /// # Errors
    /// A fault of the device, or what else the driver reports of earlier work.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.0.synchronize()
    }

    /// Whether everything queued so far is done.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn is_idle(&self) -> Result<bool, Error> {
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        // SAFETY: the stream is alive; a query changes nothing.
        match unsafe { (driver.api().cuStreamQuery)(self.0.raw) } {
            CUresult::NOT_READY => Ok(false),
            code => driver.check("cuStreamQuery", code).map(|()| true).map_err(Error::from),
        }
    }

    /// Work queued after this runs after what the event marks.
    ///
    /// # Errors
    /// An event of another context, or what the driver refuses.
    pub fn wait(&self, event: &Event) -> Result<(), Error> {
        event.expect_in(self.context(), "a stream")?;
        let _current = self.context().enter()?;
        // SAFETY: stream and event are alive and of one context.
        unsafe { cu!(self.context().driver(), cuStreamWaitEvent(self.0.raw, event.raw(), 0)) }?;
        Ok(())
    }

    /// Writes elements into device memory in the order of this stream, and waits.
    ///
    /// # Errors
    /// A length that is not the view's, or what the driver reports.
    pub fn write<T: Elem>(&self, to: &View<T>, from: &[T]) -> Result<(), Error> {
        to.expect_len("write", from.len())?;
        to.region().expect_in(self.context(), "a stream")?;
        // SAFETY: the view's memory lives as long as the view, and its length was checked.
        self.0.settle(|| unsafe { self.context().upload_on(self.0.raw, to.address(), as_bytes(from)) })
    }

    /// Reads device memory in the order of this stream, and waits.
    ///
    /// # Errors
    /// What the driver reports, faults of earlier work included.
    pub fn read<T: Elem>(&self, from: &View<T>) -> Result<Vec<T>, Error> {
        from.region().expect_in(self.context(), "a stream")?;
        let mut to = vec![T::default(); from.len()];
        let bytes = as_bytes_mut(&mut to);
        // SAFETY: the view's memory lives as long as the view, and `to` has its length.
        self.0.settle(|| unsafe { self.context().download_on(self.0.raw, bytes, from.address()) })?;
        Ok(to)
    }

    /// The raw handle, for work that is not ours. What it needs must live until this stream is idle.
    pub fn raw(&self) -> CUstream {
        self.0.raw
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.0.is_capturing()
    }

    /// Keeps the owners until everything queued so far is done.
    pub(crate) fn keep(&self, owners: impl IntoIterator<Item = Owner>) {
        let done = self.0.keep(owners);
        // Outside the lock: dropping may free memory, and that may wait.
        drop(done);
    }
}

impl Queue for Stream {
    fn context(&self) -> &Context {
        Stream::context(self)
    }

    fn push(&mut self, work: Work) -> Result<(), Error> {
        (&*self).push(work)
    }
}

impl Queue for &Stream {
    fn context(&self) -> &Context {
        Stream::context(self)
    }

    fn push(&mut self, work: Work) -> Result<(), Error> {
        work.expect_in(Stream::context(self))?;
        if self.0.is_capturing() {
            // The graph that becomes of it would not own what the work needs.
            return Err(Error::Capturing { work: work.name().to_string() });
        }
        work.enqueue(self)?;
        self.keep(work.owners());
        Ok(())
    }
}

impl Inner {
    /// Whether a capture of this context has the stream, also one that reached it through an event.
    pub(crate) fn is_capturing(&self) -> bool {
        if !self.context.has_captures() {
            return false;
        }
        let Ok(_current) = self.context.enter() else { return false };
        let mut status = CUstreamCaptureStatus::NONE;
        // SAFETY: `status` is ours to write; the stream is alive.
        let code = unsafe { (self.context.driver().api().cuStreamIsCapturing)(self.raw, &mut status) };
        code == CUresult::SUCCESS && status != CUstreamCaptureStatus::NONE
    }

    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.settle(|| {
            let _current = self.context.enter()?;
            // SAFETY: the stream is alive.
            unsafe { cu!(self.context.driver(), cuStreamSynchronize(self.raw)) }?;
            Ok(())
        })
    }

    /// Runs a call that waits for the stream, and drops the owners of what was queued before it.
    fn settle(&self, wait: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let queued = std::mem::take(&mut *lock(&self.flight));
        let result = wait();
        // After a fault nothing runs any more. After another refusal the work may still run.
        let over = match &result {
            Err(Error::Driver(error)) => error.code.is_device_fault(),
            other => other.is_ok(),
        };
        if over {
            queued.sealed.iter().for_each(|l| self.context.release(Release::Event(l.event)));
        } else {
            let mut flight = lock(&self.flight);
            flight.open.extend(queued.open);
            flight.sealed.extend(queued.sealed);
        }
        result
    }

    /// Whether queued work is still to do. A stream that captures may not be asked.
    fn is_busy(&self) -> bool {
        if self.is_capturing() {
            return false;
        }
        let Ok(_current) = self.context.enter() else { return false };
        // SAFETY: the stream is alive; a query changes nothing.
        unsafe { (self.context.driver().api().cuStreamQuery)(self.raw) == CUresult::NOT_READY }
    }

    /// Adds owners, and returns those of batches that are done.
    fn keep(&self, owners: impl IntoIterator<Item = Owner>) -> Vec<Left> {
        let mut flight = lock(&self.flight);
        flight.open.extend(owners);
        if flight.open.len() < BATCH || self.is_capturing() {
            return Vec::new();
        }
        self.seal(&mut flight);
        let mut done = Vec::new();
        while flight.sealed.front().is_some_and(|l| !self.context.is_pending(l.event)) {
            done.extend(flight.sealed.pop_front());
        }
        done.iter().for_each(|l| self.context.release(Release::Event(l.event)));
        done
    }

    /// Marks the place after which the open batch is not needed. Without an event it stays open.
    fn seal(&self, flight: &mut Flight) {
        match self.mark() {
            Ok(event) => {
                let owners = std::mem::take(&mut flight.open);
                flight.sealed.push_back(Left { event, owners });
            }
            Err(error) => tracing::warn!(%error, "a batch of owners stays until the stream is idle"),
        }
    }

    /// An event recorded here and now.
    fn mark(&self) -> Result<CUevent, Error> {
        let (_current, driver) = (self.context.enter()?, self.context.driver());
        let mut event = CUevent::NULL;
        // SAFETY: `event` is ours to write; the stream is alive.
        unsafe {
            cu!(driver, cuEventCreate(&mut event, CUevent_flags::DISABLE_TIMING))?;
            cu!(driver, cuEventRecord(event, self.raw))?;
        }
        Ok(event)
    }
}

impl Drop for Inner {
    /// Waits for nothing: what queued work still needs is left to the context.
    fn drop(&mut self) {
        let flight = self.flight.get_mut().unwrap_or_else(|e| e.into_inner());
        let mut flight = std::mem::take(flight);
        if !flight.open.is_empty() && self.is_busy() {
            self.seal(&mut flight);
        }
        flight.sealed.into_iter().for_each(|left| self.context.keep_until_done(left));
        self.context.collect();
        self.context.release(Release::Stream(self.raw));
    }
}
