//! An event: a place in a stream, to wait for and to measure from.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use driver_sys::{CUevent, CUevent_flags, CUresult};

use crate::lock::lock;
use crate::order::Clock;
use crate::release::Release;
use crate::timeline::Mark;
use crate::{Context, Error, Stream};

/// A place in a stream. Clones share it.
#[derive(Clone)]
pub struct Event(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    context: Context,
    raw: CUevent,
    /// Whether somebody else made it, who destroys it.
    borrowed: bool,
    place: Mutex<Place>,
}

/// Where an event was recorded last, as far as is known.
#[derive(Clone, Default)]
pub(crate) enum Place {
    /// Nowhere, or where this crate did not see it.
    #[default]
    Unknown,
    /// In a stream that captured.
    Captured,
    /// After so much work of a stream, and of others where there are several.
    Recorded(Mark, Clock),
}

impl Event {
    /// An event that keeps time.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Self::with_flags(context, CUevent_flags::empty())
    }

    /// An event without a time, which is cheaper.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn untimed(context: &Context) -> Result<Self, Error> {
        Self::with_flags(context, CUevent_flags::DISABLE_TIMING)
    }

    fn with_flags(context: &Context, flags: CUevent_flags) -> Result<Self, Error> {
        let _current = context.enter()?;
        let mut raw = CUevent::NULL;
        // SAFETY: `raw` is ours to write.
        unsafe { cu!(context.driver(), cuEventCreate(&mut raw, flags)) }?;
        let (context, place) = (context.clone(), Mutex::default());
        Ok(Self(Arc::new(Inner { context, raw, borrowed: false, place })))
    }

    /// An event that somebody else made, such as another crate in the same process. It is not destroyed. Where others
    /// record it is not known here, so that a wait for it orders nothing that
    /// [`Error::UnorderedStreams`] knows of: see [`Stream::assume_after`].
    ///
    /// # Safety
    /// `raw` is an event of the context for as long as this or a clone of it lives.
    pub unsafe fn from_raw(context: &Context, raw: CUevent) -> Self {
        let (context, place) = (context.clone(), Mutex::default());
        Self(Arc::new(Inner { context, raw, borrowed: true, place }))
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Marks the place after everything queued in the stream so far.
    ///
    /// # Errors
    /// A stream of another context, or what the driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        stream.record(self)
    }

    /// Waits until the place is passed.
    ///
    /// # Errors
    /// An event recorded last in a capture ([`Error::CapturedEvent`]), or a fault of the device.
    pub fn synchronize(&self) -> Result<(), Error> {
        let place = self.expect_recorded("waiting for it on the host")?;
        let _current = self.0.context.enter()?;
        // SAFETY: the event is alive.
        let result = unsafe { cu!(self.0.context.driver(), cuEventSynchronize(self.0.raw)) };
        self.passed(&place, result.as_ref().err().is_none_or(|e| e.code.is_device_fault()));
        result.map_err(Error::from)
    }

    /// Whether the place is passed.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn is_done(&self) -> Result<bool, Error> {
        let place = self.expect_recorded("asking for it")?;
        let (_current, driver) = (self.0.context.enter()?, self.0.context.driver());
        // SAFETY: the event is alive; a query changes nothing.
        match unsafe { (driver.api().cuEventQuery)(self.0.raw) } {
            CUresult::NOT_READY => Ok(false),
            code => {
                driver.check("cuEventQuery", code)?;
                self.passed(&place, true);
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
            event.expect_recorded("measuring from or to it")?;
        }
        let _current = self.0.context.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive; the number is ours to write.
        unsafe {
            cu!(self.0.context.driver(), cuEventElapsedTime(&mut milliseconds, start.0.raw, self.0.raw))
        }?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    /// The raw handle.
    pub fn raw(&self) -> CUevent {
        self.0.raw
    }

    pub(crate) fn place(&self) -> Place {
        lock(&self.0.place).clone()
    }

    /// Remembers where the event was recorded.
    pub(crate) fn set_place(&self, place: Place) {
        let old = std::mem::replace(&mut *lock(&self.0.place), place);
        drop(old);
    }

    pub(crate) fn expect_in(&self, context: &Context, user: &str) -> Result<(), Error> {
        expect_same("an event", &self.0.context, user, context)
    }

    /// Refuses an event that a capture has.
    fn expect_recorded(&self, what: &'static str) -> Result<Place, Error> {
        match self.place() {
            Place::Captured => Err(Error::CapturedEvent { what }),
            place => Ok(place),
        }
    }

    /// Remembers that the place was passed.
    fn passed(&self, place: &Place, passed: bool) {
        if let (Place::Recorded(mark, clock), true) = (place, passed) {
            mark.timeline.reached(mark.queued);
            self.0.context.order().wait(clock);
        }
    }
}

/// Refuses to let things of two contexts meet.
#[inline]
pub(crate) fn expect_same(what: &str, theirs: &Context, user: &str, ours: &Context) -> Result<(), Error> {
    if theirs.same(ours) { Ok(()) } else { Err(wrong_context(what, theirs, user, ours)) }
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

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:?})", self.0.raw.0)
    }
}

impl Drop for Inner {
    /// The driver keeps an event that work still waits for.
    fn drop(&mut self) {
        if !self.borrowed {
            self.context.release(Release::Event(self.raw));
        }
    }
}
