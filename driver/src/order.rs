//! The order of work in different streams.
//!
//! Work of two streams that touches the same bytes, one of them writing, needs an order that the program gives it: the
//! later stream waits for an event of the earlier one, or the host waits between the two. Work without one is refused
//! when it is given. What counts is what the program said, not how far the device happens to be, so that the same
//! program is refused every time.
//!
//! Each stream counts its work. A clock says, for every stream, how much of its work comes before: an event carries
//! the clock of the place where it was recorded, and a stream that waits for it takes over what that clock has more.
//! (Vector clocks: Fidge 1988, Mattern 1989.) While a context has one stream there is nothing to do, and nothing is
//! remembered; so the first stream's work up to the making of the second is put before every other stream's.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use ptx_gen::Access;

use crate::lock::lock;
use crate::timeline::Mark;
use crate::{Error, Region};

/// For each stream, by slot, how much of its work comes before.
pub(crate) type Clock = Vec<u64>;

/// The clocks of a context's streams.
#[derive(Default)]
pub(crate) struct Order {
    several: AtomicBool,
    /// Whether graphs own memory, which work of streams must not name.
    graph_memory: AtomicBool,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    /// By slot.
    streams: Vec<Slot>,
    /// What the host has waited for.
    done: Clock,
    /// Work given while nothing was remembered.
    untracked: Option<Mark>,
}

/// What is known of the stream in a slot.
#[derive(Default)]
struct Slot {
    name: String,
    clock: Clock,
    /// The count at which the next stream in this slot begins.
    count: u64,
    live: bool,
}

/// What work did to bytes of one allocation.
struct Touch {
    slot: usize,
    at: u64,
    bytes: Range<usize>,
    writes: bool,
}

/// What work did to one allocation, as far as later work may have to come after it.
#[derive(Default)]
pub(crate) struct Touched(Mutex<Vec<Touch>>);

impl Order {
    /// Whether there is more than one stream, so that work must be given in order.
    #[inline]
    pub(crate) fn several(&self) -> bool {
        self.several.load(Acquire)
    }

    /// Whether graphs own memory, so that work must be looked at for it.
    #[inline]
    pub(crate) fn has_graph_memory(&self) -> bool {
        self.graph_memory.load(Acquire)
    }

    pub(crate) fn set_graph_memory(&self) {
        self.graph_memory.store(true, Release);
    }

    /// A slot for a new stream, and the count at which it begins.
    pub(crate) fn add(&self) -> (usize, u64) {
        let mut tables = lock(&self.tables);
        let slot = tables.streams.iter().position(|s| !s.live).unwrap_or(tables.streams.len());
        if slot == tables.streams.len() {
            tables.streams.push(Slot::default());
        }
        let stream = &mut tables.streams[slot];
        (stream.live, stream.name, stream.clock) = (true, format!("stream {slot}"), Clock::new());
        let count = stream.count;
        if tables.live() > 1 {
            self.several.store(true, Release);
        }
        (slot, count)
    }

    /// Gives back the slot of a stream that has done all of its work.
    pub(crate) fn remove(&self, slot: usize, count: u64) {
        let mut tables = lock(&self.tables);
        (tables.streams[slot].live, tables.streams[slot].count) = (false, count);
        raise(&mut tables.done, slot, count);
        if tables.live() <= 1 {
            self.several.store(false, Release);
        }
    }

    /// Puts work that was not remembered before whatever the streams are given from now on.
    pub(crate) fn put_first(&self, untracked: Mark) {
        let mut tables = lock(&self.tables);
        let (slot, at) = (untracked.timeline.slot, untracked.queued);
        tables.streams.iter_mut().for_each(|s| raise(&mut s.clock, slot, at));
        tables.untracked = Some(untracked);
    }

    /// Work that was not remembered and that a new stream in `slot` has to wait for.
    pub(crate) fn begin(&self, slot: usize) -> Option<Mark> {
        let mut tables = lock(&self.tables);
        let mark = tables.untracked.clone()?;
        raise(&mut tables.streams[slot].clock, mark.timeline.slot, mark.queued);
        Some(mark)
    }

    /// Forgets such work once it is done, with its share of the stream.
    pub(crate) fn forget_done(&self) {
        let mut tables = lock(&self.tables);
        if let Some(mark) = tables.untracked.take_if(|mark| mark.is_reached()) {
            raise(&mut tables.done, mark.timeline.slot, mark.queued);
        }
    }

