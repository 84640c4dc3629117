//! Threads that take turns: of all that a run has, one works at a time. Before each lock and each
//! call of the driver it may have to give way, and a number decides to whom: the same number, the
//! same interleaving.
//!
//! A thread that finds a lock taken, or that waits for the device, gives way until it may go on.
//! Where none may, the run is stuck in a deadlock: that is known, and not guessed from the time
//! that passes.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::Duration;

/// The threads of one run.
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    threads: Vec<At>,
    /// Whose turn it is.
    turn: usize,
    random: u64,
    gives_way: u64,
    /// Locks for which somebody waits who wants all of them. A new share waits, too: the system may
    /// demand that.
    wanted: Vec<usize>,
    /// How often a thread came to a lock or a call.
    steps: usize,
    /// How the run ends before its threads do.
    problem: Option<String>,
}

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum At {
    MayGoOn,
    /// It has to wait for this, as far as it knows: until somebody else goes on.
    WaitsFor(&'static str),
    Over,
}

/// What a thread of a run does.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static HERE: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

/// After so long without an end, something waits outside of these turns.
const PATIENCE: Duration = Duration::from_secs(120);

/// No run has so many steps, unless it has no end.
const MOST_STEPS: usize = 1_000_000;

/// At one of so many steps, a thread has to give way: in each run another number. Where it is small
/// the threads are finely mixed; where it is large, one gets far while others stand between two
/// steps.
const GIVES_WAY: [u64; 5] = [2, 3, 6, 12, 30];

impl Turns {
    /// Runs the jobs to their end, one thread each, in the interleaving that the number stands for.
    /// Gives the number of steps.
    ///
    /// # Errors
    /// A deadlock, with what each thread waits for, or the first panic. The threads of a deadlock
    /// stay for ever.
    pub(crate) fn run(seed: u64, jobs: Vec<Job>) -> Result<usize, String> {
        let turns = Arc::new(Self {
            state: Mutex::new(State::new(seed, jobs.len())),
            changed: Condvar::new(),
        });
        for (thread, job) in jobs.into_iter().enumerate() {
            let turns = turns.clone();
            std::thread::spawn(move || turns.work(thread, job));
        }

        let goes_on = |state: &mut State| state.problem.is_none() && !state.is_over();
        let waited = turns
            .changed
            .wait_timeout_while(turns.lock(), PATIENCE, goes_on);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.problem {
            Some(problem) => Err(format!("seed {seed}: {problem}")),
            None if waited.timed_out() => Err(format!("seed {seed}: a wait outside of the turns")),
            None => Ok(state.steps),
        }
    }

    fn work(self: Arc<Self>, thread: usize, job: Job) {
        HERE.set(Some((self.clone(), thread)));
        self.wait_for_turn(self.lock(), thread);
        let done = catch_unwind(AssertUnwindSafe(job));
        HERE.set(None);
        let mut state = self.lock();
        if let Err(panic) = done {
            state.problem.get_or_insert(text_of(&*panic));
        }

        state.threads[thread] = At::Over;
        state.somebody_goes_on();
        self.choose(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn; after a problem, for ever.
    fn wait_for_turn(&self, state: MutexGuard<'_, State>, thread: usize) {
        let not_yet = |state: &mut State| state.turn != thread || state.problem.is_some();
        drop(
            self.changed
                .wait_while(state, not_yet)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Says whose turn is next.
    fn choose(&self, state: &mut State) {
        let may = |at: &At| *at == At::MayGoOn;
        let ready: Vec<usize> = (0..state.threads.len())
            .filter(|t| may(&state.threads[*t]))
            .collect();
        if !ready.is_empty() {
            state.turn = ready[state.next() as usize % ready.len()];
        } else if !state.is_over() && state.problem.is_none() {
            state.problem = Some(format!("a deadlock: {:?}", state.threads));
        }

        self.changed.notify_all();
    }

    /// A step of a thread: it may have to give way, and has to until `free`, which is asked in its
    /// turn.
    fn step(
        &self,
        thread: usize,
        what: &'static str,
        mut free: impl FnMut(&mut Vec<usize>) -> bool,
    ) {
        let mut state = self.lock();
        state.steps += 1;
        if state.steps > MOST_STEPS {
            state.problem = Some(format!("no end: {:?}", state.threads));
        }

        let mut gives_way = state.gives_way_now();
        loop {
            if gives_way || state.problem.is_some() {
                self.choose(&mut state);
                self.wait_for_turn(state, thread);
                state = self.lock();
            }
            if free(&mut state.wanted) {
                return state.somebody_goes_on();
            }
            (state.threads[thread], gives_way) = (At::WaitsFor(what), true);
        }
    }
}

impl State {
    fn new(mut seed: u64, threads: usize) -> Self {
        let gives_way = GIVES_WAY[next(&mut seed) as usize % GIVES_WAY.len()];
        let (threads, wanted) = (vec![At::MayGoOn; threads], Vec::new());
        Self {
            threads,
            turn: 0,
            random: seed,
            gives_way,
            wanted,
            steps: 0,
            problem: None,
        }
    }

    fn is_over(&self) -> bool {
        self.threads.iter().all(|at| *at == At::Over)
    }

    /// What others wait for may be there after that.
    fn somebody_goes_on(&mut self) {
        let waiting = self
            .threads
            .iter_mut()
            .filter(|at| matches!(at, At::WaitsFor(_)));
        waiting.for_each(|at| *at = At::MayGoOn);
    }

    fn gives_way_now(&mut self) -> bool {
        self.next().is_multiple_of(self.gives_way)
    }

    fn next(&mut self) -> u64 {
        next(&mut self.random)
    }
}

/// The next number of a sequence (SplitMix64: Steele, Lea and Flood 2014).
pub(crate) fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic")
        .to_string()
}

/// The same on this thread, if it is one of a run.
fn step(what: &'static str, free: impl FnMut(&mut Vec<usize>) -> bool) {
    let here = HERE.try_with(|here| here.borrow().clone()).ok().flatten();
    if let Some((turns, thread)) = here {
        turns.step(thread, what, free);
    }
}

/// A call of the driver.
pub(crate) fn before_call(_: &'static str) {
    step("a call", |_| true);
}

/// A wait for something else than a lock.
pub(crate) fn wait_until(what: &'static str, mut there: impl FnMut() -> bool) {
    step(what, |_| there());
}

pub(super) fn before_lock<T>(lock: &Mutex<T>) {
    step("a lock", |_| {
        !matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
    });
}

pub(super) fn before_read<T>(lock: &RwLock<T>) {
    step("a share of a lock", |wanted| {
        !wanted.contains(&address(lock))
            && !matches!(lock.try_read(), Err(TryLockError::WouldBlock))
    });
}

pub(super) fn before_write<T>(lock: &RwLock<T>) {
    let mut asked = false;
    step("all of a lock", |wanted| {
        let free = !matches!(lock.try_write(), Err(TryLockError::WouldBlock));
        let place = wanted
            .iter()
            .position(|w| *w == address(lock))
            .filter(|_| asked);
        match (free, place) {
            (true, Some(place)) => drop(wanted.swap_remove(place)),
            (false, None) => wanted.push(address(lock)),
            _ => {}
        }

        asked = !free;
        free
    });
}

fn address<T>(lock: &RwLock<T>) -> usize {
    std::ptr::from_ref(lock) as usize
}
