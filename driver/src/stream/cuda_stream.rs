//! Streams: queues of the device.

use std::sync::{Arc, MutexGuard};

use driver_sys::{CUgraph, CUgraphNode, CUresult, CUstream, CUstream_flags, CUstreamCaptureStatus};
use ptx_gen::Access;

use crate::device::Context;
use crate::device::event::RecordedPoint;
use crate::error::{DriverError, Error};
use crate::lifetime::stream_order::VectorClock;
use crate::lifetime::stream_progress::{
    CapturedStreams, StreamOrigin, StreamProgress, StreamState,
};
use crate::lifetime::work_wait::wait_for_work;
use crate::memory::element::{as_bytes, as_bytes_mut, zeroed};
use crate::memory::region::refuse_graph_memory;
use crate::memory::{Element, Region, View};
use crate::ordering::Event;

/// A queue of the device. Its work runs in order, concurrently with the work of other streams.
/// Clones refer to the same stream.
///
/// The stream is created as non-blocking: it neither waits for the legacy default stream nor makes
/// that stream wait.
///
/// # Lifetime of queued work
///
/// Objects that queued work uses stay alive until the work is complete, even if you drop them
/// earlier.
///
/// # Order between streams
///
/// Two operations of different streams conflict if they touch the same bytes and at least one of
/// them writes. You must order them: let the later stream [`wait`](Self::wait) for an [`Event`] of
/// the earlier one, or wait on the host between the two. Otherwise queueing the later operation
/// returns [`Error::UnorderedStreams`].
///
/// Dropping a stream does not order its work, and neither does its completion on the device. The
/// work is ordered before other work once the host has waited for it, at the latest with
/// [`Context::synchronize`].
///
/// The second stream of a context begins after the work that was queued in the first one by then,
/// because accesses are recorded only when there are several streams.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let first = Stream::new(&context)?;
/// let second = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// first.fill(&x, 1.0)?;
/// let filled = Event::untimed(&context)?;
/// filled.record(&first)?;
/// second.wait(&filled)?; // without this the next line is an error
/// second.fill(&x, 2.0)?;
/// assert_eq!(second.read(&x)?, [2.0; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    // Dropped before the context, so that the collection sees that no handle shares the stream.
    progress: Arc<StreamProgress>,
    context: Collected,
}

/// A share of a context that destroys idle streams when it is dropped. It does not wait.
struct Collected(Context);

/// The right to queue one operation in a stream. It holds the stream's lock.
pub(crate) struct Submission<'s> {
    stream: &'s Stream,
    state: MutexGuard<'s, StreamState>,
}

