//! Progress bars on stderr, shown only at a terminal.
//!
//! At most one bar is shown at a time. A signal that ends the program erases it.

use std::io::{self, IsTerminal};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The bar that is shown, for [`wipe`].
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A progress bar. Dropping it erases its line.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Shows a bar of length `len`. `template` has the syntax of indicatif.
    pub(crate) fn new(template: &str, len: u64) -> Bar {
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        let bar = ProgressBar::new(len).with_style(style);
        *shown() = Some(bar.clone());
        Bar(bar)
    }

    /// Returns the bar with a clock that began `time` ago.
    fn started_before(self, time: Duration) -> Bar {
        self.0.set_elapsed(time);
        self
    }

    /// Returns a bar that is not shown, for work that is too short for one.
    pub(crate) fn hidden() -> Bar {
        Bar(ProgressBar::hidden())
    }

    /// Shows a bar that counts `len` steps.
    pub(crate) fn of_steps(len: usize) -> Bar {
        Bar::new("{wide_bar} {pos}/{len}", len as u64)
    }
}

impl Deref for Bar {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.0
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        shown().take();
        self.0.finish_and_clear();
    }
}

/// Erases the bar that is shown. Call this before the program exits.
///
/// Another thread erases it, because a terminal that is stopped (Ctrl-S) blocks writes, and the
/// program must exit all the same.
pub(crate) fn wipe() {
    let Some(bar) = shown().take() else { return };
    let (wiped, wait) = mpsc::channel();
    let wipe = move || {
        bar.finish_and_clear();
        let _ = wiped.send(());
    };
    if thread::Builder::new().spawn(wipe).is_ok() {
        let _ = wait.recv_timeout(Duration::from_millis(100));
    }
}

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The progress bar of a prompt that is prefilled, with the time since it began.
///
/// It appears only if the prompt takes longer than half a second. A thread shows the bar and keeps
/// its clock running, because a chunk can take minutes on the emulator and reports nothing before
/// it ends.
pub(crate) struct PromptBar {
    shared: Arc<Mutex<PromptState>>,
    /// The sending end of the channel that the thread waits on. Dropping it ends the thread.
    _ended: mpsc::Sender<()>,
}

struct PromptState {
    taken: u64,
    bar: Option<Bar>,
    over: bool,
}

/// The time after which a prompt gets a bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time between two updates of the clock in the bar.
const TICK: Duration = Duration::from_millis(500);

impl PromptBar {
    pub(crate) fn new(tokens: usize) -> PromptBar {
        let (ended, end) = mpsc::channel::<()>();
        let shared = Arc::new(Mutex::new(PromptState {
            taken: 0,
            bar: None,
            over: false,
        }));
        if io::stderr().is_terminal() {
            let state = Arc::clone(&shared);
            let show = move || {
                // The sender sends nothing: the only other result is that it was dropped.
                if end.recv_timeout(PATIENCE) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
                let mut state = locked(&state);
                if !state.over {
                    let bar = Bar::new(
                        "prompt {pos}/{len} tokens {wide_bar} {elapsed}",
                        tokens as u64,
                    );
                    bar.set_position(state.taken);
                    // The clock starts with the prompt and not with the bar.
                    let bar = bar.started_before(PATIENCE);
                    bar.enable_steady_tick(TICK);
                    state.bar = Some(bar);
                }
            };
            // If no thread can be started, the prompt has no bar.
            let _ = thread::Builder::new().spawn(show);
        }

        PromptBar {
            shared,
            _ended: ended,
        }
    }

    /// Sets the number of tokens that have been prefilled.
    pub(crate) fn set(&mut self, taken: usize) {
        let mut state = locked(&self.shared);
        state.taken = taken as u64;
        if let Some(bar) = &state.bar {
            bar.set_position(state.taken);
        }
    }
}

impl Drop for PromptBar {
    fn drop(&mut self) {
        let mut state = locked(&self.shared);
        state.over = true;
        state.bar = None;
    }
}

fn locked(state: &Mutex<PromptState>) -> MutexGuard<'_, PromptState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
