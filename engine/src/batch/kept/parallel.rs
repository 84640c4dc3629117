//! Work on several pages by several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// The maximum number of threads. Hashing takes most of their time.
const THREADS: usize = 8;

/// Calls `work` for the numbers below `count` on several threads, and returns the results in the
/// order of the numbers.
pub(super) fn in_parallel<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let cores = available_parallelism().map_or(1, usize::from);
    let threads = THREADS.min(cores).min(count);
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = vec![];
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return done;
            }
            done.push((number, work(number)));
        }
    };
    let mut results: Vec<(usize, T)> = scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let joined = started.into_iter().flat_map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
