//! The log of the emulated driver, and its findings.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ffi::host::LogCallback;

/// The maximum number of entries in the log.
const LOG_LENGTH: usize = 256;

/// The log, with the newest entry last.
#[derive(Default)]
pub(crate) struct CallLog(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    entries: VecDeque<String>,
    /// The number of entries that were dropped from the front, so that positions in the log stay
    /// valid.
    dropped: u32,
    /// The findings that were not yet taken.
    findings: Vec<String>,
    /// Functions of the program that are called for each entry, by number.
    callbacks: Vec<(usize, LogCallback)>,
    registered: usize,
}

impl CallLog {
    /// Adds an entry to the log.
    pub(crate) fn add(&self, text: String) {
        let mut log = self.lock();
        let callbacks = log.callbacks.clone();
        log.entries.push_back(text.clone());
        if log.entries.len() > LOG_LENGTH {
            log.entries.pop_front();
            log.dropped += 1;
        }

        // A callback may read the log, so it must not run under the lock.
        drop(log);
        for (_, callback) in &callbacks {
            callback.call(&text);
        }
    }

    /// Calls a function of the program for each entry from now on. Returns its number.
    pub(crate) fn register(&self, callback: LogCallback) -> usize {
        let mut log = self.lock();
        log.registered += 1;
        let number = log.registered;
        log.callbacks.push((number, callback));
        number
    }

    /// Removes a callback. Returns false if there is none with this number.
    pub(crate) fn unregister(&self, number: usize) -> bool {
        let mut log = self.lock();
        let before = log.callbacks.len();
        log.callbacks.retain(|(other, _)| *other != number);
        log.callbacks.len() < before
    }

    /// Adds a finding, which is also an entry of the log.
    pub(crate) fn finding(&self, text: String) {
        self.lock().findings.push(text.clone());
        self.add(text);
    }

    /// Returns the findings since the last call, and removes them.
    pub(crate) fn take_findings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().findings)
    }

    /// Returns the entries from position `from` on, and the position of the end.
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
