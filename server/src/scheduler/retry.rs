//! An estimate of the time until a request ends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of ends that the estimate is the mean of.
const ENDS: usize = 16;
/// The range of the estimate.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// The rate at which requests ended lately.
#[derive(Default)]
pub(super) struct EndRate {
    ends: VecDeque<Instant>,
}

impl EndRate {
    /// Records the end of a request.
    pub(super) fn record(&mut self, now: Instant) {
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(now);
    }

    /// Returns the mean interval of the latest ends, from 1 s to 60 s.
    pub(super) fn interval(&self, now: Instant) -> Duration {
        match self.ends.front() {
            Some(first) => (now - *first) / self.ends.len() as u32,
            None => LEAST,
        }
        .clamp(LEAST, MOST)
    }
}
