//! Limits of the time and memory that a template may use, because it is a program from an unknown
//! author.
//!
//! The interpreter counts steps and memory, and limits the nesting of expressions, calls and
//! values. This module has the number of steps, the time of a run, and the stack that the nesting
//! needs.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::Builder;
use std::time::Duration;

/// The maximum cost of a run in steps. A message takes some hundreds.
pub(super) const FUEL: u64 = 10_000_000;

/// The time limit of parsing a template or rendering a conversation. It is far longer than the fuel
/// lasts.
pub(super) const TIME: Duration = Duration::from_secs(10);

/// The stack size for the deepest nesting in a build without optimization.
const STACK: usize = 256 << 20;

/// Runs `work` on a thread with a large stack and returns its result, or an error after `timeout`.
///
/// A thread that times out cannot be canceled and keeps running until the process exits.
pub(super) fn run<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = mpsc::channel();
    let done = move || drop(sender.send(work()));
    let thread = Builder::new()
        .name("chat template".to_owned())
        .stack_size(STACK)
        .spawn(done);
    thread.map_err(|error| {
        format!("cannot be run, because there is no memory for its stack: {error}")
    })?;
    receiver.recv_timeout(timeout).unwrap_or_else(|error| {
        Err(match error {
            RecvTimeoutError::Timeout => format!("takes more than {} s", timeout.as_secs_f64()),
            RecvTimeoutError::Disconnected => {
                "fails: the thread that renders templates panicked".to_owned()
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_too_long_is_an_error() {
        let slow = || {
            std::thread::sleep(Duration::from_secs(3));
            Ok(())
        };
        assert_eq!(
            run(Duration::from_millis(10), slow),
            Err("takes more than 0.01 s".to_owned())
        );
        assert_eq!(run(TIME, || Ok(7)), Ok(7));
    }
}
