//! What keeps destructors out of captures.
//!
//! While a stream captures, most calls that a destructor makes are refused and end the capture: on the capturing
//! thread, or on every thread. So a destructor's calls wait until no capture of the driver is left. One lock covers
//! the question and the calls, so that no capture begins between the two.
//!
//! Nor may a function of the host, which runs on a thread of the driver, call the driver: what is dropped in one waits
//! for the next destructor elsewhere.

use std::any::Any;
use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, RwLock};

use crate::lock::{lock, read, write};

thread_local! {
    /// Whether this thread of the driver runs a function of the host.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function of the host, which does not unwind.
pub(crate) fn host_function(function: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
}

fn in_host_function() -> bool {
    IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false)
}

/// Calls that wait for the end of the captures. What one returns is dropped outside of the lock.
type Waiting = Vec<Box<dyn FnOnce() -> Box<dyn Any> + Send>>;

/// The captures of one driver, and what waits for their end.
#[derive(Default)]
pub(crate) struct Gate {
    captures: RwLock<usize>,
    /// Whether there are any, for who need not be sure.
    any: AtomicBool,
    waiting: Mutex<Waiting>,
}

impl Gate {
    /// Begins a capture by `start`, once no destructor is in the driver.
    pub(crate) fn begin<R, E>(&self, start: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        let mut captures = write(&self.captures);
        let started = start()?;
        *captures += 1;
        self.any.store(true, Release);
        Ok(started)
    }

    /// Ends what [`begin`](Self::begin) began, and makes the calls that waited.
    pub(crate) fn end(&self) {
        let mut captures = write(&self.captures);
        *captures -= 1;
        if *captures == 0 {
            self.any.store(false, Release);
            let waiting = std::mem::take(&mut *lock(&self.waiting));
            drop(captures);
            waiting.into_iter().for_each(|call| self.pass(call));
        }
    }

    /// Whether a capture lasts. Another thread may begin or end one right after.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// Makes such calls now, or not at all while a capture lasts.
    pub(crate) fn pass_now<T>(&self, calls: impl FnOnce() -> T) -> Option<T> {
        if in_host_function() {
            return None;
        }
        self.catch_up();
        let captures = read(&self.captures);
        (*captures == 0).then(calls)
    }

    /// Makes a destructor's calls now, or once no capture is left. What they return is dropped outside of the lock:
    /// whatever has a destructor of this crate must be returned, because that would come here again.
    pub(crate) fn pass<T: 'static>(&self, calls: impl FnOnce() -> T + Send + 'static) {
        if in_host_function() {
            lock(&self.waiting).push(Box::new(move || Box::new(calls())));
            return;
        }
        let captures = read(&self.captures);
        if *captures > 0 {
            lock(&self.waiting).push(Box::new(move || Box::new(calls())));
            return;
        }
        let left = calls();
        drop(captures);
        drop(left);
        self.catch_up();
    }

    /// Makes the calls that waited, unless a capture lasts.
    fn catch_up(&self) {
        if self.any() {
            return;
        }
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        waiting.into_iter().for_each(|call| self.pass(call));
    }
}