    pub(crate) fn rename(&self, slot: usize, name: &str) {
        lock(&self.tables).streams[slot].name = format!("stream {name}");
    }

    pub(crate) fn name(&self, slot: usize) -> String {
        lock(&self.tables).streams[slot].name.clone()
    }

    /// The clock of a stream after so much of its work.
    pub(crate) fn clock(&self, slot: usize, at: u64) -> Clock {
        let mut clock = lock(&self.tables).streams[slot].clock.clone();
        raise(&mut clock, slot, at);
        clock
    }

    /// What the stream is given from now on comes after all that the clock counts.
    pub(crate) fn join(&self, slot: usize, clock: &[u64]) {
        let mut tables = lock(&self.tables);
        let ours = &mut tables.streams[slot].clock;
        clock.iter().enumerate().for_each(|(slot, at)| raise(ours, slot, *at));
    }

    /// The host has waited for all that the clock counts.
    pub(crate) fn wait(&self, clock: &[u64]) {
        let done = &mut lock(&self.tables).done;
        clock.iter().enumerate().for_each(|(slot, at)| raise(done, slot, *at));
    }

    /// The host has waited for so much work of a stream, and for what is before it.
    pub(crate) fn wait_for(&self, slot: usize, at: u64) {
        let tables = &mut *lock(&self.tables);
        tables.streams[slot]
            .clock
            .iter()
            .enumerate()
            .for_each(|(slot, at)| raise(&mut tables.done, slot, *at));
        raise(&mut tables.done, slot, at);
    }

    /// Takes in work of the stream, its count being `at`: refuses it if it touches what work of another stream touches
    /// that is not before it, one of them writing.
    pub(crate) fn admit<'a>(
        &self,
        (slot, at): (usize, u64),
        uses: impl Iterator<Item = (&'a Region, Access)> + Clone,
    ) -> Result<(), Error> {
        let tables = lock(&self.tables);
        for (region, access) in uses.clone() {
            if let Some(other) = tables.unordered(slot, region, access) {
                let names = [slot, other].map(|s| tables.streams[s].name.clone());
                return Err(unordered(region, names));
            }
        }
        uses.for_each(|(region, access)| tables.remember((slot, at), region, access));
        Ok(())
    }
}

impl Tables {
    fn live(&self) -> usize {
        self.streams.iter().filter(|s| s.live).count()
    }

    /// Whether so much work of `other` comes before what the stream is given now.
    fn is_before(&self, slot: usize, other: usize, at: u64) -> bool {
        let counts = |clock: &Clock| clock.get(other).is_some_and(|count| *count >= at);
        slot == other || counts(&self.streams[slot].clock) || counts(&self.done)
    }

    /// The stream whose work on these bytes has no order with this use.
    fn unordered(&self, slot: usize, region: &Region, access: Access) -> Option<usize> {
        let meets = |t: &&Touch| {
            (t.writes || access.writes())
                && !self.is_before(slot, t.slot, t.at)
                && t.bytes.start.max(region.range().start) < t.bytes.end.min(region.range().end)
        };
        lock(&region.touched().0).iter().find(meets).map(|t| t.slot)
    }

    /// Remembers a use, and forgets what it stands for: whoever comes after it comes after those.
    fn remember(&self, (slot, at): (usize, u64), region: &Region, access: Access) {
        let (bytes, writes) = (region.range(), access.writes());
        let mut touches = lock(&region.touched().0);
        touches.retain(|t| {
            let covered = bytes.start <= t.bytes.start && t.bytes.end <= bytes.end;
            !(covered
                && if writes { self.is_before(slot, t.slot, t.at) } else { t.slot == slot && !t.writes })
        });
        touches.push(Touch { slot, at, bytes, writes });
        if touches.len().is_multiple_of(FORGET) {
            touches.retain(|t| self.done.get(t.slot).is_none_or(|done| *done < t.at));
        }
    }
}

/// After so many uses of one allocation, those that the host has waited for are dropped.
const FORGET: usize = 64;

#[cold]
fn unordered(region: &Region, [stream, other]: [String; 2]) -> Error {
    Error::UnorderedStreams { buffer: region.to_string(), stream, other }
}

fn raise(clock: &mut Clock, slot: usize, at: u64) {
    if at == 0 {
        return;
    }
    if clock.len() <= slot {
        clock.resize(slot + 1, 0);
    }
    clock[slot] = clock[slot].max(at);
}
