//! Keeps the driver calls of destructors out of captures.
//!
//! While a stream captures, the driver refuses most calls that a destructor makes and invalidates
//! the capture. Depending on the capture's mode this applies to the capturing thread or to every
//! thread. A destructor's calls are therefore deferred until the driver has no capture left. The
//! same lock covers the check and the calls, so that no capture can begin between them.
//!
//! A host function runs on a thread of the driver and must not call the driver. Objects dropped
//! there are released by the next destructor on another thread.

use std::any::Any;
use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, RwLock};

use crate::lifetime::unpoisoned_lock::{lock, read, write};

thread_local! {
    /// Whether this thread is a thread of the driver that runs a host function.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    /// Whether errors on this thread are ignored.
    static UNREPORTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs driver calls and ignores their errors.
///
/// The driver's log messages stay queued and are attached to the next error that is reported.
pub(crate) fn unreported<T>(calls: impl FnOnce() -> T) -> T {
    let set = |value| {
        UNREPORTED
            .try_with(|unreported| unreported.replace(value))
            .unwrap_or(false)
    };
    let before = set(true);
    let result = calls();
    set(before);
    result
}

/// Returns true if errors on this thread are ignored, as in [`unreported`].
pub(crate) fn is_unreported() -> bool {
    UNREPORTED.try_with(Cell::get).unwrap_or(false)
}

/// Runs a host function, which must not unwind. Driver calls of destructors in it are deferred.
pub(crate) fn in_host_function(function: impl FnOnce()) {
    let before = IN_HOST_FUNCTION.replace(true);
    function();
    IN_HOST_FUNCTION.set(before);
}

/// Returns true if this thread runs a host function.
fn is_in_host_function() -> bool {
    IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false)
}

/// Driver calls that wait for the end of all captures. Their results are dropped outside the lock.
type Waiting = Vec<Box<dyn FnOnce() -> Box<dyn Any> + Send>>;

/// The captures of one driver, and the calls that wait for their end.
#[derive(Default)]
pub(crate) struct CaptureGate {
    captures: RwLock<usize>,
    /// Hint that a capture may be active. Take the lock to be certain.
    any: AtomicBool,
    waiting: Mutex<Waiting>,
    /// Hint that calls may be waiting. Take the lock to be certain.
    waits: AtomicBool,
}

impl CaptureGate {
    /// Begins a capture with `start`, after the driver calls of running destructors have returned.
    pub(crate) fn begin<R, E>(&self, start: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        let mut captures = write(&self.captures);
        let started = start()?;
        *captures += 1;
        self.any.store(true, Release);
        Ok(started)
    }

    /// Ends a capture that [`begin`](Self::begin) began. If it was the last one, makes the deferred
    /// calls.
    pub(crate) fn end(&self) {
        let mut captures = write(&self.captures);
        *captures -= 1;
        if *captures == 0 {
            self.any.store(false, Release);
            let waiting = self.take_waiting();
            // `pass` takes the lock itself. If another capture begins first, it defers the calls
            // again.
            drop(captures);
            for call in waiting {
                self.pass(call);
            }
        }
    }

    /// Returns true if a capture is active. The answer may be out of date immediately, because
    /// other threads begin and end captures.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// Runs `calls` immediately and returns their result, or returns `None` if a capture is active.
    pub(crate) fn pass_now<T>(&self, calls: impl FnOnce() -> T) -> Option<T> {
        if is_in_host_function() {
            return None;
        }
        self.catch_up();
        let captures = read(&self.captures);
        if *captures > 0 {
            return None;
        }
        Some(unreported(calls))
    }

    /// Runs a destructor's calls immediately, or defers them until no capture is active.
    ///
    /// Their result is dropped outside the lock. The calls must return every object that has a
    /// destructor of this crate, because dropping it inside would take the same lock again.
    pub(crate) fn pass<T: 'static>(&self, calls: impl FnOnce() -> T + Send + 'static) {
        if is_in_host_function() {
            return self.put_off(calls);
        }

        let captures = read(&self.captures);
        if *captures > 0 {
            return self.put_off(calls);
        }

        let left = unreported(calls);
        drop(captures);
        drop(left);
        self.catch_up();
    }

    /// Runs a destructor's calls on `with` immediately, or returns `with` if they cannot run now.
    ///
    /// Unlike [`pass`](Self::pass) the calls may borrow. The caller needs its own share of the
    /// context only if the calls are deferred.
    pub(crate) fn pass_with<W, T>(&self, with: W, calls: impl FnOnce(W) -> T) -> Result<(), W> {
        if is_in_host_function() {
            return Err(with);
        }

        let captures = read(&self.captures);
        if *captures > 0 {
            return Err(with);
        }

        let left = unreported(|| calls(with));
        drop(captures);
        drop(left);
        self.catch_up();
        Ok(())
    }

    /// Defers calls until no capture is active.
    fn put_off<T: 'static>(&self, calls: impl FnOnce() -> T + Send + 'static) {
        let mut waiting = lock(&self.waiting);
        waiting.push(Box::new(move || Box::new(calls())));
        self.waits.store(true, Release);
    }

    fn take_waiting(&self) -> Waiting {
        let mut waiting = lock(&self.waiting);
        self.waits.store(false, Release);
        std::mem::take(&mut *waiting)
    }

    /// Makes the deferred calls, unless a capture is active.
    fn catch_up(&self) {
        if self.any() || !self.waits.load(Acquire) {
            return;
        }
        for call in self.take_waiting() {
            self.pass(call);
        }
    }
}
