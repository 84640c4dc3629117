//! The captures that a thread is in: what they forbid, and what failed first.

use std::cell::RefCell;

use crate::{DriverError, Error};

/// Which calls a capture forbids meanwhile: allocation, module loading and such.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let step = |queue: &mut Capture<'_>| {
///     let scratch = Buffer::<f32>::uninit(queue.context(), 4)?; // an allocation meanwhile
///     queue.copy(&x, &scratch)
/// };
/// assert!(capture(&stream, CaptureMode::ThreadLocal, step).is_err());
/// assert_eq!(capture(&stream, CaptureMode::Relaxed, step)?.nodes().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureMode {
    /// On every thread whose own mode is global, as it is unless a program changes it. What another thread calls
    /// meanwhile is refused by the driver, and ends this capture: [`Error::Forbidden`] keeps only the thread that
    /// captures from such calls. Where other threads allocate or load, use [`ThreadLocal`](Self::ThreadLocal).
    Global,
    /// On this thread. The usual choice.
    ThreadLocal,
    /// Nowhere.
    Relaxed,
}

thread_local! {
    /// The captures that this thread is in.
    static REGIONS: RefCell<Vec<Here>> = const { RefCell::new(Vec::new()) };
}

/// A capture of this thread: what it forbids, and the first failure of its region.
struct Here {
    mode: CaptureMode,
    failed: Option<DriverError>,
}

/// This thread begins a capture.
pub(crate) fn enter(mode: CaptureMode) {
    REGIONS.with_borrow_mut(|regions| regions.push(Here { mode, failed: None }));
}

/// The innermost capture of this thread is over. The first failure in it.
pub(crate) fn leave() -> Option<DriverError> {
    REGIONS
        .with_borrow_mut(Vec::pop)
        .and_then(|here| here.failed)
}

/// Remembers the first failure of the innermost region on this thread. At the thread's end there is none.
pub(crate) fn note(error: &DriverError) {
    let _ = REGIONS.try_with(|regions| {
        if let Ok(mut regions) = regions.try_borrow_mut()
            && let Some(here) = regions.last_mut()
        {
            here.failed.get_or_insert_with(|| error.clone());
        }
    });
}

/// Refuses a call that the driver refuses while this thread captures, and by which it would end the capture.
pub(crate) fn forbid(what: &'static str) -> Result<(), Error> {
    let forbids = |here: &Here| here.mode != CaptureMode::Relaxed;
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
