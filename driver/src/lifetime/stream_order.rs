//! Checks that conflicting work of different streams is ordered.
//!
//! Two operations conflict if they come from different streams, touch a common byte and at least
//! one of them writes. The program must order them: the later stream waits for an event of the
//! earlier one, or the host waits between the two. Work without such an order is refused when it is
//! queued. The check uses only the order that the program states, never the progress of the device.
//! The same program is therefore refused in every run.
//!
//! The order is tracked with vector clocks (Fidge 1988, Mattern 1989). Each stream counts its
//! operations. A clock holds, for each stream, the number of its operations that come first. An
//! event carries the clock of the point where it was recorded. A stream that waits for the event
//! takes the maximum of both clocks.
//!
//! A stream counts until it was dropped and the host has waited for its work. Completion on the
//! device is not an order, because the program cannot know about it. While only one stream counts,
//! all work is ordered and nothing is recorded. When a second stream is added, everything queued
//! until then is ordered before each later stream.
//!
//! Host copies take part as well. A copy first waits for the work that was queued before it. Until
//! the copy ends, conflicting work is refused.

use std::cell::UnsafeCell;
use std::fmt::Display;
use std::ops::Range;
use std::panic::RefUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use ptx_gen::Access;

use crate::error::Error;
use crate::lifetime::stream_progress::ProgressMark;
use crate::lifetime::unpoisoned_lock::lock;
use crate::small_vec::SmallVec;

/// A range of bytes within one allocation.
pub(crate) trait ByteRange: Display {
    /// Returns a number that identifies the allocation.
    fn memory(&self) -> usize;

    /// Returns the range within the allocation.
    fn range(&self) -> Range<usize>;

    /// Returns the recorded accesses to the allocation.
    fn touched(&self) -> &AccessHistory;
}

/// A vector clock: for each slot, the number of operations that come first.
pub(crate) type VectorClock = SmallVec<u64, 4>;

/// The clocks of a context's streams.
#[derive(Default)]
pub(crate) struct StreamOrder {
    /// Hint that more than one stream counts or that the host copies.
    several: AtomicBool,
    /// Whether graphs own memory, which must not be used by work of streams.
    graph_memory: AtomicBool,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    /// The streams by slot.
    streams: Vec<Slot>,
    /// The number of streams added so far.
    made: u64,
    /// The operations that the host has waited for.
    done: VectorClock,
    /// The operations queued while nothing was recorded. Every stream begins after them.
    first: VectorClock,
    /// The points of unrecorded work that the device may not have reached.
    untracked: Vec<ProgressMark>,
    /// The current host copies, each with its number, and the number of copies so far.
    copies: HostCopies,
}

/// The host copies in progress.
#[derive(Default)]
struct HostCopies {
    current: Vec<(u64, HostTouch)>,
    /// The number of copies so far, from which the next number is taken.
    count: u64,
}

/// A range of bytes that the host copies from or to.
struct HostTouch {
    memory: usize,
    bytes: Range<usize>,
    writes: bool,
}

/// A host copy in progress. Conflicting work is refused while this value lives.
pub(crate) struct HostCopy<'a> {
    order: &'a StreamOrder,
    number: u64,
}

/// The state of a slot and of its present or last stream.
#[derive(Default)]
struct Slot {
    name: String,
    clock: VectorClock,
    /// The number of operations of a stream that was dropped. The next stream in this slot
    /// continues the count, so that clocks that mention the slot stay valid.
    count: u64,
    /// Whether a handle of the stream exists.
    has_handle: bool,
    /// Whether the driver's stream exists.
    exists: bool,
}

/// An access to a range of bytes within one allocation.
struct Touch {
    slot: usize,
    at: u64,
    bytes: Range<usize>,
    writes: bool,
}

/// The accesses to one allocation that later work may have to be ordered after.
///
/// They are stored in the allocation, so that no lookup is needed. They are guarded by the lock of
/// the tables of the allocation's context and therefore need no lock here.
#[derive(Default)]
pub(crate) struct AccessHistory(UnsafeCell<Vec<Touch>>);

// SAFETY: the only access is `AccessHistory::get`, whose callers hold the lock of the tables.
unsafe impl Sync for AccessHistory {}

// A panic under the lock leaves a valid list: every change of it is a single call of `Vec`.
impl RefUnwindSafe for AccessHistory {}

