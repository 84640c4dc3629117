//! The turns of the tests on the emulator.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns a guard with which one test at a time uses the emulated device.
///
/// The device is shared by the process, and one test can disturb another through it:
///
/// - A wait of one test for all streams would order the streams of another.
/// - A global capture forbids the allocations of all threads.
/// - A device fault destroys the context.
///
/// Take the guard before all other objects of a test, so that they are dropped before it.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A failed test leaves no objects behind, so the others can go on.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
