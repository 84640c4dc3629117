//! Events: points in streams to wait for and to measure time between.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use driver_sys::{CUevent, CUevent_flags, CUipcEventHandle, CUresult};

use crate::device::Context;
use crate::device::context::expect_same;
use crate::error::{DriverError, Error};
use crate::lifetime::deferred_free::DeferredFree;
use crate::lifetime::stream_order::VectorClock;
use crate::lifetime::stream_progress::StreamProgress;
use crate::lifetime::unpoisoned_lock::lock;

/// A point in a stream that other streams and the host can wait for. Clones refer to the same
/// event.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 1 << 10)?;
/// let start = Event::new(&context)?;
/// let end = Event::new(&context)?;
/// start.record(&stream)?;
/// stream.fill(&x, 1.0)?;
/// end.record(&stream)?;
/// end.synchronize()?;
/// println!("{:?}", end.since(&start)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Event(pub(crate) Arc<Inner>);

/// A handle with which another process opens a shared event.
///
/// It consists of 64 bytes that you send to the other process, for example through a pipe.
///
/// ```no_run
/// # use warpwright_driver::ordering::EventHandle;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// # fn receive<const N: usize>() -> [u8; N] { [0; N] }
/// # fn send<const N: usize>(bytes: &[u8; N]) {}
/// let event = Event::shared(&context)?;
/// let handle: EventHandle = event.export()?;
/// send(&handle.bytes);
///
/// // In the other process:
/// let handle = EventHandle { bytes: receive() };
/// // SAFETY: the handle was exported by the other process, which keeps the event.
/// let event = unsafe { Event::open(&context, &handle) }?;
/// stream.wait(&event)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventHandle {
    /// The bytes of the handle, as the driver wrote them.
    pub bytes: [u8; 64],
}

pub(crate) struct Inner {
    context: Context,
    raw: CUevent,
    /// Whether the event was created elsewhere, so that dropping it must not destroy it.
    borrowed: bool,
    /// The state of the event.
    ///
    /// It is locked during each driver call that records the event or makes a stream wait for it.
    /// The recorded point therefore always matches the driver's.
    recorded: Mutex<Recorded>,
}

/// The state of an event as far as this crate knows it.
#[derive(Default)]
pub(crate) struct Recorded {
    place: RecordedPoint,
    /// The number of changes of the point.
    changes: u64,
    /// Whether a graph uses the event.
    in_graph: bool,
    /// Whether a graph or another process records the event. A graph may record it in any stream
    /// from its next launch on.
    by_others: bool,
}

/// The point at which an event was last recorded, if this crate saw it.
#[derive(Clone, Default)]
pub(crate) enum RecordedPoint {
    /// Not recorded, or recorded in a way that this crate did not see.
    #[default]
    Unknown,
    /// In a stream that captured.
    CapturedStreams,
    /// After this many operations of a stream, with the clock of that point. The stream may be
    /// destroyed.
    Recorded(Weak<StreamProgress>, u64, VectorClock),
}

impl Recorded {
    pub(crate) fn place(&self) -> &RecordedPoint {
        &self.place
    }

    fn set(&mut self, place: RecordedPoint) {
        let known = !self.by_others || matches!(place, RecordedPoint::CapturedStreams);
        self.place = if known { place } else { RecordedPoint::Unknown };
        self.changes += 1;
    }

    /// Returns the point, or an error for an event that was recorded in a capture.
    fn expect_place(&self, what: &'static str) -> Result<RecordedPoint, Error> {
        match &self.place {
            RecordedPoint::CapturedStreams => Err(Error::CapturedEvent { what }),
            place => Ok(place.clone()),
        }
    }
}