impl AccessHistory {
    /// Returns the accesses.
    ///
    /// # Safety
    /// - `_locked` must be the locked tables of the allocation's context.
    /// - The caller must not use a reference that an earlier call returned.
    #[expect(
        clippy::mut_from_ref,
        reason = "the lock of the tables makes the reference exclusive"
    )]
    unsafe fn get<'t>(&'t self, _locked: &'t Tables) -> &'t mut Vec<Touch> {
        // SAFETY: the caller guarantees that the tables are locked and no other reference is in
        // use.
        unsafe { &mut *self.0.get() }
    }
}

impl StreamOrder {
    /// Returns true if the order of new work must be checked, because more than one stream counts
    /// or the host copies.
    #[inline]
    pub(crate) fn several(&self) -> bool {
        self.several.load(Acquire)
    }

    /// Returns true if graphs own memory, so that the memory of new work must be checked.
    #[inline]
    pub(crate) fn has_graph_memory(&self) -> bool {
        self.graph_memory.load(Acquire)
    }

    pub(crate) fn set_graph_memory(&self) {
        self.graph_memory.store(true, Release);
    }

    /// Adds a stream and returns its slot, the count at which it begins, and the slot of the stream
    /// that was the only one to count until now, if any.
    ///
    /// The caller must order the work of that stream first with [`put_first`](Self::put_first).
    pub(crate) fn add(&self) -> (usize, u64, Option<usize>) {
        let mut tables = lock(&self.tables);
        let only = tables.only();
        let slot = tables.free_slot();
        let name = format!("stream {}", tables.made);
        let clock = tables.first.clone();
        tables.made += 1;
        let stream = &mut tables.streams[slot];
        stream.exists = true;
        stream.has_handle = true;
        stream.name = name;
        stream.clock = clock;
        let count = stream.count;
        self.update_several(&tables);
        (slot, count, only)
    }

    /// Records that the last handle of a stream was dropped, after `count` operations.
    ///
    /// The host has waited for `waited` of them while no other stream counted.
    pub(crate) fn leave(&self, slot: usize, count: u64, waited: u64) {
        let mut tables = lock(&self.tables);
        raise(&mut tables.done, slot, waited);
        tables.streams[slot].has_handle = false;
        tables.streams[slot].count = count;
        self.update_several(&tables);
    }

    /// Records that the driver's stream was destroyed. Its handles are gone and it is idle.
    pub(crate) fn remove(&self, slot: usize) {
        let mut tables = lock(&self.tables);
        tables.streams[slot].exists = false;
        let gone = tables.streams.iter().filter(|s| !s.exists).count();
        if gone > MOST_GONE {
            tables.settle();
        }
        self.update_several(&tables);
    }

    /// Records that the host has waited for everything, including streams that were destroyed.
    pub(crate) fn settle(&self) {
        let mut tables = lock(&self.tables);
        tables.settle();
        self.update_several(&tables);
    }

    /// Updates the hint that is read without a lock.
    fn update_several(&self, tables: &Tables) {
        let several = tables.counting().nth(1).is_some() || !tables.copies.current.is_empty();
        self.several.store(several, Release);
    }

