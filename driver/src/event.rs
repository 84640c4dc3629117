//! An event: a place in a stream, to wait for and to measure from.

use std::sync::Arc;
use std::time::Duration;

use driver_sys::{CUevent, CUevent_flags};

use crate::context::{Owner, Release};
use crate::{Context, Error, Stream};

/// A place in a stream. Clones share it.
#[derive(Clone)]
pub struct Event(Arc<Inner>);

struct Inner {
    context: Context,
    raw: CUevent,
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
        Ok(Self(Arc::new(Inner { context: context.clone(), raw })))
    }

    /// Marks the place after everything queued in the stream so far.
    ///
    /// # Errors
    /// A stream of another context, or what the driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        self.expect_in(stream.context(), "a stream")?;
        let _current = self.0.context.enter()?;
        // SAFETY: event and stream are alive and of one context.
        unsafe { cu!(self.0.context.driver(), cuEventRecord(self.0.raw, stream.raw())) }?;
        Ok(())
    }

    /// Waits until the place is passed.
    ///
    /// # Errors
    /// A fault of the device.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.0.context.enter()?;
        // SAFETY: the event is alive.
        unsafe { cu!(self.0.context.driver(), cuEventSynchronize(self.0.raw)) }?;
        Ok(())
    }

    /// The time on the device from `start` to this.
    ///
    /// # Errors
    /// An event that was not recorded, is not passed yet, or keeps no time.
    pub fn since(&self, start: &Self) -> Result<Duration, Error> {
        let _current = self.0.context.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive; the number is ours to write.
        unsafe {
            cu!(self.0.context.driver(), cuEventElapsedTime(&mut milliseconds, start.0.raw, self.0.raw))
        }?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    pub(crate) fn raw(&self) -> CUevent {
        self.0.raw
    }

    pub(crate) fn owner(&self) -> Owner {
        self.0.clone()
    }

    pub(crate) fn expect_in(&self, context: &Context, user: &str) -> Result<(), Error> {
        expect_same("an event", &self.0.context, user, context)
    }
}

/// Refuses to let things of two contexts meet.
pub(crate) fn expect_same(what: &str, theirs: &Context, user: &str, ours: &Context) -> Result<(), Error> {
    if theirs.same(ours) {
        return Ok(());
    }
    Err(Error::WrongContext {
        what: what.to_string(),
        theirs: theirs.device().to_string(),
        user: user.to_string(),
        ours: ours.device().to_string(),
    })
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.context.release(Release::Event(self.raw));
    }
}
