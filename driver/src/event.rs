//! An event: a place in a stream, to wait for and to measure from.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use driver_sys::{CUevent, CUevent_flags, CUipcEventHandle, CUresult};

use crate::context::expect_same;
use crate::lock::lock;
use crate::order::Clock;
use crate::release::Release;
use crate::timeline::Timeline;
use crate::{Context, DriverError, Error};

/// A place in a stream. Clones share it.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 1 << 10)?;
/// let (start, end) = (Event::new(&context)?, Event::new(&context)?);
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

/// What another process opens an event by: 64 bytes, to be sent there by whatever way the two have.
///
/// ```no_run
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// # fn receive<const N: usize>() -> [u8; N] { [0; N] }
/// # fn send<const N: usize>(bytes: &[u8; N]) {}
/// let event = Event::shared(&context)?;
/// let handle: EventHandle = event.export()?;
/// send(&handle.bytes);
///
/// // There, in another process.
/// let handle = EventHandle { bytes: receive() };
/// // SAFETY: the handle is the one that was sent, and the other process keeps the event.
/// let event = unsafe { Event::open(&context, &handle) }?;
/// stream.wait(&event)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventHandle {
    /// What the driver wrote.
    pub bytes: [u8; 64],
}

pub(crate) struct Inner {
    context: Context,
    raw: CUevent,
    /// Whether somebody else made it, who destroys it.
    borrowed: bool,
    /// Held during each call that records the event or lets a stream wait for it: what is known is what the driver has.
    recorded: Mutex<Recorded>,
}

/// What is known of an event.
#[derive(Default)]
pub(crate) struct Recorded {
    place: Place,
    /// How often the place changed.
    changes: u64,
    /// Whether a graph names it.
    in_graph: bool,
    /// Whether others record it: a graph, so that it may be anywhere from the graph's next launch on, or another
    /// process.
    by_others: bool,
}

/// Where an event was recorded last, as far as is known.
#[derive(Clone, Default)]
pub(crate) enum Place {
    /// Nowhere, or where this crate did not see it.
    #[default]
    Unknown,
    /// In a stream that captured.
    Captured,
    /// After so much work of a stream, and of others where there are several. The stream may be gone.
    Recorded(Weak<Timeline>, u64, Clock),
}

impl Recorded {
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    fn set(&mut self, place: Place) {
        let known = !self.by_others || matches!(place, Place::Captured);
        (self.place, self.changes) = (if known { place } else { Place::Unknown }, self.changes + 1);
    }

    /// Refuses an event that a capture has.
    fn expect_place(&self, what: &'static str) -> Result<Place, Error> {
        match &self.place {
            Place::Captured => Err(Error::CapturedEvent { what }),
            place => Ok(place.clone()),
        }
    }
}