    /// Registers a host copy of `region`.
    ///
    /// The caller must wait for all streams after this call and before the copy. The wait takes the
    /// lock of each stream. An operation that was queued without seeing this copy is therefore
    /// waited for.
    pub(crate) fn host_copies(&self, region: &impl ByteRange, access: Access) -> HostCopy<'_> {
        let mut tables = lock(&self.tables);
        tables.copies.count += 1;
        let number = tables.copies.count;
        let touch = HostTouch {
            memory: region.memory(),
            bytes: region.range(),
            writes: access.writes(),
        };
        tables.copies.current.push((number, touch));
        self.update_several(&tables);
        HostCopy {
            order: self,
            number,
        }
    }

    /// Orders `at` operations of a stream, which were not recorded, before all work queued from now
    /// on.
    pub(crate) fn put_first(&self, slot: usize, at: u64, mark: Option<ProgressMark>) {
        let mut tables = lock(&self.tables);
        raise(&mut tables.first, slot, at);
        for stream in &mut tables.streams {
            raise(&mut stream.clock, slot, at);
        }
        tables.untracked.extend(mark);
    }

    /// Returns the number of operations of a stream whose handles are gone.
    pub(crate) fn count(&self, slot: usize) -> u64 {
        lock(&self.tables).streams[slot].count
    }

    /// Returns the points of unrecorded work that a new stream has to wait for.
    pub(crate) fn untracked(&self) -> Vec<ProgressMark> {
        let mut tables = lock(&self.tables);
        tables.untracked.retain(|mark| !mark.is_reached());
        tables.untracked.clone()
    }

    /// Drops the points of unrecorded work that were reached, because each keeps its stream alive.
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

    /// Returns the clock of a stream after `at` of its operations.
    ///
    /// It must be taken before the host waits, because an order that the stream gains during the
    /// wait does not apply to the point that is waited for. The clock is needed even if only one
    /// stream counts: others may have counted before, and accesses from that time are recorded.
    pub(crate) fn clock(&self, slot: usize, at: u64) -> VectorClock {
        let mut clock = VectorClock::new();
        self.fill(&mut clock, slot, at);
        clock
    }

    /// Fills the empty `clock` with the clock of a stream after `at` of its operations.
    pub(crate) fn fill(&self, clock: &mut VectorClock, slot: usize, at: u64) {
        for count in lock(&self.tables).streams[slot].clock.iter() {
            clock.push(*count);
        }
        raise(clock, slot, at);
    }

    /// Orders work queued in the stream from now on after everything in `clock`.
    pub(crate) fn join(&self, slot: usize, clock: &[u64]) {
        let mut tables = lock(&self.tables);
        let ours = &mut tables.streams[slot].clock;
        for (other, at) in clock.iter().enumerate() {
            raise(ours, other, *at);
        }
    }

    /// Records that the host has waited for everything in `clock`.
    pub(crate) fn wait(&self, clock: &[u64]) {
        let mut tables = lock(&self.tables);
        for (slot, at) in clock.iter().enumerate() {
            raise(&mut tables.done, slot, *at);
        }
        self.update_several(&tables);
    }

    /// Records that the host has waited for `at` operations of the only stream that counts.
    pub(crate) fn wait_for(&self, slot: usize, at: u64) {
        let mut tables = lock(&self.tables);
        raise(&mut tables.done, slot, at);
        self.update_several(&tables);
    }

    /// Records the accesses of operation `at` of a stream.
    ///
    /// # Errors
    /// Returns an error if an access conflicts with a host copy or with an operation of another
    /// stream that is not ordered before this one. Nothing is recorded then.
    ///
    /// # Safety
    /// The regions must belong to the context of this order.
    pub(crate) unsafe fn admit<'a, B: ByteRange + 'a>(
        &self,
        slot: usize,
        at: u64,
        uses: impl Iterator<Item = (&'a B, Access)> + Clone,
    ) -> Result<(), Error> {
        // One lock for the checks and the records: otherwise two streams could check at the same
        // time, and neither would see the other's access.
        let tables = lock(&self.tables);
        for (region, access) in uses.clone() {
            if tables
                .copies
                .current
                .iter()
                .any(|(_, copy)| copy.meets(region, access))
            {
                return Err(copied(region, tables.name(slot)));
            }
            // SAFETY: the caller guarantees that the region is of this context, whose tables are
            // locked.
            if let Some(other) = unsafe { tables.unordered(slot, region, access) } {
                return Err(unordered(region, tables.name(slot), tables.name(other)));
            }
        }

        for (region, access) in uses {
            // SAFETY: the caller guarantees that the region is of this context, whose tables are
            // locked. The reference that `unordered` used is gone.
            unsafe { tables.remember(slot, at, region, access) };
        }

        Ok(())
    }
}

impl Tables {
    fn name(&self, slot: usize) -> String {
        self.streams[slot].name.clone()
    }

    /// Returns the slots of the streams that count: those with a handle, and those with operations
    /// that the host has not waited for.
    fn counting(&self) -> impl Iterator<Item = usize> {
        let waited = |slot: usize| self.done.get(slot).copied().unwrap_or(0);
        let streams = self.streams.iter().enumerate();
        streams
            .filter(move |(slot, s)| s.has_handle || waited(*slot) < s.count)
            .map(|(slot, _)| slot)
    }

    /// Returns the slot of the only stream that counts, if there is exactly one.
    fn only(&self) -> Option<usize> {
        let mut counting = self.counting();
        counting.next().filter(|_| counting.next().is_none())
    }

    /// Returns a slot whose stream was destroyed and does not count, or a new one.
    fn free_slot(&mut self) -> usize {
        let counting: Vec<usize> = self.counting().collect();
        let free = |slot: &usize| !self.streams[*slot].exists && !counting.contains(slot);
        (0..self.streams.len()).find(free).unwrap_or_else(|| {
            self.streams.push(Slot::default());
            self.streams.len() - 1
        })
    }

