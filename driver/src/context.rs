//! A context: one device in use by this process.
//!
//! It is the device's primary context, shared with every other user of it in the process, and never reset. Each call
//! that needs it makes it current and restores what was current before.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use driver_sys::{CUcontext, CUresult, CUstream, CUstream_flags, CUstreamCaptureStatus};

use crate::callback::ProgramObject;
use crate::driver_error::DriverError;
use crate::gate::untold;
use crate::limits::Limits;
use crate::lock::lock;
use crate::order::{Clock, StreamOrder};
use crate::release::{Pending, Release};
use crate::timeline::{Mark, State, Timeline};
use crate::wait::wait_for_work;
use crate::{Device, Driver, Error};

/// A device in use. Clones share it, and so does every other `Context` of the same device and driver.
///
/// When the last of it is dropped (every stream, buffer and graph has a share) it waits for work that is still in
/// flight, and gives the device back.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let driver = Driver::of(warpwright_cuda_emu::library())?;
/// let context = Context::new(&driver.device(0)?)?;
/// let (free, total) = context.memory()?;
/// assert!(free <= total);
/// // The same one, which other libraries in the process use as well.
/// assert_eq!(Context::new(&driver.device(0)?)?.raw(), context.raw());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Context(Arc<Inner>);

/// Gives everything back when it is dropped.
pub(crate) struct Inner(ManuallyDrop<Resources>);

pub(crate) struct Resources {
    device: Device,
    raw: CUcontext,
    limits: Limits,
    /// For copies that the caller waits for. The legacy stream would not wait for ours, and breaks captures.
    transfer: CUstream,
    /// Every stream that may still have work, also after its last [`Stream`](crate::Stream) is gone.
    streams: Mutex<Vec<Arc<Timeline>>>,
    order: StreamOrder,
    pending: Pending,
}

/// A point in a stream that somebody waits for: so much of its work, and what comes before it. Where no other stream
/// counts, the host has waited for whatever else comes before, and there is nothing to tell.
pub(crate) type Point = (u64, Option<Clock>);

/// The context is current on this thread for as long as this lives.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let current = context.enter()?; // once for all of these
/// for value in 0..100 {
///     stream.fill(&x, value as f32)?;
/// }
/// drop(current);
/// assert_eq!(stream.read(&x)?, [99.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct Current<'a> {
    driver: &'a Driver,
    pushed: bool,
    /// The stack of contexts is the thread's.
    thread: std::marker::PhantomData<*const ()>,
}

