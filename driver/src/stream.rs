//! A stream: a queue of the device. Work in it runs in order, concurrently with the work of other streams.

use std::sync::{Arc, MutexGuard};

use driver_sys::{CUgraph, CUgraphNode, CUresult, CUstream, CUstream_flags, CUstreamCaptureStatus};
use ptx_gen::Access;

use crate::element::{Element, as_bytes, as_bytes_mut, zeroed};
use crate::event::Place;
use crate::memory::refuse_memory;
use crate::order::Clock;
use crate::timeline::{Captured, State, Timeline};
use crate::wait::wait_for_work;
use crate::{Context, DriverError, Error, Event, Region, View};

/// A stream of its own order: it neither waits for the legacy stream nor makes it wait. Clones share it.
///
/// What queued work needs stays alive until the work is done, whatever is dropped before. Work of two streams that
/// touches the same bytes, one of them writing, needs an order: [`wait`](Self::wait) for an [`Event`] of the other, or
/// a wait of the host between the two. Without one it is refused ([`Error::UnorderedStreams`]).
///
/// That a stream is dropped, and that the device is done with it, is no order: its work is before that of others once the
/// host has waited for it, at the latest by [`Context::synchronize`].
///
/// The second stream of a context begins after the work that the first one had been given by then.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// first.fill(&x, 1.0)?;
/// let filled = Event::untimed(&context)?;
/// filled.record(&first)?;
/// second.wait(&filled)?; // without this the next line is refused
/// second.fill(&x, 2.0)?;
/// assert_eq!(second.read(&x)?, [2.0; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    // Dropped first, so that the collection finds the stream without a holder.
    timeline: Arc<Timeline>,
    context: Collected,
}

/// A context that destroys what is idle when a stream's share of it is dropped. It waits for nothing.
struct Collected(Context);

/// The right to give a stream one piece of work.
pub(crate) struct Turn<'s> {
    stream: &'s Stream,
    state: MutexGuard<'s, State>,
}

