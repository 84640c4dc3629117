//! Launches in flight: at most two, so that the device always has work queued and the host is
//! notified of each launch.

use std::collections::VecDeque;

use warpwright_driver::Context;
use warpwright_driver::ordering::Event;
use warpwright_driver::stream::Stream;

use crate::Error;

/// The launches that the host has not waited for, and their completion events.
pub(crate) struct InFlight {
    /// The completion events, used by alternating launches.
    events: [Event; 2],
    /// For each launch, the total number of tokens or steps completed by its end.
    totals: VecDeque<u32>,
    /// The number of launches that the host has waited for.
    over: usize,
}

impl InFlight {
    pub(crate) fn new(context: &Context) -> Result<InFlight, Error> {
        let events = [Event::untimed(context)?, Event::untimed(context)?];
        Ok(InFlight {
            events,
            totals: VecDeque::new(),
            over: 0,
        })
    }

    /// Discards all launches, without waiting for them.
    pub(crate) fn clear(&mut self) {
        self.totals.clear();
    }

    /// Returns true if the host must wait for the earliest launch before it starts another.
    pub(crate) fn is_full(&self) -> bool {
        self.totals.len() == self.events.len()
    }

    /// Records the end of the launch that was just queued. `total` is the number of tokens or steps
    /// completed by then.
    pub(crate) fn push(&mut self, stream: &Stream, total: u32) -> Result<(), Error> {
        self.events[(self.over + self.totals.len()) % 2].record(stream)?;
        self.totals.push_back(total);
        Ok(())
    }

    /// Waits for the earliest launch and returns its total, or `None` if nothing is in flight.
    pub(crate) fn wait(&mut self) -> Result<Option<u32>, Error> {
        let Some(total) = self.totals.pop_front() else {
            return Ok(None);
        };
        let event = &self.events[self.over % 2];
        self.over += 1;
        event.synchronize()?;
        Ok(Some(total))
    }
}
