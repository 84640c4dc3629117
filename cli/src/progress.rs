//! Bars on stderr, if that is a terminal. A signal that ends the program wipes the one that is shown.

use std::io::{self, IsTerminal};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The bar that is shown; there is one at a time.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A bar. Its line is empty again when it is dropped.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// The template is indicatif's.
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

    /// A bar of steps.
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

/// Wipes the bar that is shown, for a program that ends now: it stays wiped. A terminal that is stopped takes nothing
/// and holds nobody up.
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

/// The progress of a prompt, with the time since it began. A prompt that is soon over has no bar.
///
/// A thread shows the bar and keeps its time moving, because a chunk can take minutes on the emulator and reports nothing
/// before it ends.
pub(crate) struct PromptBar {
    shared: Arc<Mutex<PromptState>>,
    /// Dropped to end the thread before it shows a bar.
    _ended: mpsc::Sender<()>,
}

struct PromptState {
    taken: u64,
    bar: Option<Bar>,
    over: bool,
}

/// Prompts that take less have no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time between two updates of a bar's clock.
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
            // Without a thread there is no bar.
            let _ = thread::Builder::new().spawn(show);
        }
        PromptBar {
            shared,
            _ended: ended,
        }
    }

    /// Reports that `taken` tokens have gone through the model.
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