impl Event {
    /// Creates an event that records the time.
    ///
    /// # Errors
    /// Returns an error if the driver cannot create the event.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Self::with_flags(context, CUevent_flags::empty(), Recorded::default())
    }

    /// Creates an event without a time, which is cheaper to record.
    ///
    /// # Errors
    /// Returns an error if the driver cannot create the event.
    pub fn untimed(context: &Context) -> Result<Self, Error> {
        Self::with_flags(context, CUevent_flags::DISABLE_TIMING, Recorded::default())
    }

    /// Creates an event without a time that another process can [open](Self::open).
    ///
    /// The other process may record the event at any time. A wait for it therefore does not order
    /// work for the check of [`Error::UnorderedStreams`]. See
    /// [`Stream::assume_after`](crate::stream::Stream::assume_after).
    ///
    /// # Errors
    /// Returns an error if the driver cannot create the event.
    pub fn shared(context: &Context) -> Result<Self, Error> {
        let flags = CUevent_flags::DISABLE_TIMING | CUevent_flags::INTERPROCESS;
        Self::with_flags(
            context,
            flags,
            Recorded {
                by_others: true,
                ..Recorded::default()
            },
        )
    }

    /// Returns a handle with which another process on the same machine can [open](Self::open) this
    /// event.
    ///
    /// The example of [`Buffer::export`](crate::memory::Buffer::export) shows both processes.
    ///
    /// # Errors
    /// Returns an error if the event is not [shared](Self::shared), or if the system does not
    /// support sharing.
    pub fn export(&self) -> Result<EventHandle, Error> {
        let _current = self.0.context.enter()?;
        let driver = self.0.context.driver();
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: `handle` is a local variable that the driver may write. The event is alive,
        // because `self` shares it.
        unsafe { cu_optional!(driver, cuIpcGetEventHandle(&mut handle, self.0.raw)) }?;
        Ok(EventHandle {
            bytes: handle.reserved.map(|byte| byte as u8),
        })
    }

    /// Opens a [shared](Self::shared) event of another process.
    ///
    /// # Errors
    /// Returns an error if the handle is from this process or from another device.
    ///
    /// # Safety
    /// - The handle must come from [`export`](Self::export) in the other process.
    /// - The other process must keep the event until this event and its clones are dropped and the
    ///   work that waits for it is complete.
    pub unsafe fn open(context: &Context, handle: &EventHandle) -> Result<Self, Error> {
        let _current = context.enter()?;
        let driver = context.driver();
        let mut raw = CUevent::NULL;
        let handle = CUipcEventHandle {
            reserved: handle.bytes.map(|byte| byte as c_char),
        };

        // SAFETY: `raw` is a local variable that the driver may write. The caller guarantees that
        // the handle comes from `export`.
        unsafe { cu_optional!(driver, cuIpcOpenEventHandle(&mut raw, handle)) }?;
        let recorded = Mutex::new(Recorded {
            by_others: true,
            ..Recorded::default()
        });
        Ok(Self(Arc::new(Inner {
            context: context.clone(),
            raw,
            borrowed: false,
            recorded,
        })))
    }

    fn with_flags(
        context: &Context,
        flags: CUevent_flags,
        recorded: Recorded,
    ) -> Result<Self, Error> {
        let _current = context.enter()?;
        let mut raw = CUevent::NULL;

        // SAFETY: `raw` is a local variable that the driver may write.
        unsafe { cu!(context.driver(), cuEventCreate(&mut raw, flags)) }?;
        let context = context.clone();
        let recorded = Mutex::new(recorded);
        Ok(Self(Arc::new(Inner {
            context,
            raw,
            borrowed: false,
            recorded,
        })))
    }

    /// Wraps an event created elsewhere, for example by another crate in the same process. Dropping
    /// the `Event` does not destroy the handle.
    ///
    /// This crate does not see where other code records the event. A wait for it therefore does not
    /// order work for the check of [`Error::UnorderedStreams`]. See
    /// [`Stream::assume_after`](crate::stream::Stream::assume_after).
    ///
    /// # Safety
    /// `raw` must be an event of the context while this event or a clone of it lives.
    pub unsafe fn from_raw(context: &Context, raw: CUevent) -> Self {
        let context = context.clone();
        let recorded = Mutex::default();
        Self(Arc::new(Inner {
            context,
            raw,
            borrowed: true,
            recorded,
        }))
    }

    /// Returns the context of the event.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Waits on the host until the stream has reached the recorded point.
    ///
    /// # Errors
    /// Returns [`Error::CapturedEvent`] if the event was last recorded in a capture, or an error if
    /// the device has faulted.
    pub fn synchronize(&self) -> Result<(), Error> {
        // The lock is released before the wait, because recording would block on it.
        let recorded = self.recorded();
        let place = recorded.expect_place("waiting for it on the host")?;
        let changes = recorded.changes;
        drop(recorded);
        let _current = self.0.context.enter()?;

        // SAFETY: the event is alive, because `self` shares it.
        let result = unsafe { cu!(self.0.context.driver(), cuEventSynchronize(self.0.raw)) };

        // If the event was recorded again meanwhile, the wait may have been for the new point. Then
        // it shows nothing about the old one.
        let same = self.recorded().changes == changes;
        if same
            && result
                .as_ref()
                .err()
                .is_none_or(|e| e.code.is_device_fault())
        {
            self.passed(&place);
        }

        result.map_err(Error::from)
    }

    /// Returns true if the stream has reached the recorded point.
    ///
    /// # Errors
    /// Returns [`Error::CapturedEvent`] if the event was last recorded in a capture, or an error if
    /// the device has faulted.
    pub fn is_done(&self) -> Result<bool, Error> {
        // A query is short, so the lock is kept and the answer belongs to this point.
        let recorded = self.recorded();
        let place = recorded.expect_place("asking for it")?;
        let _current = self.0.context.enter()?;
        let driver = self.0.context.driver();

        // SAFETY: the event is alive, because `self` shares it. A query changes nothing.
        match unsafe { (driver.api().cuEventQuery)(self.0.raw) } {
            CUresult::NOT_READY => Ok(false),
            code => {
                driver.check("cuEventQuery", code)?;
                drop(recorded);
                self.passed(&place);
                Ok(true)
            }
        }
    }

    /// Returns the time on the device from `start` to this event.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the events belong to different contexts.
    /// - [`Error::CapturedEvent`] if one of them was last recorded in a capture.
    /// - [`Error::Driver`] if one of them was not recorded, is not reached yet, or records no time.
    pub fn since(&self, start: &Self) -> Result<Duration, Error> {
        start.expect_in(&self.0.context, "an event to measure to")?;
        for event in [start, self] {
            event.recorded().expect_place("measuring from or to it")?;
        }

        let _current = self.0.context.enter()?;
        let mut milliseconds = 0.0;

        // SAFETY: both events are alive, because the references share them. `milliseconds` is a
        // local variable that the driver may write.
        unsafe {
            cu!(
                self.0.context.driver(),
                cuEventElapsedTime(&mut milliseconds, start.0.raw, self.0.raw)
            )
        }?;
        Ok(Duration::from_secs_f64(
            f64::from(milliseconds.max(0.0)) / 1e3,
        ))
    }

    /// Returns the raw handle.
    pub fn raw(&self) -> CUevent {
        self.0.raw
    }

    /// Locks the state of the event. The lock of a stream must be taken before this one.
    pub(crate) fn recorded(&self) -> MutexGuard<'_, Recorded> {
        lock(&self.0.recorded)
    }

    /// Records the event with `call`, at the given point.
    pub(crate) fn record_by(
        &self,
        place: RecordedPoint,
        call: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let mut recorded = self.recorded();
        call()?;
        recorded.set(place);
        Ok(())
    }

    /// Marks the event as recorded by a graph, which may happen at any time and in any stream.
    pub(crate) fn give_to_graph(&self) {
        let mut recorded = self.recorded();
        recorded.in_graph = true;
        recorded.by_others = true;

        // An event of a capture stays one. The driver refuses to wait for it until it is recorded
        // again.
        if matches!(recorded.place, RecordedPoint::CapturedStreams) {
            recorded.set(RecordedPoint::CapturedStreams);
        } else {
            recorded.set(RecordedPoint::Unknown);
        }
    }

    /// Marks the event as used by a graph that waits for it.
    pub(crate) fn lend_to_graph(&self) {
        self.recorded().in_graph = true;
    }

    pub(crate) fn expect_in(&self, context: &Context, user: &str) -> Result<(), Error> {
        expect_same("an event", &self.0.context, user, context)
    }

    /// Records that the host knows the point to be reached.
    fn passed(&self, place: &RecordedPoint) {
        if let RecordedPoint::Recorded(progress, queued, clock) = place {
            if let Some(progress) = progress.upgrade() {
                progress.reached(*queued);
            }
            self.0.context.order().wait(clock);
        }
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:?})", self.0.raw.0)
    }
}

impl Drop for Inner {
    /// Releases the event, unless it was created elsewhere.
    ///
    /// The driver keeps an event that a stream waits for. It makes no such promise for graphs, so
    /// an event that a graph uses is released like memory.
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        let in_graph = lock(&self.recorded).in_graph;
        self.context.release(if in_graph {
            DeferredFree::GraphEvent(self.raw)
        } else {
            DeferredFree::Event(self.raw)
        });
    }
}
