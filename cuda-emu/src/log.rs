//! The log of the emulated driver, and the findings in it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ffi::host::LogCallback;

/// Entries that the log keeps.
const LOG_LENGTH: usize = 256;

/// What went wrong, newest last.
#[derive(Default)]
pub(crate) struct Log(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    entries: VecDeque<String>,
    /// Entries dropped from the front, so that a place in the log stays a place.
    dropped: u32,
    /// Findings that nobody has fetched.
    findings: Vec<String>,
    /// Functions of the program that are told of every entry, by number.
    callbacks: Vec<(usize, LogCallback)>,
    registered: usize,
}

impl Log {
    /// Adds an entry to the log.
    pub(crate) fn add(&self, text: String) {
        let mut log = self.lock();
        let callbacks = log.callbacks.clone();
        let told = if callbacks.is_empty() {
            String::new()
        } else {
            text.clone()
        };
        log.entries.push_back(text);
        if log.entries.len() > LOG_LENGTH {
            log.entries.pop_front();
            log.dropped += 1;
        }
        // A callback may look at the log.
        drop(log);
        callbacks
            .iter()
            .for_each(|(_, callback)| callback.call(&told));
    }

    /// Tells a function of the program of every entry from now on. Gives its number.
    pub(crate) fn register(&self, callback: LogCallback) -> usize {
        let mut log = self.lock();
        log.registered += 1;
        let number = log.registered;
        log.callbacks.push((number, callback));
        number
    }

    /// Ends that; whether there was such a callback.
    pub(crate) fn unregister(&self, number: usize) -> bool {
        let mut log = self.lock();
        let before = log.callbacks.len();
        log.callbacks.retain(|(other, _)| *other != number);
        log.callbacks.len() < before
    }

    /// Adds a finding, which is an entry of the log as well.
    pub(crate) fn finding(&self, text: String) {
        self.lock().findings.push(text.clone());
        self.add(text);
    }

    /// Takes the findings that nobody has fetched.
    pub(crate) fn take_findings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().findings)
    }

    /// The entries from a place in the log on, and the place of its end.
    pub(crate) fn entries(&self, from: u32) -> (Vec<String>, u32) {
        let log = self.lock();
        let skip = from.saturating_sub(log.dropped) as usize;
        (
            log.entries.iter().skip(skip).cloned().collect(),
            log.dropped + log.entries.len() as u32,
        )
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
