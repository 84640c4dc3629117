//! The order of work in different streams.
//!
//! Work of two streams that touches the same bytes, one of them writing, needs an order that the program gives it: the
//! later stream waits for an event of the earlier one, or the host waits between the two. Work without one is refused
//! when it is given. What counts is what the program said, not how far the device happens to be, so that the same
//! program is refused every time.
//!
//! Each stream counts its work. A clock says, for every stream, how much of its work comes before: an event carries
//! the clock of the place where it was recorded, and a stream that waits for it takes over what that clock has more.
//! (Vector clocks: Fidge 1988, Mattern 1989.) A stream counts until it is dropped and the host has waited for its work;
//! that the device is done with it is no order. While one stream counts there is nothing to do, and nothing is
//! remembered; so its work up to the making of the next is put before every later stream's.
//!
//! The host copies, too, and waits for that. Before, it waits for what the streams were given; what they are given from
//! then on to the end of the copy is refused if it touches the same bytes, one of the two writing.

use std::cell::UnsafeCell;
use std::fmt::Display;
use std::ops::Range;
use std::panic::RefUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use ptx_gen::Access;

use crate::Error;
use crate::few::Few;
use crate::lock::lock;
use crate::timeline::Mark;

/// Bytes of one allocation, as the order of work sees them.
pub(crate) trait Bytes: Display {
    /// A number that tells one memory from another.
    fn memory(&self) -> usize;

    /// Where they begin and end within it.
    fn range(&self) -> Range<usize>;

    /// What work did to the memory.
    fn touched(&self) -> &Touched;
}

/// For each stream, by slot, how much of its work comes before.
pub(crate) type Clock = Few<u64, 4>;

/// The clocks of a context's streams.
#[derive(Default)]
pub(crate) struct StreamOrder {
    /// Whether several streams count, or the host copies.
    several: AtomicBool,
    /// Whether graphs own memory, which work of streams must not name.
    graph_memory: AtomicBool,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    /// By slot.
    streams: Vec<Slot>,
    /// Streams made so far.
    made: u64,
    /// What the host has waited for.
    done: Clock,
    /// Work given while nothing was remembered. Every stream begins after it.
    first: Clock,
    /// What of that the device may still have to do.
    untracked: Vec<Mark>,
    /// What the host copies now, each with its number, and how many copies there were.
    copies: (Vec<(u64, HostTouch)>, u64),
}

/// Bytes of one allocation that the host copies to or from.
struct HostTouch {
    memory: usize,
    bytes: Range<usize>,
    writes: bool,
}

/// A copy by the host, which keeps work off its bytes for as long as this lives.
pub(crate) struct HostCopy<'a> {
    order: &'a StreamOrder,
    number: u64,
}

/// What is known of the stream in a slot.
#[derive(Default)]
struct Slot {
    name: String,
    clock: Clock,
    /// All the work of a stream that was dropped. The next one in this slot begins at this count.
    count: u64,
    /// Whether the stream was not dropped.
    held: bool,
    /// Whether the driver has it.
    live: bool,
}

/// What work did to bytes of one allocation.
struct Touch {
    slot: usize,
    at: u64,
    bytes: Range<usize>,
    writes: bool,
}

/// What work did to one allocation, as far as later work may have to come after it. Looked at under the lock of the
/// tables of the allocation's context, and so without one of its own.
#[derive(Default)]
pub(crate) struct Touched(UnsafeCell<Vec<Touch>>);

// SAFETY: whoever looks at it holds the lock: see `Touched::get`.
unsafe impl Sync for Touched {}

// Whoever panics under the lock leaves the list whole.
impl RefUnwindSafe for Touched {}

impl Touched {
    /// # Safety
    /// The tables are those of the allocation's context, locked, and nothing that this gave before is in use.
    #[allow(clippy::mut_from_ref)]
    unsafe fn get<'t>(&'t self, _locked: &'t Tables) -> &'t mut Vec<Touch> {
        // SAFETY: the caller vouches for it.
        unsafe { &mut *self.0.get() }
    }
}

impl StreamOrder {
    /// Whether there is more than one stream, or a copy by the host, so that work must be given in order.
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

    /// A slot for a new stream, and the count at which it begins. Where one stream counted until now, that one's slot:
    /// its work is to be put first.
    pub(crate) fn add(&self) -> (usize, u64, Option<usize>) {
        let mut tables = lock(&self.tables);
        let only = tables.only();
        let slot = tables.free_slot();
        let (name, clock) = (format!("stream {}", tables.made), tables.first.clone());
        tables.made += 1;
        let stream = &mut tables.streams[slot];
        (stream.live, stream.held, stream.name, stream.clock) = (true, true, name, clock);
        let count = stream.count;
        self.see(&tables);
        (slot, count, only)
    }

    /// The last holder of a stream is gone, which was given so much work, and of which the host has waited for so much
    /// while no other stream counted.
    pub(crate) fn leave(&self, slot: usize, count: u64, waited: u64) {
        let mut tables = lock(&self.tables);
        raise(&mut tables.done, slot, waited);
        (tables.streams[slot].held, tables.streams[slot].count) = (false, count);
        self.see(&tables);
    }

