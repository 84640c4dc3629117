//! The captures of the current thread: the calls they forbid, and the first call that failed.
//!
//! The driver refuses a forbidden call and invalidates the capture. Checking here first keeps the
//! capture valid and names the call.

use std::cell::RefCell;

use crate::error::{DriverError, Error};

/// The calls that a capture forbids while it lasts, such as allocation and module loading.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let step = |queue: &mut Capture<'_>| {
///     let scratch = Buffer::<f32>::uninit(queue.context(), 4)?; // an allocation during the capture
///     queue.copy(&x, &scratch)
/// };
/// assert!(capture(&stream, CaptureMode::ThreadLocal, step).is_err());
/// assert_eq!(capture(&stream, CaptureMode::Relaxed, step)?.nodes().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureMode {
    /// Forbids such calls on every thread whose own mode is global, which is the default mode of a
    /// thread.
    ///
    /// [`Error::Forbidden`] protects only the thread that captures. A call of another thread is
    /// refused by the driver and invalidates this capture. If other threads allocate or load
    /// modules, use [`ThreadLocal`](Self::ThreadLocal).
    Global,
    /// Forbids such calls on the capturing thread. This is the usual choice.
    ThreadLocal,
    /// Forbids no calls. For example, memory can be allocated during the capture.
    Relaxed,
}

thread_local! {
    /// The captures of this thread, the innermost last.
    static REGIONS: RefCell<Vec<CaptureRegion>> = const { RefCell::new(Vec::new()) };
}

/// A capture of this thread: its mode, and the first failure while it lasted.
struct CaptureRegion {
    mode: CaptureMode,
    failed: Option<DriverError>,
}

/// Records that this thread begins a capture.
pub(crate) fn enter(mode: CaptureMode) {
    REGIONS.with_borrow_mut(|regions| regions.push(CaptureRegion { mode, failed: None }));
}

/// Records the end of the innermost capture of this thread and returns the first failure in it.
pub(crate) fn leave() -> Option<DriverError> {
    REGIONS
        .with_borrow_mut(Vec::pop)
        .and_then(|here| here.failed)
}

/// Records a failure if it is the first one in the innermost capture of this thread.
///
/// Does nothing while the thread exits, because its thread-local storage may be gone.
pub(crate) fn note(error: &DriverError) {
    let _ = REGIONS.try_with(|regions| {
        if let Ok(mut regions) = regions.try_borrow_mut()
            && let Some(here) = regions.last_mut()
        {
            here.failed.get_or_insert_with(|| error.clone());
        }
    });
}

/// Checks that no capture of this thread forbids a call.
///
/// # Errors
/// Returns [`Error::Forbidden`] if the driver would refuse the call and invalidate the capture.
pub(crate) fn forbid(what: &'static str) -> Result<(), Error> {
    let forbids = |here: &CaptureRegion| here.mode != CaptureMode::Relaxed;
    let captures = REGIONS.try_with(|regions| {
        regions
            .try_borrow()
            .is_ok_and(|all| all.iter().any(forbids))
    });
    match captures {
        Ok(true) => Err(Error::Forbidden {
            what,
            why: "the driver would refuse the call and end the capture",
        }),
        _ => Ok(()),
    }
}