impl Context {
    /// Takes a device into use.
    ///
    /// # Errors
    /// What the driver refuses: no memory for a context, or a device in exclusive use elsewhere.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let mut contexts = lock(device.driver().contexts());
        contexts.retain(|c| c.strong_count() > 0);
        let known = contexts
            .iter()
            .filter_map(|c| c.upgrade()?.downcast::<Inner>().ok());
        let in_use = { known }.find(|c| c.device.ordinal() == device.ordinal());
        if let Some(inner) = in_use {
            drop(contexts);
            let context = Self(inner);
            context.collect();
            return Ok(context);
        }
        let inner = Arc::new(Inner(ManuallyDrop::new(Resources::retain(device)?)));
        let shared: Arc<dyn Any + Send + Sync> = inner.clone();
        contexts.push(Arc::downgrade(&shared));
        Ok(Self(inner))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        self.0.device.driver()
    }

    /// Free and total device memory, in bytes.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both numbers are ours to write.
        unsafe { cu!(self.driver(), cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Waits until every stream of this context is idle, those included whose last [`Stream`](crate::Stream) was
    /// dropped. Of a stream that captures it waits for what was given before the capture.
    ///
    /// # Errors
    /// [`Error::Capturing`] if such work may still run and this thread captures, so that it may not wait; a fault of
    /// the device, or what else the driver reports of earlier work.
    pub fn synchronize(&self) -> Result<(), Error> {
        // Each stream on its own: cuCtxSynchronize may end a capture on another thread.
        let streams = lock(&self.0.streams).clone();
        let mut result = streams.iter().try_for_each(|s| self.wait_for(s));
        if streams.is_empty() {
            // A fault of a stream that is gone is known to the driver alone.
            let _current = self.enter()?;
            // SAFETY: the context's own stream is alive, and nobody captures it.
            result = unsafe { cu!(self.driver(), cuStreamSynchronize(self.0.transfer)) }
                .map_err(Error::from);
        }
        drop(streams);
        if result.is_ok() {
            self.0.order.settle();
        }
        self.collect();
        result
    }

    /// Waits until the stream has done what it was given so far.
    fn wait_for(&self, timeline: &Timeline) -> Result<(), Error> {
        let _waiting = timeline.waiting();
        let state = timeline.lock();
        let point = self.point(timeline, &state);
        if self.captures(timeline, &state) {
            return self.wait_for_earlier(timeline, state, point);
        }
        drop(state);
        self.wait_until(timeline, point).map_err(Error::from)
    }

    /// Waits for what a stream that captures was given before: by the fence there, because the stream cannot be asked.
    #[cold]
    fn wait_for_earlier(
        &self,
        timeline: &Timeline,
        state: MutexGuard<'_, State>,
        point: Point,
    ) -> Result<(), Error> {
        if timeline.has_reached(point.0) {
            return Ok(());
        }
        let is_here = state
            .capture
            .as_ref()
            .is_some_and(|capture| capture.is_here());
        let Some(event) = state.last_fence().filter(|_| !is_here) else {
            return Err(Error::Capturing {
                work: "waiting for the context".into(),
            });
        };
        drop(state);
        let _current = self.enter()?;
        // SAFETY: the event lives as long as its stream.
        let result = unsafe { cu!(self.driver(), cuEventSynchronize(event)) };
        self.waited(timeline, point, result).map_err(Error::from)
    }

    /// Whether a capture has the stream: one that knows it, or one that it was drawn into behind this crate's back.
    #[inline]
    pub(crate) fn captures(&self, timeline: &Timeline, state: &State) -> bool {
        let may_be = timeline.borrowed || self.driver().gate().any();
        state.capture.is_some() || (may_be && self.is_captured_by_others(timeline.raw))
    }

    #[cold]
    fn is_captured_by_others(&self, stream: CUstream) -> bool {
        let mut status = CUstreamCaptureStatus::NONE;
        let (Some(ask), Ok(_current)) = (self.driver().api().cuStreamIsCapturing, self.enter())
        else {
            return false;
        };
        // SAFETY: `status` is ours to write; the stream is alive.
        let code = unsafe { ask(stream, &mut status) };
        code == CUresult::SUCCESS && status != CUstreamCaptureStatus::NONE
    }

    /// Waits until the stream, of which the caller waits, has come so far.
    pub(crate) fn wait_until(&self, timeline: &Timeline, point: Point) -> Result<(), DriverError> {
        let _current = self.enter()?;
        // SAFETY: the stream is alive for as long as its timeline is in somebody's hands.
        let result = unsafe { cu!(self.driver(), cuStreamSynchronize(timeline.raw)) };
        self.waited(timeline, point, result)
    }

    /// The point after what the stream was given so far, to be waited for.
    pub(crate) fn point(&self, timeline: &Timeline, state: &State) -> Point {
        let order = &self.0.order;
        (
            state.queued,
            order
                .several()
                .then(|| order.clock(timeline.slot, state.queued)),
        )
    }

    /// Remembers what a wait for a stream says: that the work is done, or that after a fault nothing runs any more.
    pub(crate) fn waited(
        &self,
        timeline: &Timeline,
        (queued, clock): Point,
        result: Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        if is_over(&result) {
            timeline.reached(queued);
            match clock {
                Some(clock) => self.0.order.wait(&clock),
                None => self.0.order.wait_for(timeline.slot, queued),
            }
        }
        result
    }

    /// The same for a caller who has a share of the stream; the clock is empty where no other stream counts. Then no
    /// table is looked at.
    #[inline]
    pub(crate) fn waited_by_holder(
        &self,
        timeline: &Timeline,
        (queued, clock): (u64, &[u64]),
        result: Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        match clock {
            _ if !is_over(&result) => {}
            [] => timeline.was_waited_for(queued),
            clock => {
                timeline.reached(queued);
                self.0.order.wait(clock);
            }
        }
        result
    }

    /// Makes the context current on this thread until the guard is dropped. Every call sees to that by itself; a
    /// thread that makes many spares each of them the trouble.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn enter(&self) -> Result<Current<'_>, DriverError> {
        self.0.enter()
    }

    /// Runs `f` with the context current on this thread: for calls that this crate does not wrap.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> Result<R, Error> {
        let _current = self.enter()?;
        Ok(f())
    }

    /// The raw handle.
    pub fn raw(&self) -> CUcontext {
        self.0.raw
    }

    /// The stream for copies that the caller waits for.
    pub(crate) fn transfer(&self) -> CUstream {
        self.0.transfer
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn order(&self) -> &StreamOrder {
        &self.0.order
    }

    #[inline]
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Releases what a destructor holds, once no stream can use it.
    pub(crate) fn release(&self, what: Release) {
        let gate = self.driver().gate();
        if let Err(what) = gate.pass_with(what, |what| self.0.release(what)) {
            let context = self.clone();
            gate.pass(move || {
                let left = context.0.release(what);
                (left, context)
            });
        }
    }

    /// Releases what waits and is done with, streams included. While a capture lasts it does nothing; its end does.
    pub(crate) fn collect(&self) {
        let left = self.driver().gate().pass_now(|| self.0.collect());
        drop(left);
    }

    /// Runs a call that takes memory. Where there is none left, memory that only waits to be released is released,
    /// and the call is made once more.
    pub(crate) fn with_memory<T>(
        &self,
        mut take: impl FnMut() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let missing = |r: &Result<T, DriverError>| {
            let none_left = |e: &DriverError| e.code == CUresult::OUT_OF_MEMORY;
            r.as_ref().err().is_some_and(none_left) && !self.0.pending.is_empty()
        };
        let mut result = take();
        if missing(&result) {
            self.collect();
            result = take();
        }
        if missing(&result) {
            // A failure of earlier work is reported by whoever waits for that work.
            let _ = untold(|| self.synchronize());
            result = take();
        }
        result
    }

    /// Adds a stream: `make` gives its handle. It begins after the work that was given while there was only one stream.
    pub(crate) fn add_stream(
        &self,
        borrowed: bool,
        make: impl FnOnce() -> Result<CUstream, DriverError>,
    ) -> Result<Arc<Timeline>, Error> {
        let _current = self.enter()?;
        let mut streams = lock(&self.0.streams);
        let raw = make()?;
        let (slot, count, only) = self.0.order.add();
        let timeline = Arc::new(Timeline::new(raw, slot, borrowed, count));
        if let Some(only) = only {
            // From here on uses are remembered. Whoever saw the old answer has left the stream's lock when it is marked.
            self.put_first(only, streams.iter().find(|s| s.slot == only));
        }
        streams.push(timeline.clone());
        drop(streams);
        let held = self
            .0
            .order
            .untracked()
            .iter()
            .try_for_each(|mark| mark.hold(&timeline, *self.driver()));
        held.inspect_err(|_| {
            self.0
                .order
                .leave(slot, timeline.queued(), timeline.waited())
        })?;
        Ok(timeline)
    }

    /// Puts the work of the only stream before that of those to come. It may be gone already.
    fn put_first(&self, slot: usize, stream: Option<&Arc<Timeline>>) {
        let mark = stream.and_then(|s| s.mark(Some(*self.driver())));
        let at = match (&mark, stream) {
            (Some(mark), _) => mark.queued,
            (None, Some(idle)) => idle.done(),
            (None, None) => self.0.order.count(slot),
        };
        self.0.order.put_first(slot, at, mark);
    }
}

