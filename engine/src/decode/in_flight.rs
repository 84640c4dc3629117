//! Launches in flight: two at most, so that the device always has work, and the host hears of each as it completes.

use std::collections::VecDeque;

use warpwright_driver::{Context, Event, Stream};

use crate::Error;

/// Launches that have not been waited for, and the events that they end with.
pub(crate) struct InFlight {
    /// Of alternating launches.
    events: [Event; 2],
    /// For each launch, what there is in all up to its end: tokens, or steps.
    totals: VecDeque<u32>,
    /// Launches that were waited for.
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

    /// Forgets what was launched before.
    pub(crate) fn clear(&mut self) {
        self.totals.clear();
    }

    /// Whether the earliest must be waited for before there is another.
    pub(crate) fn is_full(&self) -> bool {
        self.totals.len() == self.events.len()
    }

    /// What was just given to the stream is a launch; by its end there is `total` in all.
    pub(crate) fn push(&mut self, stream: &Stream, total: u32) -> Result<(), Error> {
        self.events[(self.over + self.totals.len()) % 2].record(stream)?;
        self.totals.push_back(total);
        Ok(())
    }

    /// Waits for the earliest and gives its total; `None` if there is none.
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