    /// The driver has no longer a stream that was left and is idle.
    pub(crate) fn remove(&self, slot: usize) {
        let mut tables = lock(&self.tables);
        tables.streams[slot].live = false;
        let gone = tables.streams.iter().filter(|s| !s.live).count();
        if gone > MOST_GONE {
            tables.settle();
        }
        self.see(&tables);
    }

    /// The host has waited for everything, streams included that the driver has no longer.
    pub(crate) fn settle(&self) {
        let mut tables = lock(&self.tables);
        tables.settle();
        self.see(&tables);
    }

    /// Whether work must be given in order is asked without a lock.
    fn see(&self, tables: &Tables) {
        let several = tables.counting().nth(1).is_some() || !tables.copies.0.is_empty();
        self.several.store(several, Release);
    }

    /// The host copies these bytes from here on. It waits for the streams after this and before the copy: work that
    /// did not see this was given before the wait, which takes the lock of each stream.
    pub(crate) fn host_copies(&self, region: &impl Bytes, access: Access) -> HostCopy<'_> {
        let mut tables = lock(&self.tables);
        let (copies, number) = &mut tables.copies;
        *number += 1;
        let touch = HostTouch {
            memory: region.memory(),
            bytes: region.range(),
            writes: access.writes(),
        };
        copies.push((*number, touch));
        let number = *number;
        self.see(&tables);
        HostCopy {
            order: self,
            number,
        }
    }

    /// Puts work that was not remembered before whatever the streams are given from now on.
    pub(crate) fn put_first(&self, slot: usize, at: u64, mark: Option<Mark>) {
        let mut tables = lock(&self.tables);
        raise(&mut tables.first, slot, at);
        tables
            .streams
            .iter_mut()
            .for_each(|s| raise(&mut s.clock, slot, at));
        tables.untracked.extend(mark);
    }

    /// The count of a stream that was left.
    pub(crate) fn count(&self, slot: usize) -> u64 {
        lock(&self.tables).streams[slot].count
    }

    /// Work that was not remembered and that a new stream has to wait for.
    pub(crate) fn untracked(&self) -> Vec<Mark> {
        let mut tables = lock(&self.tables);
        tables.untracked.retain(|mark| !mark.is_reached());
        tables.untracked.clone()
    }

    /// Forgets such work once it is done, with its share of the stream.
    pub(crate) fn forget_done(&self) {
        lock(&self.tables)
            .untracked
            .retain(|mark| !mark.is_reached());
    }

    pub(crate) fn rename(&self, slot: usize, name: &str) {
        lock(&self.tables).streams[slot].name = format!("stream {name}");
    }

    pub(crate) fn name(&self, slot: usize) -> String {
        lock(&self.tables).name(slot)
    }

    /// The clock of a stream after so much of its work. It is taken before somebody waits: what the stream is told to
    /// wait for meanwhile is not before the place that was waited for. Also while there is one stream: there may have
    /// been others, and what it did then is remembered.
    pub(crate) fn clock(&self, slot: usize, at: u64) -> Clock {
        let mut clock = Clock::new();
        self.fill(&mut clock, slot, at);
        clock
    }

    /// Fills an empty clock with that.
    pub(crate) fn fill(&self, clock: &mut Clock, slot: usize, at: u64) {
        lock(&self.tables).streams[slot]
            .clock
            .iter()
            .for_each(|count| clock.push(*count));
        raise(clock, slot, at);
    }

    /// What the stream is given from now on comes after all that the clock counts.
    pub(crate) fn join(&self, slot: usize, clock: &[u64]) {
        let mut tables = lock(&self.tables);
        let ours = &mut tables.streams[slot].clock;
        clock
            .iter()
            .enumerate()
            .for_each(|(slot, at)| raise(ours, slot, *at));
    }

    /// The host has waited for all that the clock counts.
    pub(crate) fn wait(&self, clock: &[u64]) {
        let mut tables = lock(&self.tables);
        clock
            .iter()
            .enumerate()
            .for_each(|(slot, at)| raise(&mut tables.done, slot, *at));
        self.see(&tables);
    }

    /// The host has waited for so much work of the only stream that counts.
    pub(crate) fn wait_for(&self, slot: usize, at: u64) {
        let mut tables = lock(&self.tables);
        raise(&mut tables.done, slot, at);
        self.see(&tables);
    }

    /// Takes in work of the stream, its count being `at`: refuses it if it touches what work of another stream touches
    /// that is not before it, one of them writing.
    ///
    /// # Safety
    /// The bytes are of this order's context.
    pub(crate) unsafe fn admit<'a, B: Bytes + 'a>(
        &self,
        (slot, at): (usize, u64),
        uses: impl Iterator<Item = (&'a B, Access)> + Clone,
    ) -> Result<(), Error> {
        let tables = lock(&self.tables);
        for (region, access) in uses.clone() {
            if tables
                .copies
                .0
                .iter()
                .any(|(_, copy)| copy.meets(region, access))
            {
                return Err(copied(region, tables.name(slot)));
            }
            // SAFETY: the caller vouches for the regions, and the tables are locked.
            if let Some(other) = unsafe { tables.unordered(slot, region, access) } {
                return Err(unordered(region, tables.name(slot), tables.name(other)));
            }
        }
        for (region, access) in uses {
            // SAFETY: as above.
            unsafe { tables.remember((slot, at), region, access) };
        }
        Ok(())
    }
}