impl std::fmt::Display for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.0.device, self.driver().origin())
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({:?})", self.0.device)
    }
}

/// Whether what was waited for no longer runs: it is done, or the device is lost.
#[inline]
fn is_over(waited: &Result<(), DriverError>) -> bool {
    waited
        .as_ref()
        .err()
        .is_none_or(|error| error.code.is_device_fault())
}

/// Refuses to let things of two contexts meet.
#[inline]
pub(crate) fn expect_same(
    what: &str,
    theirs: &Context,
    user: &str,
    ours: &Context,
) -> Result<(), Error> {
    if theirs.same(ours) {
        Ok(())
    } else {
        Err(wrong_context(what, theirs, user, ours))
    }
}

/// Refuses to pass a context or a device of one loaded driver to another, where its handle would mean something else.
pub(crate) fn expect_same_driver(
    (what, their_driver): (impl FnOnce() -> String, &Driver),
    (user, our_driver): (&str, &Driver),
) -> Result<(), Error> {
    if their_driver.same(our_driver) {
        return Ok(());
    }
    Err(Error::WrongContext {
        what: what(),
        theirs: format!("the driver {}", their_driver.origin()),
        user: user.to_string(),
        ours: format!("the driver {}", our_driver.origin()),
    })
}

#[cold]
fn wrong_context(what: &str, theirs: &Context, user: &str, ours: &Context) -> Error {
    Error::WrongContext {
        what: what.to_string(),
        theirs: theirs.to_string(),
        user: user.to_string(),
        ours: ours.to_string(),
    }
}