    /// Treats the operations of destroyed streams as waited for.
    fn settle(&mut self) {
        for (slot, stream) in self.streams.iter().enumerate().filter(|(_, s)| !s.exists) {
            raise(&mut self.done, slot, stream.count);
        }
    }

    /// Returns true if operation `at` of `other` is ordered before the next operation of the
    /// stream.
    fn is_before(&self, slot: usize, other: usize, at: u64) -> bool {
        let counts = |clock: &VectorClock| clock.get(other).is_some_and(|count| *count >= at);
        slot == other || counts(&self.streams[slot].clock) || counts(&self.done)
    }

    /// Returns the stream of a recorded access that conflicts with this one and is not ordered
    /// before it.
    ///
    /// # Safety
    /// `self` must be the locked tables of the region's context.
    unsafe fn unordered(
        &self,
        slot: usize,
        region: &impl ByteRange,
        access: Access,
    ) -> Option<usize> {
        let meets = |t: &&Touch| {
            (t.writes || access.writes())
                && !self.is_before(slot, t.slot, t.at)
                && t.bytes.start.max(region.range().start) < t.bytes.end.min(region.range().end)
        };
        // SAFETY: the caller guarantees that `self` is the locked tables of the region's context.
        // The reference lives until the end of this expression.
        unsafe { region.touched().get(self) }
            .iter()
            .find(meets)
            .map(|t| t.slot)
    }

    /// Records an access and drops the earlier accesses it subsumes, because work ordered after
    /// this access is also ordered after them.
    ///
    /// # Safety
    /// `self` must be the locked tables of the region's context.
    unsafe fn remember(&self, slot: usize, at: u64, region: &impl ByteRange, access: Access) {
        let bytes = region.range();
        let writes = access.writes();

        // SAFETY: the caller guarantees that `self` is the locked tables of the region's context.
        // No other reference is in use.
        let touches = unsafe { region.touched().get(self) };
        touches.retain(|t| {
            let is_covered = bytes.start <= t.bytes.start && t.bytes.end <= bytes.end;
            // A write conflicts with everything, so it stands for all covered accesses before it. A
            // read stands only for reads of its stream. A write before it must stay, because a read
            // of a third stream conflicts with that write and not with this read.
            let is_subsumed = if writes {
                self.is_before(slot, t.slot, t.at)
            } else {
                t.slot == slot && !t.writes
            };
            !(is_covered && is_subsumed)
        });
        touches.push(Touch {
            slot,
            at,
            bytes,
            writes,
        });

        // Not on every access, because the scan costs more than the access. The list then has at
        // most `FORGET` entries more than those that still matter.
        if touches.len().is_multiple_of(FORGET) {
            touches.retain(|t| self.done.get(t.slot).is_none_or(|done| *done < t.at));
        }
    }
}

impl HostTouch {
    fn meets(&self, region: &impl ByteRange, access: Access) -> bool {
        let range = region.range();
        (self.writes || access.writes())
            && self.memory == region.memory()
            && self.bytes.start.max(range.start) < self.bytes.end.min(range.end)
    }
}

impl Drop for HostCopy<'_> {
    fn drop(&mut self) {
        let mut tables = lock(&self.order.tables);
        tables
            .copies
            .current
            .retain(|(number, _)| *number != self.number);
        self.order.update_several(&tables);
    }
}

/// The number of streams that may have been dropped and destroyed without a host wait.
///
/// Beyond it, their completion on the device counts as an order. Otherwise a program that creates
/// streams without end would grow the tables without end.
const MOST_GONE: usize = 256;

/// The number of accesses to an allocation after which those that the host has waited for are
/// dropped.
const FORGET: usize = 64;

#[cold]
fn unordered(region: &impl ByteRange, stream: String, other: String) -> Error {
    Error::UnorderedStreams {
        buffer: region.to_string(),
        stream,
        other,
    }
}

#[cold]
fn copied(region: &impl ByteRange, stream: String) -> Error {
    Error::HostCopy {
        buffer: region.to_string(),
        stream,
    }
}

fn raise(clock: &mut VectorClock, slot: usize, at: u64) {
    if at == 0 {
        return;
    }
    while clock.len() <= slot {
        clock.push(0);
    }
    clock[slot] = clock[slot].max(at);
}
