//! Bars on stderr, if that is a terminal. A signal that ends the program wipes the one that is shown.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

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

/// How far a prompt is. A prompt that is soon over has no bar.
pub(crate) struct PromptBar {
    start: Instant,
    tokens: usize,
    bar: Option<Bar>,
}

/// Prompts that take less have no bar.
const PATIENCE: Duration = Duration::from_millis(500);

impl PromptBar {
    pub(crate) fn new(tokens: usize) -> PromptBar {
        PromptBar { start: Instant::now(), tokens, bar: None }
    }

    /// So many tokens have gone through the model.
    pub(crate) fn set(&mut self, taken: usize) {
        if taken < self.tokens && self.start.elapsed() >= PATIENCE {
            let bar = || Bar::new("prompt {pos}/{len} tokens {wide_bar}", self.tokens as u64);
            self.bar.get_or_insert_with(bar).set_position(taken as u64);
        }
    }
}
