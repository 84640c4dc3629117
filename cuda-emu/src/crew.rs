//! Thread pools that run the blocks of kernels, and a count of the emulator's threads.
//!
//! Kernels of different streams may wait for each other. With one shared pool, the blocks of a
//! kernel that polls could occupy all threads, and the kernel that it waits for would never start.
//! Each launch therefore has a separate pool while it runs. Pools are reused by later launches.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// The number of threads that belong to the emulator, in all machines of the process.
static OWN_THREADS: AtomicUsize = AtomicUsize::new(0);

/// The pools that no launch uses now, each with the requested number of threads.
static SPARE: Mutex<Vec<(usize, ThreadPool)>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread belongs to a pool of this module.
    static IN_POOL: Cell<bool> = const { Cell::new(false) };
}

/// A registration of the calling thread as one of the emulator, until it is dropped.
///
/// A thread that is about to start or to end is counted as a thread of the program, which only
/// delays a finding.
pub(crate) struct OwnThread(());

impl OwnThread {
    pub(crate) fn register() -> Self {
        OWN_THREADS.fetch_add(1, SeqCst);
        Self(())
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        OWN_THREADS.fetch_sub(1, SeqCst);
    }
}

/// Returns the number of threads of the process that are not the emulator's, if the system reports
/// it.
pub(crate) fn program_threads() -> Option<usize> {
    let all = std::fs::read_dir("/proc/self/task").ok()?.count();
    all.checked_sub(OWN_THREADS.load(SeqCst))
}

/// Runs `work` on a pool of `threads` threads that no other work uses meanwhile. 0 means one per
/// core.
///
/// Work that already runs on such a pool stays there.
pub(crate) fn run_in_pool<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    if IN_POOL.get() {
        return work();
    }
    let Some(pool) = take_pool(threads) else {
        return work();
    };

    let result = pool.install(work);
    SPARE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((threads, pool));
    result
}

/// Returns a spare pool or a new one, or `None` if the system cannot start more threads.
fn take_pool(threads: usize) -> Option<ThreadPool> {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = spare.iter().rposition(|(of, _)| *of == threads) {
        return Some(spare.remove(at).1);
    }

    drop(spare);
    let started = |_| {
        IN_POOL.set(true);
        OWN_THREADS.fetch_add(1, SeqCst);
    };
    let ended = |_| _ = OWN_THREADS.fetch_sub(1, SeqCst);
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .start_handler(started)
        .exit_handler(ended)
        .build()
        .ok()
}