impl Tables {
    fn name(&self, slot: usize) -> String {
        self.streams[slot].name.clone()
    }

    /// The slots of the streams that count: those not dropped, and those whose work the host has not waited for.
    fn counting(&self) -> impl Iterator<Item = usize> {
        let waited = |slot: usize| self.done.get(slot).copied().unwrap_or(0);
        let streams = self.streams.iter().enumerate();
        streams
            .filter(move |(slot, s)| s.held || waited(*slot) < s.count)
            .map(|(slot, _)| slot)
    }

    /// The only stream that counts.
    fn only(&self) -> Option<usize> {
        let mut counting = self.counting();
        counting.next().filter(|_| counting.next().is_none())
    }

    /// A slot without a stream that counts.
    fn free_slot(&mut self) -> usize {
        let counting: Vec<usize> = self.counting().collect();
        let free = |slot: &usize| !self.streams[*slot].live && !counting.contains(slot);
        (0..self.streams.len()).find(free).unwrap_or_else(|| {
            self.streams.push(Slot::default());
            self.streams.len() - 1
        })
    }

    /// Takes what the driver has no longer for waited for.
    fn settle(&mut self) {
        for (slot, stream) in self.streams.iter().enumerate().filter(|(_, s)| !s.live) {
            raise(&mut self.done, slot, stream.count);
        }
    }

    /// Whether so much work of `other` comes before what the stream is given now.
    fn is_before(&self, slot: usize, other: usize, at: u64) -> bool {
        let counts = |clock: &Clock| clock.get(other).is_some_and(|count| *count >= at);
        slot == other || counts(&self.streams[slot].clock) || counts(&self.done)
    }

    /// The stream whose work on these bytes has no order with this use.
    ///
    /// # Safety
    /// The tables are those of the region's context, and locked.
    unsafe fn unordered(&self, slot: usize, region: &impl Bytes, access: Access) -> Option<usize> {
        let meets = |t: &&Touch| {
            (t.writes || access.writes())
                && !self.is_before(slot, t.slot, t.at)
                && t.bytes.start.max(region.range().start) < t.bytes.end.min(region.range().end)
        };
        // SAFETY: the caller vouches for the tables.
        unsafe { region.touched().get(self) }
            .iter()
            .find(meets)
            .map(|t| t.slot)
    }

    /// Remembers a use, and forgets what it stands for: whoever comes after it comes after those.
    ///
    /// # Safety
    /// As [`unordered`](Self::unordered).
    unsafe fn remember(&self, (slot, at): (usize, u64), region: &impl Bytes, access: Access) {
        let (bytes, writes) = (region.range(), access.writes());
        // SAFETY: the caller vouches for the tables.
        let touches = unsafe { region.touched().get(self) };
        touches.retain(|t| {
            let covered = bytes.start <= t.bytes.start && t.bytes.end <= bytes.end;
            !(covered
                && if writes {
                    self.is_before(slot, t.slot, t.at)
                } else {
                    t.slot == slot && !t.writes
                })
        });
        touches.push(Touch {
            slot,
            at,
            bytes,
            writes,
        });
        if touches.len().is_multiple_of(FORGET) {
            touches.retain(|t| self.done.get(t.slot).is_none_or(|done| *done < t.at));
        }
    }
}

impl HostTouch {
    fn meets(&self, region: &impl Bytes, access: Access) -> bool {
        let range = region.range();
        (self.writes || access.writes())
            && self.memory == region.memory()
            && self.bytes.start.max(range.start) < self.bytes.end.min(range.end)
    }
}

impl Drop for HostCopy<'_> {
    fn drop(&mut self) {
        let mut tables = lock(&self.order.tables);
        tables.copies.0.retain(|(number, _)| *number != self.number);
        self.order.see(&tables);
    }
}

/// Of so many streams that were dropped and that the host has not waited for, it counts as an order that the device is
/// done with them: somebody makes streams without end, and tables must not grow with them.
const MOST_GONE: usize = 256;

/// After so many uses of one allocation, those that the host has waited for are dropped.
const FORGET: usize = 64;

#[cold]
fn unordered(region: &impl Bytes, stream: String, other: String) -> Error {
    Error::UnorderedStreams {
        buffer: region.to_string(),
        stream,
        other,
    }
}

#[cold]
fn copied(region: &impl Bytes, stream: String) -> Error {
    Error::HostCopy {
        buffer: region.to_string(),
        stream,
    }
}

fn raise(clock: &mut Clock, slot: usize, at: u64) {
    if at == 0 {
        return;
    }
    while clock.len() <= slot {
        clock.push(0);
    }
    clock[slot] = clock[slot].max(at);
}
