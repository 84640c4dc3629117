//! Host functions that the driver calls, and other program code that must not unwind into the
//! driver.
//!
//! The driver identifies a host function by a key and not by an address. The table below maps keys
//! to functions, and keys are never reused. A call that the driver makes late, for example after a
//! device fault or after the graph was destroyed, finds no function and does nothing. A call in
//! progress holds a share of its function, so that the function lives until it returns.
//!
//! Code must not unwind into the driver, because that aborts the process. This includes a panic in
//! the destructor of a panic's payload.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::lifetime::capture_gate::in_host_function;
use crate::lifetime::unpoisoned_lock::lock;

/// A function that the driver calls once.
pub(crate) type OnceFunction = Box<dyn FnOnce() + Send>;

/// A function that the driver calls in every launch of a graph.
pub(crate) type NodeFunction = Arc<dyn Fn() + Send + Sync>;

/// The functions that the driver may call, by key.
static FUNCTIONS: Mutex<BTreeMap<usize, Function>> = Mutex::new(BTreeMap::new());

enum Function {
    Once(OnceFunction),
    Node(NodeFunction),
}

/// The key of a registered function. The driver may call the function while this value lives.
#[derive(Debug)]
pub(crate) struct Registration {
    key: usize,
}

/// An object of the program that this crate drops, for example the owner of foreign memory.
///
/// A panic in its destructor is caught, because it would otherwise unwind out of a destructor of
/// this crate.
pub(crate) struct ProgramObject(ManuallyDrop<Box<dyn Any + Send + Sync>>);

impl Registration {
    /// Registers a function that is called once.
    pub(crate) fn once(function: impl FnOnce() + Send + 'static) -> Self {
        Self::new(Function::Once(Box::new(function)))
    }

    /// Registers a function that is called any number of times.
    pub(crate) fn node(function: impl Fn() + Send + Sync + 'static) -> Self {
        Self::new(Function::Node(Arc::new(function)))
    }

    fn new(function: Function) -> Self {
        static KEYS: AtomicUsize = AtomicUsize::new(1);
        let key = KEYS.fetch_add(1, Relaxed);
        lock(&FUNCTIONS).insert(key, function);
        Self { key }
    }

    /// Returns the data that the driver passes to [`call`].
    pub(crate) fn data(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.key)
    }

    /// Leaves the function to its one call, which removes it from the table.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    /// Returns a share of a function that is called any number of times, or `None` for other
    /// functions.
    pub(crate) fn share(&self) -> Option<NodeFunction> {
        match lock(&FUNCTIONS).get(&self.key) {
            Some(Function::Node(function)) => Some(function.clone()),
            Some(Function::Once(_)) | None => None,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let function = lock(&FUNCTIONS).remove(&self.key);
        // Outside the lock, because its destructor may register or remove functions.
        contain("the destructor of a host function", || drop(function));
    }
}

/// Calls the function with the key `data`.
///
/// # Safety
/// There are no obligations, because `data` is not used as an address. The function is `unsafe`
/// because the driver's callback type is.
pub(crate) unsafe extern "C" fn call(data: *mut c_void) {
    in_host_function(|| {
        contain("a host function", || {
            let mut functions = lock(&FUNCTIONS);
            let function = match functions.get(&data.addr()) {
                Some(Function::Once(_)) => functions.remove(&data.addr()),
                Some(Function::Node(function)) => Some(Function::Node(function.clone())),
                None => None,
            };
            drop(functions);
            match function {
                Some(Function::Once(function)) => function(),
                Some(Function::Node(function)) => function(),
                None => {}
            }
        });
    });
}

/// Runs program code and logs a panic in it instead of unwinding.
pub(crate) fn contain(what: &str, code: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(code)) else {
        return;
    };

    // A `tracing` subscriber is program code as well and may panic.
    let reported = catch_unwind(AssertUnwindSafe(|| {
        log_event!(error, panic = message(&*payload), "{what} panicked")
    }));
    discard(payload);
    if let Err(payload) = reported {
        discard(payload);
    }
}

/// Drops the payload of a panic, whose destructor may panic.
///
/// The payload of that second panic is leaked, because its destructor may panic again without end.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

/// Returns the message of a panic, or an empty string if it has none.
#[cfg(feature = "tracing")]
fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or_default()
}

impl ProgramObject {
    pub(crate) fn new(object: impl Any + Send + Sync) -> Self {
        Self(ManuallyDrop::new(Box::new(object)))
    }
}

impl Drop for ProgramObject {
    fn drop(&mut self) {
        contain("the destructor of an object of the program", || {
            // SAFETY: a destructor runs once and is the last to use the object.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        });
    }
}