/// Objects that are dropped outside of all locks.
type Left = Vec<ProgramObject>;

impl Resources {
    fn retain(device: &Device) -> Result<Self, Error> {
        let driver = device.driver();
        let limits = Limits::of(device)?;
        let mut raw = CUcontext::NULL;
        // SAFETY: `raw` is ours to write; the reference taken is given back in `drop`.
        unsafe { cu!(driver, cuDevicePrimaryCtxRetain(&mut raw, device.raw())) }?;
        let mut inner = Self {
            device: device.clone(),
            raw,
            limits,
            transfer: CUstream::NULL,
            streams: Mutex::default(),
            order: StreamOrder::default(),
            pending: Pending::default(),
        };
        match inner.create_stream() {
            Ok(transfer) => inner.transfer = transfer,
            Err(error) => {
                inner.give_back();
                return Err(error.into());
            }
        }
        tell!(debug, %device, "context in use");
        Ok(inner)
    }

    fn create_stream(&self) -> Result<CUstream, DriverError> {
        let _current = self.enter()?;
        let mut stream = CUstream::NULL;
        // SAFETY: `stream` is ours to write.
        unsafe {
            cu!(
                self.device.driver(),
                cuStreamCreate(&mut stream, CUstream_flags::NON_BLOCKING)
            )
        }?;
        Ok(stream)
    }

    /// Gives back the reference that `retain` took.
    fn give_back(&self) {
        let (driver, device) = (self.device.driver(), self.device.raw());
        // SAFETY: nothing of the context is left.
        let released = unsafe { cu!(driver, cuDevicePrimaryCtxRelease_v2(device)) };
        if let Err(error) = released {
            tell!(warn, %error, "context not released");
        }
    }

