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
    /// Whether nobody is told of a failure on this thread.
    static UNTOLD: Cell<bool> = const { Cell::new(false) };
}

/// Makes calls of whose failures nobody is told: what the driver logs of them, and of work before, is left to the next
/// failure that somebody is told of.
pub(crate) fn untold<T>(calls: impl FnOnce() -> T) -> T {
    let set = |value| {
        UNTOLD
            .try_with(|untold| untold.replace(value))
            .unwrap_or(false)
    };
    let before = set(true);
    let result = calls();
    set(before);
    result
}

/// Whether nobody is told of a failure on this thread.
pub(crate) fn is_untold() -> bool {
    UNTOLD.try_with(Cell::get).unwrap_or(false)
}

/// Runs a function of the host, which must not unwind: calls to the driver that destructors make in it are put off.
pub(crate) fn in_host_function(function: impl FnOnce()) {
    let before = IN_HOST_FUNCTION.replace(true);
    function();
    IN_HOST_FUNCTION.set(before);
}

/// Returns true if this thread runs a function of the host.
fn is_in_host_function() -> bool {
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
    /// Whether something waits, for who need not be sure.
    waits: AtomicBool,
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
            let waiting = self.take_waiting();
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
        if is_in_host_function() {
            return None;
        }
        self.catch_up();
        let captures = read(&self.captures);
        (*captures == 0).then(|| untold(calls))
    }

    /// Makes a destructor's calls now, or once no capture is left. What they return is dropped outside of the lock:
    /// whatever has a destructor of this crate must be returned, because that would come here again.
    pub(crate) fn pass<T: 'static>(&self, calls: impl FnOnce() -> T + Send + 'static) {
        if is_in_host_function() {
            return self.put_off(calls);
        }
        let captures = read(&self.captures);
        if *captures > 0 {
            return self.put_off(calls);
        }
        let left = untold(calls);
        drop(captures);
        drop(left);
        self.catch_up();
    }

    /// The same calls with something that the caller lends, or what they need back where they cannot be made now.
    pub(crate) fn pass_with<W, T>(&self, with: W, calls: impl FnOnce(W) -> T) -> Result<(), W> {
        if is_in_host_function() {
            return Err(with);
        }
        let captures = read(&self.captures);
        if *captures > 0 {
            return Err(with);
        }
        let left = untold(|| calls(with));
        drop(captures);
        drop(left);
        self.catch_up();
        Ok(())
    }

    /// Has such calls wait.
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

    /// Makes the calls that waited, unless a capture lasts.
    fn catch_up(&self) {
        if self.any() || !self.waits.load(Acquire) {
            return;
        }
        self.take_waiting()
            .into_iter()
            .for_each(|call| self.pass(call));
    }
}