impl Event {
    /// An event that keeps time.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Self::with_flags(context, CUevent_flags::empty(), Recorded::default())
    }

    /// An event without a time, which is cheaper.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn untimed(context: &Context) -> Result<Self, Error> {
        Self::with_flags(context, CUevent_flags::DISABLE_TIMING, Recorded::default())
    }

    /// An event without a time that another process may [open](Self::open). As that one may record it at any time, a
    /// wait for it orders nothing that [`Error::UnorderedStreams`] knows of: see
    /// [`Stream::assume_after`](crate::Stream::assume_after).
    ///
    /// # Errors
    /// What the driver refuses.
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

    /// A handle by which another process opens a [shared](Self::shared) event: on the same machine, and not in this
    /// process. [`Buffer::export`](crate::Buffer::export) shows both sides.
    ///
    /// # Errors
    /// What the driver refuses: an event that is not shared, or a system that cannot.
    pub fn export(&self) -> Result<EventHandle, Error> {
        let (_current, driver) = (self.0.context.enter()?, self.0.context.driver());
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: `handle` is ours to write, and the event is alive.
        unsafe { cu_if_there!(driver, cuIpcGetEventHandle(&mut handle, self.0.raw)) }?;
        Ok(EventHandle {
            bytes: handle.reserved.map(|byte| byte as u8),
        })
    }

    /// A [shared](Self::shared) event of another process.
    ///
    /// # Errors
    /// What the driver refuses: a handle of this same process, or of another device.
    ///
    /// # Safety
    /// The handle is what [`export`](Self::export) gave the other process, which keeps the event until this and its clones
    /// are dropped and the work that waits for it is done.
    pub unsafe fn open(context: &Context, handle: &EventHandle) -> Result<Self, Error> {
        let (_current, driver, mut raw) = (context.enter()?, context.driver(), CUevent::NULL);
        let handle = CUipcEventHandle {
            reserved: handle.bytes.map(|byte| byte as c_char),
        };
        // SAFETY: `raw` is ours to write; the caller vouches for the handle.
        unsafe { cu_if_there!(driver, cuIpcOpenEventHandle(&mut raw, handle)) }?;
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
        // SAFETY: `raw` is ours to write.
        unsafe { cu!(context.driver(), cuEventCreate(&mut raw, flags)) }?;
        let (context, recorded) = (context.clone(), Mutex::new(recorded));
        Ok(Self(Arc::new(Inner {
            context,
            raw,
            borrowed: false,
            recorded,
        })))
    }

    /// An event that somebody else made, such as another crate in the same process. It is not destroyed. Where others
    /// record it is not known here, so that a wait for it orders nothing that
    /// [`Error::UnorderedStreams`] knows of: see [`Stream::assume_after`](crate::Stream::assume_after).
    ///
    /// # Safety
    /// `raw` is an event of the context for as long as this or a clone of it lives.
    pub unsafe fn from_raw(context: &Context, raw: CUevent) -> Self {
        let (context, recorded) = (context.clone(), Mutex::default());
        Self(Arc::new(Inner {
            context,
            raw,
            borrowed: true,
            recorded,
        }))
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Waits until the place is passed.
    ///
    /// # Errors
    /// An event recorded last in a capture ([`Error::CapturedEvent`]), or a fault of the device.
    pub fn synchronize(&self) -> Result<(), Error> {
        let (place, changes) = {
            let recorded = self.recorded();
            (
                recorded.expect_place("waiting for it on the host")?,
                recorded.changes,
            )
        };
        let _current = self.0.context.enter()?;
        // SAFETY: the event is alive.
        let result = unsafe { cu!(self.0.context.driver(), cuEventSynchronize(self.0.raw)) };
        // Recorded anew meanwhile, the wait may have been for the new place.
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

    /// Whether the place is passed.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn is_done(&self) -> Result<bool, Error> {
        let recorded = self.recorded();
        let place = recorded.expect_place("asking for it")?;
        let (_current, driver) = (self.0.context.enter()?, self.0.context.driver());
        // SAFETY: the event is alive; a query changes nothing.
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

    /// The time on the device from `start` to this.
    ///
    /// # Errors
    /// An event of another context, one recorded last in a capture, or one that was not recorded, is not passed yet,
    /// or keeps no time.
    pub fn since(&self, start: &Self) -> Result<Duration, Error> {
        start.expect_in(&self.0.context, "an event to measure to")?;
        for event in [start, self] {
            event.recorded().expect_place("measuring from or to it")?;
        }
        let _current = self.0.context.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive; the number is ours to write.
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

    /// The raw handle.
    pub fn raw(&self) -> CUevent {
        self.0.raw
    }

    /// What is known of it, which does not change until this is given back. The lock of a stream is taken before.
    pub(crate) fn recorded(&self) -> MutexGuard<'_, Recorded> {
        lock(&self.0.recorded)
    }

    /// Records it by a call, in that place.
    pub(crate) fn record_by(
        &self,
        place: Place,
        call: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let mut recorded = self.recorded();
        call()?;
        recorded.set(place);
        Ok(())
    }

    /// A graph records it from now on, wherever and whenever that is launched.
    pub(crate) fn give_to_graph(&self) {
        let mut recorded = self.recorded();
        (recorded.in_graph, recorded.by_others) = (true, true);
        let captured = matches!(recorded.place, Place::Captured);
        recorded.set(if captured {
            Place::Captured
        } else {
            Place::Unknown
        });
    }

    /// A graph waits for it.
    pub(crate) fn lend_to_graph(&self) {
        self.recorded().in_graph = true;
    }

    pub(crate) fn expect_in(&self, context: &Context, user: &str) -> Result<(), Error> {
        expect_same("an event", &self.0.context, user, context)
    }

    /// Remembers that the place was passed.
    fn passed(&self, place: &Place) {
        if let Place::Recorded(timeline, queued, clock) = place {
            if let Some(timeline) = timeline.upgrade() {
                timeline.reached(*queued);
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
    /// The driver keeps an event that a stream still waits for, but says no such thing of a graph.
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        let in_graph = lock(&self.recorded).in_graph;
        self.context.release(if in_graph {
            Release::GraphEvent(self.raw)
        } else {
            Release::Event(self.raw)
        });
    }
}
