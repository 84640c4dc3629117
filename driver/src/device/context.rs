//! Contexts: devices in use by this process.
//!
//! A context is the primary context of its device, which is shared with every other user in the
//! process and never reset. Each call that needs the context makes it current and then restores the
//! previous one.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use driver_sys::{CUcontext, CUresult, CUstream, CUstream_flags, CUstreamCaptureStatus};

use crate::device::Device;
use crate::device::launch_limits::LaunchLimits;
use crate::error::{DriverError, Error};
use crate::lifetime::capture_gate::unreported;
use crate::lifetime::deferred_free::{DeferredFree, PendingFrees};
use crate::lifetime::driver::Driver;
use crate::lifetime::host_functions::ProgramObject;
use crate::lifetime::stream_order::{StreamOrder, VectorClock};
use crate::lifetime::stream_progress::{ProgressMark, StreamOrigin, StreamProgress, StreamState};
use crate::lifetime::unpoisoned_lock::lock;
use crate::lifetime::work_wait::wait_for_work;

/// A device in use. Clones refer to the same context, and so does every other `Context` of the same
/// device and driver.
///
/// Every stream, buffer, graph and module shares its context. When the last share is dropped, the
/// destructor waits for work that is still queued and releases the device.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
/// let context = Context::new(&driver.device(0)?)?;
/// let (free, total) = context.memory()?;
/// assert!(free <= total);
/// // Another call returns the same context.
/// assert_eq!(Context::new(&driver.device(0)?)?.raw(), context.raw());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Context(Arc<Inner>);

/// The resources of a context, which are released on drop.
pub(crate) struct Inner(ManuallyDrop<Resources>);

pub(crate) struct Resources {
    device: Device,
    raw: CUcontext,
    limits: LaunchLimits,
    /// The stream for copies that the caller waits for.
    ///
    /// It is not the legacy default stream, because that would not wait for non-blocking streams,
    /// and because its use invalidates captures.
    transfer: CUstream,
    /// Every stream that may have work, including streams whose last
    /// [`Stream`](crate::stream::Stream) handle is gone.
    streams: Mutex<Vec<Arc<StreamProgress>>>,
    order: StreamOrder,
    pending: PendingFrees,
}

/// A point in a stream that a thread waits for: the number of operations, and the clock there.
///
/// There is no clock if no other stream counts, because then the host has waited for all other
/// work.
pub(crate) struct StreamPoint {
    pub(crate) queued: u64,
    pub(crate) clock: Option<VectorClock>,
}

/// A guard that keeps the context current on this thread.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let current = context.enter()?; // once for all calls below
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
    /// Makes the guard `!Send`, because each thread has its own stack of contexts.
    thread: std::marker::PhantomData<*const ()>,
}