impl Stream {
    /// Creates a stream.
    ///
    /// # Errors
    /// Returns an error if the driver cannot create the stream.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let driver = context.driver();
        Self::add(context, StreamOrigin::Here, || {
            let mut raw = CUstream::NULL;
            // SAFETY: `raw` is a local variable that the driver may write.
            unsafe {
                cu!(
                    driver,
                    cuStreamCreate(&mut raw, CUstream_flags::NON_BLOCKING)
                )
            }?;
            Ok(raw)
        })
    }

    /// Wraps a stream created elsewhere, for example by another crate in the same process. Dropping
    /// the `Stream` does not destroy the handle.
    ///
    /// # Errors
    /// Returns an error if the context cannot be made current, or if the stream cannot wait for
    /// earlier work of the context.
    ///
    /// # Safety
    /// - `raw` must be a stream of the context. It must stay one until this `Stream`, its clones
    ///   and the work queued through them are gone.
    /// - Other code that queues work in the stream must order that work itself.
    pub unsafe fn from_raw(context: &Context, raw: CUstream) -> Result<Self, Error> {
        Self::add(context, StreamOrigin::Elsewhere, || Ok(raw))
    }

    pub(crate) fn add(
        context: &Context,
        origin: StreamOrigin,
        make: impl FnOnce() -> Result<CUstream, DriverError>,
    ) -> Result<Self, Error> {
        let progress = context.add_stream(origin, make)?;
        Ok(Self(Arc::new(Inner {
            progress,
            context: Collected(context.clone()),
        })))
    }

    /// Returns this stream with a label, which error messages show.
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        self.context().order().rename(self.0.progress.slot, label);
        self
    }

    /// Returns `stream` followed by the label or by the number of the stream.
    pub fn name(&self) -> String {
        self.context().order().name(self.0.progress.slot)
    }

    /// Returns the context of the stream.
    pub fn context(&self) -> &Context {
        &self.0.context.0
    }

    /// Waits until everything queued so far is complete.
    ///
    /// # Errors
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if the device has faulted, or if the driver reports an error of earlier
    ///   work.
    pub fn synchronize(&self) -> Result<(), Error> {
        // First, so that no capture begins between the check in `begin` and the wait. The guard of
        // `begin` is dropped at the end of the statement, so that other threads can queue work
        // during the wait. The point was taken before, so such work does not count as waited for.
        let waiting = self.0.progress.waiting();
        let point = self.begin("waiting for the stream")?.point();
        let current = self.context().enter()?;
        let driver = self.context().driver();

        // SAFETY: the stream is alive, because `self` shares it.
        let waited = unsafe { cu!(driver, cuStreamSynchronize(self.raw())) };
        self.context().waited_by_holder(
            &self.0.progress,
            point.queued,
            clock_of(&point.clock),
            waited,
        )?;
        drop((current, waiting));
        self.context().collect();
        Ok(())
    }

    /// Returns true if everything queued so far is complete.
    ///
    /// # Errors
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if the device has faulted, or if the driver reports an error of earlier
    ///   work.
    pub fn is_idle(&self) -> Result<bool, Error> {
        let _waiting = self.0.progress.waiting();
        let point = self.begin("asking for the stream")?.point();
        let _current = self.context().enter()?;
        let driver = self.context().driver();

        // SAFETY: the stream is alive, because `self` shares it. A query changes nothing.
        match unsafe { (driver.api().cuStreamQuery)(self.raw()) } {
            CUresult::NOT_READY => Ok(false),
            code => {
                let result = driver.check("cuStreamQuery", code);
                self.context().waited_by_holder(
                    &self.0.progress,
                    point.queued,
                    clock_of(&point.clock),
                    result,
                )?;
                Ok(true)
            }
        }
    }

    /// Makes work queued from now on wait for an event.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the event belongs to another context.
    /// - [`Error::CapturedEvent`] if a capture recorded the event. Such a wait would draw the
    ///   stream into the capture, which [`Capture::fork`](crate::graph::Capture::fork) does
    ///   explicitly.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if the driver cannot queue the wait.
    pub fn wait(&self, event: &Event) -> Result<(), Error> {
        event.expect_in(self.context(), "a stream")?;

        // The event stays locked until the clocks are joined. Otherwise it could be recorded again
        // between the driver's wait and `join`, and the stream would take over the wrong clock.
        let submission = self.begin("waiting for an event")?;
        let recorded = event.recorded();
        if let RecordedPoint::CapturedStreams = recorded.place() {
            return Err(Error::CapturedEvent {
                what: "a stream's wait for it",
            });
        }

        submission.enqueue(|driver| {
            // SAFETY: the references share the stream and the event, which are of one context.
            unsafe { cu!(driver, cuStreamWaitEvent(self.raw(), event.raw(), 0)) }
        })?;
        if let RecordedPoint::Recorded(.., clock) = recorded.place() {
            self.context().order().join(self.0.progress.slot, clock);
        }

        Ok(())
    }

    /// Declares that all work queued in `other` so far runs before work queued in this stream from
    /// now on.
    ///
    /// Use it if the order comes from something that this crate does not see, for example a wait on
    /// memory, an event of another library, or a kernel that waits. It has no effect if the streams
    /// belong to different contexts, because those share no checked memory.
    ///
    /// # Safety
    /// The caller must ensure that all work queued on `other` so far completes before any work
    /// queued on this stream later.
    pub unsafe fn assume_after(&self, other: &Self) {
        if !self.context().same(other.context()) {
            return;
        }
        let slot = other.0.progress.slot;
        let queued = other.0.progress.queued();
        self.context().order().join(
            self.0.progress.slot,
            &self.context().order().clock(slot, queued),
        );
    }

    /// Copies a slice into device memory in the order of this stream and waits.
    ///
    /// # Errors
    /// - [`Error::Transfer`] if the lengths differ.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::WrongContext`] if the view belongs to another context.
    /// - [`Error::UnorderedStreams`] if work of another stream uses the memory without an order.
    /// - [`Error::Driver`] if the copy or earlier work fails.
    pub fn write<T: Element>(&self, to: &View<T>, from: &[T]) -> Result<(), Error> {
        to.expect_len("write", from.len())?;
        to.region().expect_in(self.context(), "a stream")?;
        let from = as_bytes(from);
        self.transfer("write", to.region(), Access::Write, |driver| {
            // SAFETY: `to` keeps its memory alive, the lengths are equal, and `transfer` returns
            // only after the copy, so `from` outlives it.
            unsafe {
                cu!(
                    driver,
                    cuMemcpyHtoDAsync_v2(
                        to.address(),
                        from.as_ptr().cast(),
                        from.len(),
                        self.raw()
                    )
                )
            }
        })
    }

    /// Copies device memory into a new vector in the order of this stream and waits.
    ///
    /// # Errors
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::WrongContext`] if the view belongs to another context.
    /// - [`Error::UnorderedStreams`] if work of another stream writes the memory without an order.
    /// - [`Error::Driver`] if the copy fails or earlier work has faulted.
    pub fn read<T: Element>(&self, from: &View<T>) -> Result<Vec<T>, Error> {
        let mut to = zeroed::<T>(from.len());
        self.read_into(from, &mut to)?;
        Ok(to)
    }

    /// Copies device memory into a slice in the order of this stream and waits.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the lengths differ, and the errors of [`read`](Self::read).
    pub fn read_into<T: Element>(&self, from: &View<T>, to: &mut [T]) -> Result<(), Error> {
        from.expect_len("read", to.len())?;
        from.region().expect_in(self.context(), "a stream")?;
        let to = as_bytes_mut(to);
        self.transfer("read", from.region(), Access::Read, |driver| {
            // SAFETY: `from` keeps its memory alive, the lengths are equal, and `transfer` returns
            // only after the copy, so `to` outlives it.
            unsafe {
                cu!(
                    driver,
                    cuMemcpyDtoHAsync_v2(
                        to.as_mut_ptr().cast(),
                        from.address(),
                        to.len(),
                        self.raw()
                    )
                )
            }
        })
    }

    /// Queues a copy and waits for it.
    ///
    /// It is for copies that use memory which this context's streams do not keep alive, such as a
    /// slice of the caller. This function therefore returns only after the copy, even if the driver
    /// cannot wait.
    pub(crate) fn transfer(
        &self,
        what: &str,
        region: &Region,
        access: Access,
        copy: impl FnOnce(&crate::device::Driver) -> Result<(), DriverError>,
    ) -> Result<(), Error> {
        if region.bytes() == 0 {
            return self.begin(what).map(drop);
        }

        // Everything that can fail comes before the copy. Between the copy and the wait nothing may
        // return early, because the copy uses memory of the caller.
        let _waiting = self.0.progress.waiting();
        let _current = self.context().enter()?;
        let submission = self.begin(what)?;
        submission.admit(std::iter::once((region, access)))?;
        let mut clock = VectorClock::new();
        let queued = submission.give(copy, &mut clock)?;

        // SAFETY: the stream is alive, because `self` shares it. The guard `_waiting` keeps it from
        // beginning a capture.
        let waited = unsafe { wait_for_work(self.context().driver(), self.raw()) };
        self.context()
            .waited_by_holder(&self.0.progress, queued, &clock, waited)
            .map_err(Error::from)
    }

    /// Returns the raw handle, for work that this crate does not queue. Objects that such work uses
    /// must live until the stream is idle.
    pub fn raw(&self) -> CUstream {
        self.0.progress.raw
    }

    pub(crate) fn progress(&self) -> &Arc<StreamProgress> {
        &self.0.progress
    }

    /// Locks the stream for one operation.
    ///
    /// A stream that captures is refused, because the operation would not run, and the resulting
    /// graph would not own the objects that the operation uses.
    #[inline]
    pub(crate) fn begin(&self, what: &str) -> Result<Submission<'_>, Error> {
        let state = self.0.progress.lock();
        if self.context().captures(&self.0.progress, &state) {
            return Err(capturing(what));
        }
        Ok(Submission {
            stream: self,
            state,
        })
    }

    /// Records the accesses of operation `count` and checks them as [`Submission::admit`] does.
    #[inline]
    pub(crate) fn admit_as<'a>(
        &self,
        count: u64,
        uses: impl Iterator<Item = (&'a Region, Access)> + Clone,
    ) -> Result<(), Error> {
        let context = self.context();
        if !context.order().several() {
            return Ok(());
        }
        uses.clone()
            .try_for_each(|(region, _)| region.expect_in(context, "a stream"))?;
        // SAFETY: `expect_in` has checked that the regions are of the context.
        unsafe { context.order().admit(self.0.progress.slot, count, uses) }
    }

    pub(crate) fn record(&self, event: &Event) -> Result<(), Error> {
        event.expect_in(self.context(), "a stream")?;
        let progress = &self.0.progress;
        let state = progress.lock();
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let place = if self.context().captures(progress, &state) {
            RecordedPoint::CapturedStreams
        } else {
            let clock = self.context().order().clock(progress.slot, state.queued);
            RecordedPoint::Recorded(Arc::downgrade(progress), state.queued, clock)
        };
        event.record_by(place, || {
            // SAFETY: the references share the event and the stream, which are of one context.
            unsafe { cu!(driver, cuEventRecord(event.raw(), self.raw())) }
        })?;
        Ok(())
    }
}

impl Event {
    /// Records the event after everything queued in the stream so far.
    ///
    /// # Errors
    /// Returns [`Error::WrongContext`] if the stream belongs to another context, or an error if the
    /// driver cannot record the event.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        stream.record(self)
    }
}

/// Returns the node that the next captured operation of the stream would follow, if the driver
/// reports a single one.
pub(crate) fn last_captured_node(stream: &Stream) -> Result<Option<CUgraphNode>, Error> {
    let mut status = CUstreamCaptureStatus::NONE;
    let mut id = 0;
    let mut graph = CUgraph::NULL;
    let mut after = std::ptr::null();
    let mut count = 0;
    let _current = stream.context().enter()?;
    let driver = stream.context().driver();
    let raw = stream.raw();

    // SAFETY: all of these are local variables that the driver may write. The graph handle is not
    // used.
    unsafe {
        cu_optional!(
            driver,
            cuStreamGetCaptureInfo_v2(
                raw,
                &mut status,
                &mut id,
                &mut graph,
                &mut after,
                &mut count
            )
        )
    }?;
    if count != 1 || after.is_null() {
        return Ok(None);
    }

    // SAFETY: the driver returned an array of one node, which is valid until the next call on the
    // stream.
    Ok(Some(unsafe { *after }))
}

/// Returns the counts of a clock, or an empty slice if no other stream counts.
fn clock_of(clock: &Option<VectorClock>) -> &[u64] {
    clock.as_deref().unwrap_or_default()
}

#[cold]
fn capturing(what: &str) -> Error {
    Error::Capturing {
        work: what.to_string(),
    }
}

impl Submission<'_> {
    /// Checks and records the accesses of this operation.
    ///
    /// # Errors
    /// Returns an error if an access conflicts with unordered work of another stream, with a host
    /// copy, or with memory that a graph owns.
    #[inline]
    pub(crate) fn admit<'a>(
        &self,
        uses: impl Iterator<Item = (&'a Region, Access)> + Clone,
    ) -> Result<(), Error> {
        if self.stream.context().order().has_graph_memory() {
            uses.clone()
                .try_for_each(|(region, _)| refuse_graph_memory(region, "work of a stream"))?;
        }
        self.stream.admit_as(self.count(), uses)
    }

    /// Returns the number of this operation in its stream.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.state.queued + 1
    }

    /// Returns the point after everything queued so far, for a host wait.
    fn point(&self) -> crate::device::context::StreamPoint {
        self.stream
            .context()
            .point(&self.stream.0.progress, &self.state)
    }

    /// Queues the operation that `call` makes and returns its number. The context must be current.
    ///
    /// If several streams count, fills `clock` with the clock after the operation.
    #[inline]
    fn give(
        mut self,
        call: impl FnOnce(&crate::device::Driver) -> Result<(), DriverError>,
        clock: &mut VectorClock,
    ) -> Result<u64, Error> {
        // Counted before the call, even if the call fails: the accesses are recorded under this
        // number, and a failed call may have queued something.
        self.state.queued += 1;
        let queued = self.state.queued;
        let context = self.stream.context();
        call(context.driver())?;
        if context.order().several() {
            context
                .order()
                .fill(clock, self.stream.0.progress.slot, queued);
        }

        Ok(queued)
    }

    /// Queues the operation that `call` makes.
    #[inline]
    pub(crate) fn enqueue(
        mut self,
        call: impl FnOnce(&crate::device::Driver) -> Result<(), DriverError>,
    ) -> Result<(), Error> {
        let context = self.stream.context();
        // Counted before the call, even if the call fails: the accesses are recorded under this
        // number, and a failed call may have queued something.
        self.state.queued += 1;
        let _current = context.enter()?;
        call(context.driver()).map_err(Error::from)
    }
}

impl Submission<'_> {
    /// Updates the progress of the stream, unless a capture is active and forbids the query.
    pub(crate) fn look(&mut self) {
        let driver = *self.stream.context().driver();
        if !driver.gate().any() {
            self.stream.0.progress.look(&mut self.state, driver);
        }
    }

    /// Records a fence after everything queued so far, unless there is one.
    pub(crate) fn fence(&mut self) {
        let driver = *self.stream.context().driver();
        self.stream.0.progress.fence(&mut self.state, driver);
    }

    /// Marks the stream as part of a capture.
    pub(crate) fn join(mut self, capture: &Arc<CapturedStreams>) {
        self.state.capture = Some(capture.clone());
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({}, {:?})", self.name(), self.context().device())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let progress = &self.progress;
        // The flag falls first. `Resources::release` skips the fence for memory of the only stream
        // that counts if that stream has a handle, so the flag must not outlast the handle.
        progress.leave();
        self.context
            .0
            .order()
            .leave(progress.slot, progress.queued(), progress.waited());
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        self.0.collect();
    }
}