    #[inline]
    fn enter(&self) -> Result<Current<'_>, DriverError> {
        let driver = self.device.driver();
        let mut current = CUcontext::NULL;
        // SAFETY: `current` is ours to write.
        unsafe { cu!(driver, cuCtxGetCurrent(&mut current)) }?;
        if current != self.raw {
            return self.push();
        }
        Ok(Current {
            driver,
            pushed: false,
            thread: std::marker::PhantomData,
        })
    }

    fn push(&self) -> Result<Current<'_>, DriverError> {
        let driver = self.device.driver();
        // SAFETY: the context is retained for as long as this lives.
        unsafe { cu!(driver, cuCtxPushCurrent_v2(self.raw)) }?;
        Ok(Current {
            driver,
            pushed: true,
            thread: std::marker::PhantomData,
        })
    }

    fn release(&self, what: Release) -> Left {
        let (current, driver) = (self.enter(), *self.device.driver());
        if current.is_ok() && self.only_its_own_stream_counts(&what) {
            return what.now(driver).into_iter().collect();
        }
        let fence = current.is_ok().then_some(driver);
        // The driver itself keeps an event that work waits for; and memory of a stream goes back in the order of that
        // stream, so that only others are waited for.
        let waits = |stream: &Arc<Timeline>| match &what {
            Release::Event(_) => false,
            Release::StreamMemory(_, own) => !Arc::ptr_eq(own, stream),
            _ => true,
        };
        let streams = lock(&self.streams);
        let marks: Vec<Mark> = streams
            .iter()
            .filter(|s| waits(s))
            .filter_map(|s| s.mark(fence))
            .collect();
        drop(streams);
        if marks.is_empty() && fence.is_some() {
            return what.now(driver).into_iter().collect();
        }
        self.pending.push(marks, what);
        self.collect()
    }

    /// Whether it is memory of a stream, and no other stream may have work that uses it. A stream that is held counts;
    /// if it is the only one, the host has waited for all others.
    #[inline]
    fn only_its_own_stream_counts(&self, what: &Release) -> bool {
        matches!(what, Release::StreamMemory(_, own) if own.is_held() && !self.order.several())
    }

    fn collect(&self) -> Left {
        let Ok(_current) = self.enter() else {
            return Left::new();
        };
        let driver = *self.device.driver();
        let mut streams = lock(&self.streams);
        streams.iter().for_each(|s| s.poll(driver));
        self.order.forget_done();
        let done = self.pending.take_done();
        // No `Stream` and no mark has a share of what only this list names.
        let gone = streams.extract_if(.., |s| Arc::strong_count(s) == 1 && s.is_idle());
        gone.for_each(|timeline| self.destroy(&timeline));
        drop(streams);
        done.into_iter()
            .filter_map(|what| what.now(driver))
            .collect()
    }

    /// Destroys a stream that is idle.
    fn destroy(&self, timeline: &Timeline) {
        let driver = *self.device.driver();
        self.order.remove(timeline.slot);
        timeline
            .take_events()
            .into_iter()
            .for_each(|event| drop(Release::Event(event).now(driver)));
        if !timeline.borrowed {
            destroy_stream(driver, timeline.raw);
        }
    }

    /// Waits for all work, releases everything, and gives the device back.
    fn finish(self) -> Left {
        // Where the driver does not say which context is current, this one is made so all the same.
        let left = self
            .enter()
            .or_else(|_| self.push())
            .map(|_current| self.empty())
            .unwrap_or_default();
        // Without a context, what work may still use stays for ever.
        std::mem::forget(self.pending.take_all());
        self.give_back();
        left
    }

    /// Waits for all work, and releases everything in the context.
    fn empty(&self) -> Left {
        let driver = *self.device.driver();
        let streams = std::mem::take(&mut *lock(&self.streams));
        for timeline in streams.iter().filter(|s| !s.is_idle()) {
            // SAFETY: the stream is alive, and a capture would have a share of the context.
            if let Err(error) = unsafe { wait_for_work(&driver, timeline.raw) } {
                tell!(warn, %error, "work in flight at the end of its context");
            }
        }
        let left = self
            .pending
            .take_all()
            .into_iter()
            .filter_map(|what| what.now(driver))
            .collect();
        streams.iter().for_each(|timeline| self.destroy(timeline));
        destroy_stream(driver, self.transfer);
        left
    }
}

fn destroy_stream(driver: Driver, raw: CUstream) {
    if raw.is_null() {
        return;
    }
    // SAFETY: nobody else names the stream.
    if let Err(error) = unsafe { cu!(driver, cuStreamDestroy_v2(raw)) } {
        tell!(warn, %error, "stream not destroyed");
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: this is the destructor, so that nobody uses what is taken.
        let resources = unsafe { ManuallyDrop::take(&mut self.0) };
        let gate = resources.device.driver().gate();
        gate.pass(move || resources.finish());
    }
}

impl Deref for Inner {
    type Target = Resources;

    fn deref(&self) -> &Resources {
        &self.0
    }
}

impl std::fmt::Debug for Current<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Current({:?})", self.driver)
    }
}

impl Drop for Current<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = CUcontext::NULL;
            // SAFETY: `popped` is ours to write; the context on top is the one that `enter` pushed.
            if let Err(error) = unsafe { cu!(self.driver, cuCtxPopCurrent_v2(&mut popped)) } {
                tell!(warn, %error, "context not restored");
            }
        }
    }
}