impl Stream {
    /// A new stream.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let driver = context.driver();
        Self::add(context, false, || {
            let mut raw = CUstream::NULL;
            // SAFETY: `raw` is ours to write.
            unsafe {
                cu!(
                    driver,
                    cuStreamCreate(&mut raw, CUstream_flags::NON_BLOCKING)
                )
            }?;
            Ok(raw)
        })
    }

    /// A stream that somebody else made, such as another crate in the same process. It is not destroyed.
    ///
    /// # Errors
    /// What the driver refuses.
    ///
    /// # Safety
    /// `raw` is a stream of the context, and stays one until the `Stream`, its clones and the work given to them are
    /// gone. Work that others give it is ordered by them.
    pub unsafe fn from_raw(context: &Context, raw: CUstream) -> Result<Self, Error> {
        Self::add(context, true, || Ok(raw))
    }

    pub(crate) fn add(
        context: &Context,
        borrowed: bool,
        make: impl FnOnce() -> Result<CUstream, DriverError>,
    ) -> Result<Self, Error> {
        let timeline = context.add_stream(borrowed, make)?;
        Ok(Self(Arc::new(Inner {
            timeline,
            context: Collected(context.clone()),
        })))
    }

    /// The same stream with a name, which errors show.
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        self.context().order().rename(self.0.timeline.slot, label);
        self
    }

    /// `stream` and its label, or its number.
    pub fn name(&self) -> String {
        self.context().order().name(self.0.timeline.slot)
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.0.context.0
    }

    /// Waits until everything queued so far is done.
    ///
    /// # Errors
    /// [`Error::Capturing`]; a fault of the device, or what else the driver reports of earlier work.
    pub fn synchronize(&self) -> Result<(), Error> {
        let waiting = self.0.timeline.waiting();
        let (queued, clock) = self.begin("waiting for the stream")?.point();
        let (current, driver) = (self.context().enter()?, self.context().driver());
        // SAFETY: the stream is alive.
        let waited = unsafe { cu!(driver, cuStreamSynchronize(self.raw())) };
        self.context()
            .waited_by_holder(&self.0.timeline, (queued, clock_of(&clock)), waited)?;
        drop((current, waiting));
        self.context().collect();
        Ok(())
    }

    /// Whether everything queued so far is done.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn is_idle(&self) -> Result<bool, Error> {
        let _waiting = self.0.timeline.waiting();
        let (queued, clock) = self.begin("asking for the stream")?.point();
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        // SAFETY: the stream is alive; a query changes nothing.
        match unsafe { (driver.api().cuStreamQuery)(self.raw()) } {
            CUresult::NOT_READY => Ok(false),
            code => {
                let result = driver.check("cuStreamQuery", code);
                self.context().waited_by_holder(
                    &self.0.timeline,
                    (queued, clock_of(&clock)),
                    result,
                )?;
                Ok(true)
            }
        }
    }

    /// Work queued after this runs after what the event marks.
    ///
    /// # Errors
    /// An event of another context; one that a capture recorded ([`Error::CapturedEvent`]), which would draw the
    /// stream into the capture: [`Capture::fork`](crate::Capture::fork) does that; or what the driver refuses.
    pub fn wait(&self, event: &Event) -> Result<(), Error> {
        event.expect_in(self.context(), "a stream")?;
        let turn = self.begin("waiting for an event")?;
        let recorded = event.recorded();
        if let Place::Captured = recorded.place() {
            return Err(Error::CapturedEvent {
                what: "a stream's wait for it",
            });
        }
        turn.enqueue(|driver| {
            // SAFETY: stream and event are alive and of one context.
            unsafe { cu!(driver, cuStreamWaitEvent(self.raw(), event.raw(), 0)) }
        })?;
        if let Place::Recorded(.., clock) = recorded.place() {
            self.context().order().join(self.0.timeline.slot, clock);
        }
        Ok(())
    }

    /// Says that all work given to `other` so far runs before what this stream is given from now on, because of
    /// something that this crate does not see: a wait on memory, another library's event, a kernel that waits.
    ///
    /// It says nothing of a stream of another context: the two share no memory that is ordered here.
    ///
    /// # Safety
    /// It does.
    pub unsafe fn assume_after(&self, other: &Self) {
        if !self.context().same(other.context()) {
            return;
        }
        let (slot, queued) = (other.0.timeline.slot, other.0.timeline.queued());
        self.context().order().join(
            self.0.timeline.slot,
            &self.context().order().clock(slot, queued),
        );
    }

    /// Writes elements into device memory in the order of this stream, and waits.
    ///
    /// # Errors
    /// A length that is not the view's, [`Error::Capturing`], or what the driver reports.
    pub fn write<T: Element>(&self, to: &View<T>, from: &[T]) -> Result<(), Error> {
        to.expect_len("write", from.len())?;
        to.region().expect_in(self.context(), "a stream")?;
        let from = as_bytes(from);
        self.transfer("write", to.region(), Access::Write, |driver| {
            // SAFETY: the view's memory lives as long as the view, its length was checked, and `from` outlives the wait.
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

    /// Reads device memory in the order of this stream, and waits.
    ///
    /// # Errors
    /// [`Error::Capturing`], or what the driver reports, faults of earlier work included.
    pub fn read<T: Element>(&self, from: &View<T>) -> Result<Vec<T>, Error> {
        let mut to = zeroed::<T>(from.len());
        self.read_into(from, &mut to)?;
        Ok(to)
    }

    /// Reads device memory into a slice in the order of this stream, and waits.
    ///
    /// # Errors
    /// A length that is not the view's; else as [`read`](Self::read).
    pub fn read_into<T: Element>(&self, from: &View<T>, to: &mut [T]) -> Result<(), Error> {
        from.expect_len("read", to.len())?;
        from.region().expect_in(self.context(), "a stream")?;
        let to = as_bytes_mut(to);
        self.transfer("read", from.region(), Access::Read, |driver| {
            // SAFETY: the view's memory lives as long as the view, and `to` has its length and outlives the wait.
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

    /// Queues a copy that uses memory which the streams of this context do not keep, such as what the caller lends, and
    /// waits for it, also where the driver refuses to.
    pub(crate) fn transfer(
        &self,
        what: &str,
        region: &Region,
        access: Access,
        copy: impl FnOnce(&crate::Driver) -> Result<(), DriverError>,
    ) -> Result<(), Error> {
        if region.bytes() == 0 {
            return self.begin(what).map(drop);
        }
        // Before the copy: nothing may come between it and the wait.
        let (_waiting, _current) = (self.0.timeline.waiting(), self.context().enter()?);
        let turn = self.begin(what)?;
        turn.admit(std::iter::once((region, access)))?;
        let mut clock = Clock::new();
        let queued = turn.give(copy, &mut clock)?;
        // SAFETY: the stream is alive, and does not begin to capture while somebody waits.
        let waited = unsafe { wait_for_work(self.context().driver(), self.raw()) };
        self.context()
            .waited_by_holder(&self.0.timeline, (queued, &clock), waited)
            .map_err(Error::from)
    }

    /// The raw handle, for work that is not ours. What it needs must live until this stream is idle.
    pub fn raw(&self) -> CUstream {
        self.0.timeline.raw
    }

    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.0.timeline
    }

    /// Takes the stream for one piece of work. A stream that captures is refused: the graph that becomes of the work
    /// would not own what the work needs, and the work would not run.
    #[inline]
    pub(crate) fn begin(&self, what: &str) -> Result<Turn<'_>, Error> {
        let state = self.0.timeline.lock();
        if self.context().captures(&self.0.timeline, &state) {
            return Err(capturing(what));
        }
        Ok(Turn {
            stream: self,
            state,
        })
    }

    /// Remembers what the piece of work with this count uses, and refuses it as [`Turn::admit`] does.
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
        // SAFETY: the regions are of the context.
        unsafe { context.order().admit((self.0.timeline.slot, count), uses) }
    }

    pub(crate) fn record(&self, event: &Event) -> Result<(), Error> {
        event.expect_in(self.context(), "a stream")?;
        let timeline = &self.0.timeline;
        let state = timeline.lock();
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let place = if self.context().captures(timeline, &state) {
            Place::Captured
        } else {
            let clock = self.context().order().clock(timeline.slot, state.queued);
            Place::Recorded(Arc::downgrade(timeline), state.queued, clock)
        };
        event.record_by(place, || {
            // SAFETY: event and stream are alive and of one context.
            unsafe { cu!(driver, cuEventRecord(event.raw(), self.raw())) }
        })?;
        Ok(())
    }
}

impl Event {
    /// Marks the place after everything queued in the stream so far.
    ///
    /// # Errors
    /// A stream of another context, or what the driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        stream.record(self)
    }
}

/// The node that the stream's next work would come after: the one captured last, if the driver tells one.
pub(crate) fn last_node(stream: &Stream) -> Result<Option<CUgraphNode>, Error> {
    let (mut status, mut id, mut graph) = (CUstreamCaptureStatus::NONE, 0, CUgraph::NULL);
    let (mut after, mut count) = (std::ptr::null(), 0);
    let (_current, driver, raw) = (
        stream.context().enter()?,
        stream.context().driver(),
        stream.raw(),
    );
    // SAFETY: all of it is ours to write; the graph's handle is not used.
    unsafe {
        cu_if_there!(
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
    // SAFETY: the driver gave an array of one node, valid until the next call on the stream.
    Ok(Some(unsafe { *after }))
}

/// The counts of a clock, or none where no other stream counts.
fn clock_of(clock: &Option<Clock>) -> &[u64] {
    clock.as_deref().unwrap_or_default()
}

#[cold]
fn capturing(what: &str) -> Error {
    Error::Capturing {
        work: what.to_string(),
    }
}

impl Turn<'_> {
    /// Refuses work that touches what work of another stream touches that is not before it.
    #[inline]
    pub(crate) fn admit<'a>(
        &self,
        uses: impl Iterator<Item = (&'a Region, Access)> + Clone,
    ) -> Result<(), Error> {
        if self.stream.context().order().has_graph_memory() {
            uses.clone()
                .try_for_each(|(region, _)| refuse_memory(region, "work of a stream"))?;
        }
        self.stream.admit_as(self.count(), uses)
    }

    /// The count that the stream's work has with this piece.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.state.queued + 1
    }

    /// The point after what was given so far, to be waited for.
    fn point(&self) -> crate::context::Point {
        self.stream
            .context()
            .point(&self.stream.0.timeline, &self.state)
    }

    /// Gives the stream the work that `call` makes, the context being current, and ends the turn. The count of the
    /// work; where several streams count, the clock is filled as of then.
    #[inline]
    fn give(
        mut self,
        call: impl FnOnce(&crate::Driver) -> Result<(), DriverError>,
        clock: &mut Clock,
    ) -> Result<u64, Error> {
        self.state.queued += 1;
        let (queued, context) = (self.state.queued, self.stream.context());
        call(context.driver())?;
        if context.order().several() {
            context
                .order()
                .fill(clock, self.stream.0.timeline.slot, queued);
        }
        Ok(queued)
    }

    /// Gives the stream the work that `call` makes, and ends the turn.
    #[inline]
    pub(crate) fn enqueue(
        mut self,
        call: impl FnOnce(&crate::Driver) -> Result<(), DriverError>,
    ) -> Result<(), Error> {
        let context = self.stream.context();
        // Counted whatever comes of it: what it uses is remembered, and the call may have queued something.
        self.state.queued += 1;
        let _current = context.enter()?;
        call(context.driver()).map_err(Error::from)
    }
}

impl Turn<'_> {
    /// Looks how far the stream is, where no capture forbids to ask.
    pub(crate) fn look(&mut self) {
        let driver = *self.stream.context().driver();
        if !driver.gate().any() {
            self.stream.0.timeline.look(&mut self.state, driver);
        }
    }

    /// Sees to a fence after what was given so far.
    pub(crate) fn fence(&mut self) {
        let driver = *self.stream.context().driver();
        self.stream.0.timeline.fence(&mut self.state, driver);
    }

    /// The stream captures from here on.
    pub(crate) fn join(mut self, capture: &Arc<Captured>) {
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
        let timeline = &self.timeline;
        timeline.leave();
        self.context
            .0
            .order()
            .leave(timeline.slot, timeline.queued(), timeline.waited());
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        self.0.collect();
    }
}