impl Context {
    /// Returns the context of a device and takes the device into use if it is not in use yet.
    ///
    /// # Errors
    /// Returns an error if the device has too little memory for a context, or if another process
    /// uses it exclusively.
    pub fn new(device: &Device) -> Result<Self, Error> {
        // The lock covers the search and the insertion, so that two threads do not create two
        // contexts for one device. Their streams would not be checked against each other.
        let mut contexts = lock(device.driver().contexts());
        contexts.retain(|c| c.strong_count() > 0);
        let known = contexts
            .iter()
            .filter_map(|c| c.upgrade()?.downcast::<Inner>().ok());
        let in_use = { known }.find(|c| c.device.ordinal() == device.ordinal());
        if let Some(inner) = in_use {
            // `collect` runs destructors, which may drop the last share of another context.
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

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the driver.
    pub fn driver(&self) -> &Driver {
        self.0.device.driver()
    }

    /// Returns the free and the total device memory in bytes.
    ///
    /// # Errors
    /// Returns an error if the driver does not report the memory.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        let _current = self.enter()?;
        let mut free = 0;
        let mut total = 0;
        // SAFETY: both numbers are local variables that the driver may write.
        unsafe { cu!(self.driver(), cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Waits until every stream of this context is idle, including streams whose last
    /// [`Stream`](crate::stream::Stream) handle was dropped.
    ///
    /// For a stream that captures, it waits for the work queued before the capture.
    ///
    /// # Errors
    /// - [`Error::Capturing`] if such work may still run and this thread captures, because then it
    ///   must not wait.
    /// - [`Error::Driver`] if the device has faulted, or if the driver reports an error of earlier
    ///   work.
    pub fn synchronize(&self) -> Result<(), Error> {
        // Each stream is waited for separately, because cuCtxSynchronize may invalidate a capture
        // on another thread.
        let streams = lock(&self.0.streams).clone();
        let mut result = streams.iter().try_for_each(|s| self.wait_for(s));
        if streams.is_empty() {
            // Without a stream no wait above has asked the driver. A fault of a stream that was
            // destroyed is reported only by the driver.
            let _current = self.enter()?;
            // SAFETY: the context owns the transfer stream, and no capture can contain it.
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

    /// Waits until the stream has completed everything queued so far.
    fn wait_for(&self, progress: &StreamProgress) -> Result<(), Error> {
        let _waiting = progress.waiting();
        let state = progress.lock();
        let point = self.point(progress, &state);
        if self.captures(progress, &state) {
            return self.wait_for_earlier(progress, state, point);
        }
        drop(state);
        self.wait_until(progress, point).map_err(Error::from)
    }

    /// Waits for the work that was queued before the stream began to capture.
    ///
    /// It waits for the fence there, because the stream itself must not be waited for.
    #[cold]
    fn wait_for_earlier(
        &self,
        progress: &StreamProgress,
        state: MutexGuard<'_, StreamState>,
        point: StreamPoint,
    ) -> Result<(), Error> {
        if progress.has_reached(point.queued) {
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

        // SAFETY: the `StreamProgress` owns the event, and the caller shares the `StreamProgress`.
        let result = unsafe { cu!(self.driver(), cuEventSynchronize(event)) };
        self.waited(progress, point, result).map_err(Error::from)
    }

    /// Returns true if a capture has the stream: one of this crate, or one of other code that the
    /// stream was drawn into.
    #[inline]
    pub(crate) fn captures(&self, progress: &StreamProgress, state: &StreamState) -> bool {
        let may_be = progress.origin == StreamOrigin::Elsewhere || self.driver().gate().any();
        state.capture.is_some() || (may_be && self.is_captured_by_others(progress.raw))
    }

    #[cold]
    fn is_captured_by_others(&self, stream: CUstream) -> bool {
        let mut status = CUstreamCaptureStatus::NONE;
        let (Some(ask), Ok(_current)) = (self.driver().api().cuStreamIsCapturing, self.enter())
        else {
            return false;
        };
        // SAFETY: `status` is a local variable that the driver may write. The caller shares the
        // stream.
        let code = unsafe { ask(stream, &mut status) };
        code == CUresult::SUCCESS && status != CUstreamCaptureStatus::NONE
    }

    /// Waits until the stream has reached `point`. The caller must share the stream.
    pub(crate) fn wait_until(
        &self,
        progress: &StreamProgress,
        point: StreamPoint,
    ) -> Result<(), DriverError> {
        let _current = self.enter()?;
        // SAFETY: a stream is destroyed only when nothing shares its `StreamProgress`, and the
        // caller does.
        let result = unsafe { cu!(self.driver(), cuStreamSynchronize(progress.raw)) };
        self.waited(progress, point, result)
    }

    /// Returns the point after everything queued in the stream so far, for a host wait.
    pub(crate) fn point(&self, progress: &StreamProgress, state: &StreamState) -> StreamPoint {
        let order = &self.0.order;
        let clock = if order.several() {
            Some(order.clock(progress.slot, state.queued))
        } else {
            None
        };
        StreamPoint {
            queued: state.queued,
            clock,
        }
    }

    /// Records the result of a wait: the work is complete, or nothing runs after a device fault.
    pub(crate) fn waited(
        &self,
        progress: &StreamProgress,
        point: StreamPoint,
        result: Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        if is_over(&result) {
            progress.reached(point.queued);
            match point.clock {
                Some(clock) => self.0.order.wait(&clock),
                None => self.0.order.wait_for(progress.slot, point.queued),
            }
        }
        result
    }

    /// Records the result of a wait by a caller that has a handle of the stream.
    ///
    /// The clock is empty if no other stream counts. Then the tables are not locked, which keeps a
    /// wait cheap for programs with one stream.
    #[inline]
    pub(crate) fn waited_by_holder(
        &self,
        progress: &StreamProgress,
        queued: u64,
        clock: &[u64],
        result: Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        if !is_over(&result) {
            return result;
        }
        if clock.is_empty() {
            progress.was_waited_for(queued);
        } else {
            progress.reached(queued);
            self.0.order.wait(clock);
        }
        result
    }

    /// Makes the context current on this thread until the guard is dropped.
    ///
    /// Every call of this crate does this itself. For a thread that makes many calls in a row, an
    /// outer guard makes each of them cheaper.
    ///
    /// # Errors
    /// Returns an error if the driver cannot make the context current.
    pub fn enter(&self) -> Result<Current<'_>, DriverError> {
        self.0.enter()
    }

    /// Runs `f` with the context current on this thread, for driver calls that this crate does not
    /// wrap.
    ///
    /// # Errors
    /// Returns an error if the driver cannot make the context current.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> Result<R, Error> {
        let _current = self.enter()?;
        Ok(f())
    }

    /// Returns the raw handle.
    pub fn raw(&self) -> CUcontext {
        self.0.raw
    }

    /// Returns the stream for copies that the caller waits for.
    pub(crate) fn transfer(&self) -> CUstream {
        self.0.transfer
    }

    pub(crate) fn limits(&self) -> &LaunchLimits {
        &self.0.limits
    }

    pub(crate) fn order(&self) -> &StreamOrder {
        &self.0.order
    }

    #[inline]
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Releases a resource of a destructor, once no stream can use it.
    pub(crate) fn release(&self, what: DeferredFree) {
        let gate = self.driver().gate();
        if let Err(what) = gate.pass_with(what, |what| self.0.release(what)) {
            let context = self.clone();
            gate.pass(move || {
                let left = context.0.release(what);
                (left, context)
            });
        }
    }

    /// Releases all resources and streams that are no longer used. Does nothing during a capture,
    /// because the end of the capture does it.
    pub(crate) fn collect(&self) {
        let left = self.driver().gate().pass_now(|| self.0.collect());
        drop(left);
    }

    /// Runs a call that allocates memory.
    ///
    /// If the device is out of memory, resources that wait for a deferred free are released and the
    /// call is repeated: first those that are no longer used, then all of them after a wait for the
    /// device.
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
            // An error of earlier work is reported to the caller that waits for that work.
            let _ = unreported(|| self.synchronize());
            result = take();
        }

        result
    }

    /// Adds the stream that `make` returns. It begins after the work that was queued while only one
    /// stream counted.
    pub(crate) fn add_stream(
        &self,
        origin: StreamOrigin,
        make: impl FnOnce() -> Result<CUstream, DriverError>,
    ) -> Result<Arc<StreamProgress>, Error> {
        let _current = self.enter()?;

        // The list stays locked until the stream is in it. Two threads that add streams would
        // otherwise both see one stream that counts, and only one of them would order its work.
        let mut streams = lock(&self.0.streams);
        let raw = make()?;
        let (slot, count, only) = self.0.order.add();
        let progress = Arc::new(StreamProgress::new(raw, slot, origin, count));
        if let Some(only) = only {
            // Accesses are recorded from here on. An operation that still saw the old flag holds
            // the lock of the only stream. Marking takes that lock, so the operation is counted by
            // then.
            self.put_first(only, streams.iter().find(|s| s.slot == only));
        }

        streams.push(progress.clone());

        // The waits below may block the host, so the list is unlocked first.
        drop(streams);
        let waits = self
            .0
            .order
            .untracked()
            .iter()
            .try_for_each(|mark| mark.wait_in(&progress, *self.driver()));

        // A stream that could not be ordered is never used, so it must not count.
        waits.inspect_err(|_| {
            self.0
                .order
                .leave(slot, progress.queued(), progress.waited())
        })?;
        Ok(progress)
    }

    /// Orders the work of the only stream before all later work. The stream may be destroyed
    /// already.
    fn put_first(&self, slot: usize, stream: Option<&Arc<StreamProgress>>) {
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

/// Returns true if the work that was waited for no longer runs, because it is complete or the
/// device is lost.
#[inline]
fn is_over(waited: &Result<(), DriverError>) -> bool {
    waited
        .as_ref()
        .err()
        .is_none_or(|error| error.code.is_device_fault())
}

/// Checks that two objects belong to the same context.
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

/// Checks that two contexts or devices belong to the same loaded driver. A handle has another
/// meaning in another driver.
pub(crate) fn expect_same_driver(
    what: impl FnOnce() -> String,
    their_driver: &Driver,
    user: &str,
    our_driver: &Driver,
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

/// Program objects that must be dropped outside all locks.
type DroppedOutside = Vec<ProgramObject>;

impl Resources {
    fn retain(device: &Device) -> Result<Self, Error> {
        let driver = device.driver();
        let limits = LaunchLimits::for_device(device)?;
        let mut raw = CUcontext::NULL;

        // SAFETY: `raw` is a local variable that the driver may write. The reference to the primary
        // context is released in `give_back`.
        unsafe { cu!(driver, cuDevicePrimaryCtxRetain(&mut raw, device.raw())) }?;
        let mut inner = Self {
            device: device.clone(),
            raw,
            limits,
            transfer: CUstream::NULL,
            streams: Mutex::default(),
            order: StreamOrder::default(),
            pending: PendingFrees::default(),
        };
        match inner.create_stream() {
            Ok(transfer) => inner.transfer = transfer,
            Err(error) => {
                inner.give_back();
                return Err(error.into());
            }
        }

        log_event!(debug, %device, "context in use");
        Ok(inner)
    }

    fn create_stream(&self) -> Result<CUstream, DriverError> {
        let _current = self.enter()?;
        let mut stream = CUstream::NULL;

        // SAFETY: `stream` is a local variable that the driver may write.
        unsafe {
            cu!(
                self.device.driver(),
                cuStreamCreate(&mut stream, CUstream_flags::NON_BLOCKING)
            )
        }?;
        Ok(stream)
    }

    /// Returns the reference that `retain` took.
    fn give_back(&self) {
        let driver = self.device.driver();
        let device = self.device.raw();
        // SAFETY: `retain` took the reference, and everything in the context was released before.
        let released = unsafe { cu!(driver, cuDevicePrimaryCtxRelease_v2(device)) };
        if let Err(error) = released {
            log_event!(warn, %error, "context not released");
        }
    }

    #[inline]
    fn enter(&self) -> Result<Current<'_>, DriverError> {
        let driver = self.device.driver();
        let mut current = CUcontext::NULL;

        // The query is much cheaper than a push and a pop, and programs usually keep one context
        // current.
        // SAFETY: `current` is a local variable that the driver may write.
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
        // SAFETY: `self` owns a reference to the primary context, so the context is alive.
        unsafe { cu!(driver, cuCtxPushCurrent_v2(self.raw)) }?;
        Ok(Current {
            driver,
            pushed: true,
            thread: std::marker::PhantomData,
        })
    }

    fn release(&self, what: DeferredFree) -> DroppedOutside {
        let current = self.enter();
        let driver = *self.device.driver();
        if current.is_ok() && self.only_its_own_stream_counts(&what) {
            return what.now(driver).into_iter().collect();
        }

        // Without the context no fence can be recorded. The resource then waits for idle streams.
        let fence = current.is_ok().then_some(driver);

        // The driver keeps an event alive while work waits for it. Memory of a stream is freed in
        // the order of that stream, so only the other streams must be waited for.
        let waits = |stream: &Arc<StreamProgress>| match &what {
            DeferredFree::Event(_) => false,
            DeferredFree::StreamMemory(_, own) => !Arc::ptr_eq(own, stream),
            _ => true,
        };
        let streams = lock(&self.streams);
        let marks: Vec<ProgressMark> = streams
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

    /// Returns true if the resource is memory of a stream, and no other stream may have work that
    /// uses it.
    ///
    /// A stream with a handle always counts. If it is the only one that counts, the host has waited
    /// for all work of the others.
    #[inline]
    fn only_its_own_stream_counts(&self, what: &DeferredFree) -> bool {
        matches!(what, DeferredFree::StreamMemory(_, own) if own.has_handle() && !self.order.several())
    }

    fn collect(&self) -> DroppedOutside {
        let Ok(_current) = self.enter() else {
            return DroppedOutside::new();
        };

        let driver = *self.device.driver();

        // Progress first: it decides which marks are reached. Marks share their streams, so
        // dropping reached ones comes before the search for streams that nothing else shares.
        let mut streams = lock(&self.streams);
        for stream in streams.iter() {
            stream.poll(driver);
        }

        self.order.forget_done();
        let done = self.pending.take_done();

        // A stream that is shared only by this list has no handle and no mark, so it gets no more
        // work.
        for gone in streams.extract_if(.., |s| Arc::strong_count(s) == 1 && s.is_idle()) {
            self.destroy(&gone);
        }

        drop(streams);
        done.into_iter()
            .filter_map(|what| what.now(driver))
            .collect()
    }

    /// Destroys an idle stream.
    fn destroy(&self, progress: &StreamProgress) {
        let driver = *self.device.driver();
        self.order.remove(progress.slot);
        for event in progress.take_events() {
            drop(DeferredFree::Event(event).now(driver));
        }
        if progress.origin == StreamOrigin::Here {
            destroy_stream(driver, progress.raw);
        }
    }

    /// Waits for all work, releases everything and returns the device to the driver.
    fn finish(self) -> DroppedOutside {
        // If the driver cannot report the current context, pushing this one may still work.
        let left = self
            .enter()
            .or_else(|_| self.push())
            .map(|_current| self.empty())
            .unwrap_or_default();

        // If the context could not be made current, nothing was waited for. Resources that queued
        // work may use are leaked then.
        std::mem::forget(self.pending.take_all());
        self.give_back();
        left
    }

    /// Waits for all work and releases everything in the context.
    fn empty(&self) -> DroppedOutside {
        let driver = *self.device.driver();
        let streams = std::mem::take(&mut *lock(&self.streams));
        for progress in streams.iter().filter(|s| !s.is_idle()) {
            // SAFETY: the list owned the stream, which is destroyed below. It does not capture,
            // because a capture shares the context, and this is its destructor.
            if let Err(error) = unsafe { wait_for_work(&driver, progress.raw) } {
                log_event!(warn, %error, "work in flight at the end of its context");
            }
        }

        let left = self
            .pending
            .take_all()
            .into_iter()
            .filter_map(|what| what.now(driver))
            .collect();
        for progress in &streams {
            self.destroy(progress);
        }

        destroy_stream(driver, self.transfer);
        left
    }
}

fn destroy_stream(driver: Driver, raw: CUstream) {
    if raw.is_null() {
        return;
    }
    // SAFETY: the caller owned the stream and has removed it from the context's list.
    if let Err(error) = unsafe { cu!(driver, cuStreamDestroy_v2(raw)) } {
        log_event!(warn, %error, "stream not destroyed");
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: a destructor runs once, so the resources are taken once and not used afterwards.
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
            // SAFETY: `popped` is a local variable that the driver may write. The context on top is
            // the one that `push` pushed, because the guard does not leave its thread.
            if let Err(error) = unsafe { cu!(self.driver, cuCtxPopCurrent_v2(&mut popped)) } {
                log_event!(warn, %error, "context not restored");
            }
        }
    }
}
