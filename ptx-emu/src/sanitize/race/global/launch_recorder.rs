//! The record of a traced launch: the bytes of each instruction, and the threads that accessed each
//! element of global memory.
//!
//! A traced launch runs its blocks on one host thread. Two blocks that access the same bytes race
//! if one of them writes and [nothing orders them](crate::sanitize::race::order::block_order). The
//! order in which they ran does not matter. Within a block, threads are ordered as for [shared
//! memory](crate::sanitize::race::shared::shared_shadow).
//!
//! The record needs this much host memory:
//!
//! - Until the block ends, 32 bytes for each 64 bytes that it accessed, if each of its accesses
//!   there was by adjacent lanes and one warp read them. Otherwise 672 bytes, and 12 more for each
//!   further warp that reads a word.
//! - Until the launch ends, 4 to 12 bytes for each element that any block accessed. An element has
//!   up to 128 bytes, and as few as the smallest access near it.
//! - Until the launch ends, 1 byte for each 8 bytes of an allocation that an instruction accessed.
//!
//! If the memory reaches a [limit](crate::Watch::trace_bytes), the launch ends with a fault that
//! names it. Publications of strong accesses are not counted, and neither is the record of shared
//! memory, which needs 12 bytes for each word and warp.

use std::collections::BTreeSet;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::fault::SourcePlace;
use crate::sanitize::race::global::element_owners::{Owners, OwnersRace};
use crate::sanitize::race::global::late_stores::LateStores;
use crate::sanitize::race::global::launch_accesses::{
    Accesses, BYTES_OF_PAGE, ByteSet, MemoryOperation, Site, Trigger,
};
use crate::sanitize::race::global::word_accesses::{AccessedWords, LaneSpread};
use crate::sanitize::race::last_access::{AccessProperties, LastAccess};
use crate::sanitize::race::order::block_order::{BlockOrder, Exchange, WarpStamp};
use crate::sanitize::race::order::vector_clocks::{Clocks, Strong};
use crate::sanitize::race::shared::shared_shadow::SharedShadow;
use crate::sanitize::race::warp_view::View;

/// The record of one launch.
#[derive(Debug, Default)]
pub(crate) struct LaunchRecorder {
    /// The accessed bytes by instruction, allocation, and whether `griddepcontrol.wait` came
    /// before.
    sites: FxHashMap<(u32, u64, bool), (MemoryOperation, ByteSet)>,
    owners: Owners,
    pub(crate) late: LateStores,
    exchange: Exchange,
    /// The number of blocks that have begun.
    begun: u32,
    /// The number of blocks in which a thread executed `griddepcontrol.wait`.
    blocks_waited: u32,
    /// The executed `griddepcontrol.launch_dependents`: the instruction, and whether the warp had
    /// waited.
    triggers: BTreeSet<(u32, bool)>,
    running: Running,
    /// The state of an ended block, for reuse.
    spare: Option<AccessedWords>,
    /// The size of the states of all suspended blocks in bytes.
    apart: usize,
    /// The number of pages of all sites.
    marked: usize,
}

/// The state of one block, which runs or is suspended.
#[derive(Debug, Default)]
pub(crate) struct Running {
    order: BlockOrder,
    /// The clock of each warp when it executed `griddepcontrol.wait`, or 0.
    waits: Vec<u32>,
    /// The last accesses of the block to each word.
    words: AccessedWords,
}

/// An earlier access to the same bytes that races with the current one, and whether it was a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RacingAccess {
    pub(crate) wrote: bool,
    pub(crate) pc: Option<u32>,
    /// The thread, if it is in the same block.
    pub(crate) thread: Option<u16>,
    /// Whether the current access is an ordinary store after atomics, and the last atomic is by the
    /// block itself.
    pub(crate) reset: bool,
}

impl LaunchRecorder {
    /// Returns the state of a new block.
    pub(crate) fn begin(&mut self) -> Running {
        self.begun += 1;
        let words = self.spare.take().unwrap_or_default();
        Running {
            order: BlockOrder::new(self.begun),
            words,
            ..Running::default()
        }
    }

    /// Keeps the state of an ended block for reuse.
    pub(crate) fn end(&mut self, mut own: Running) {
        self.apart -= own.words.bytes();
        own.words.clear();
        self.apart += own.words.bytes();
        let other = self.spare.replace(own.words);
        self.apart -= other.map_or(0, |words| words.bytes());
    }

    /// Returns the size of the record in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.apart + self.running.words.bytes() + self.owners.bytes() + self.marked * BYTES_OF_PAGE
    }

    /// Returns the number of the running block.
    pub(crate) fn block(&self) -> u32 {
        self.running.order.block
    }

    /// Returns the state of the running block, so that another can run.
    pub(crate) fn suspend(&mut self) -> Running {
        self.apart += self.running.words.bytes();
        std::mem::take(&mut self.running)
    }

    /// Resumes a block.
    pub(crate) fn resume(&mut self, own: Running) {
        self.apart -= own.words.bytes();
        self.running = own;
    }

    /// Records that a warp executes `griddepcontrol.wait`.
    pub(crate) fn wait(&mut self, clocks: &Clocks, warp: u32) {
        let waits = &mut self.running.waits;
        self.blocks_waited += u32::from(waits.is_empty());
        waits.resize(clocks.warps(), 0);
        let count = &mut waits[warp as usize];
        *count = if *count == 0 {
            clocks.count(warp as usize)
        } else {
            *count
        };
    }

    /// Records that a warp executes `griddepcontrol.launch_dependents`.
    pub(crate) fn trigger(&mut self, clocks: &Clocks, warp: u32, pc: u32) {
        self.triggers.insert((pc, self.waited(clocks, warp)));
    }

    /// Returns true if a warp is ordered after a `griddepcontrol.wait` of any warp of the block.
    fn waited(&self, clocks: &Clocks, warp: u32) -> bool {
        let known = |(other, count): (usize, &u32)| {
            *count != 0 && (other == warp as usize || clocks.knows(warp, other, *count))
        };
        self.running.waits.iter().enumerate().any(known)
    }

    /// Executes an acquiring fence at a scope that includes other blocks.
    pub(crate) fn acquire_fence(&mut self, clocks: &mut Clocks, warp: u32) {
        self.running.order.acquire_fence(clocks, warp);
    }

    /// Executes a releasing fence at a scope that includes other blocks. Must precede the fence of
    /// the block's clocks.
    pub(crate) fn release_fence(&mut self, clocks: &Clocks, warp: u32) {
        self.running.order.release_fence(clocks, warp);
    }

    /// Executes the read of a strong access to global memory at a scope that includes other blocks.
    pub(crate) fn observe(&mut self, clocks: &mut Clocks, warp: u32, address: u64, access: Strong) {
        self.running
            .order
            .observe(&self.exchange, clocks, warp, address, access);
    }

    /// Executes the write of a strong access to global memory at a scope that includes other
    /// blocks.
    pub(crate) fn publish(&mut self, clocks: &Clocks, warp: u32, address: u64, access: Strong) {
        self.running
            .order
            .publish(&mut self.exchange, clocks, warp, address, access);
    }

    /// Records an access of a warp and returns an access of another block with which it races.
    pub(crate) fn record(
        &mut self,
        (clocks, warp): (&Clocks, u32),
        pc: u32,
        operation: MemoryOperation,
        base: u64,
        offset: u64,
        bytes: u32,
    ) -> Option<RacingAccess> {
        let key = (pc, base, self.waited(clocks, warp));
        let site = self
            .sites
            .entry(key)
            .or_insert_with(|| (operation, ByteSet::default()));
        self.marked += site.1.insert(offset, bytes);
        let order = &mut self.running.order;
        let me = WarpStamp {
            block: order.block,
            warp,
            count: clocks.count(warp as usize),
        };
        let ordered = |earlier| order.ordered(clocks, warp, earlier);
        let OwnersRace { wrote, reset } =
            self.owners
                .touch(base + offset, bytes, (me, operation), ordered)?;
        Some(RacingAccess {
            wrote,
            reset,
            pc: self.instruction_that(base, offset, wrote),
            thread: None,
        })
    }

    /// Records an access of lanes to runs of words, by their addresses divided by 4. Returns false
    /// without recording if it may race.
    pub(crate) fn record_together(
        &mut self,
        shared: &SharedShadow,
        access: AccessProperties,
        operation: MemoryOperation,
        base: u64,
        runs: &[(Range<u64>, LaneSpread)],
    ) -> bool {
        let view = View::of(&shared.clocks, shared.stamp(access, 15));
        let clocks = &shared.clocks;
        let warp = access.thread / 32;
        let order = &mut self.running.order;
        let owners = &mut self.owners;
        let words = &mut self.running.words;
        let me = WarpStamp {
            block: order.block,
            warp,
            count: clocks.count(warp as usize),
        };
        let bytes = |run: &Range<u64>| run.start * 4..run.end * 4;
        let mut ordered = |earlier| order.ordered(clocks, warp, earlier);
        let mut quiet = |(run, spread): &(Range<u64>, LaneSpread)| {
            words.are_quiet(run.clone(), &view, *spread, access.writes)
                && owners.are_quiet(bytes(run), (me, operation), &mut ordered)
        };
        if !runs.iter().all(&mut quiet) {
            return false;
        }

        let key = (access.pc, base, self.waited(clocks, warp));
        let site = self
            .sites
            .entry(key)
            .or_insert_with(|| (operation, ByteSet::default()));
        for (run, spread) in runs {
            let bytes = bytes(run);
            self.running
                .words
                .keep_all(run.clone(), &view, *spread, access.writes);
            self.owners.note(bytes.clone(), (me, operation));
            self.marked += site
                .1
                .insert_run(bytes.start - base, bytes.end - bytes.start);
        }

        true
    }

    /// Records an access and returns an unordered access of the running block to the same bytes.
    pub(crate) fn within_block(
        &mut self,
        shared: &SharedShadow,
        access: AccessProperties,
        address: u64,
        bytes: u32,
    ) -> Option<RacingAccess> {
        let mask = if bytes >= 4 {
            15
        } else {
            ((1 << bytes) - 1) << (address % 4)
        };
        let new = shared.stamp(access, mask);
        let mut found = None;
        for word in address / 4..address / 4 + u64::from(bytes.div_ceil(4)) {
            let words = &mut self.running.words;
            let races = |last: &LastAccess| shared.races(last, &new);
            found = found.or_else(|| words.race(word, &new, access.writes, races));
            words.keep(word, new, access.writes);
        }

        let (last, wrote) = found?;
        Some(RacingAccess {
            wrote,
            reset: false,
            pc: Some(last.pc),
            thread: Some(last.thread),
        })
    }

    /// Returns true if all instructions that have accessed a byte satisfy a condition.
    pub(crate) fn all(
        &self,
        base: u64,
        offset: u64,
        wrote: bool,
        such: impl Fn(u32, MemoryOperation) -> bool,
    ) -> bool {
        let here = |(operation, bytes): &(MemoryOperation, ByteSet)| {
            operation.writes() == wrote && bytes.contains(offset)
        };
        let mut sites = self
            .sites
            .iter()
            .filter(|((_, b, _), site)| *b == base && here(site));
        sites.all(|((pc, ..), (operation, _))| such(*pc, *operation))
    }

    /// Returns an instruction that has read or written a byte.
    pub(crate) fn instruction_that(&self, base: u64, offset: u64, wrote: bool) -> Option<u32> {
        let did = |(operation, bytes): &(MemoryOperation, ByteSet)| {
            operation.writes() == wrote && bytes.contains(offset)
        };
        self.sites
            .iter()
            .filter(|((_, b, _), site)| *b == base && did(site))
            .map(|((pc, ..), _)| *pc)
            .min()
    }

    /// Returns the finished record, sorted by instruction and address.
    pub(crate) fn finish(
        self,
        kernel: &str,
        place: impl Fn(u32) -> SourcePlace,
        find: impl Fn(u64) -> Option<crate::AllocationInfo>,
    ) -> Accesses {
        let mut sites: Vec<Site> = self
            .sites
            .into_iter()
            .filter_map(|((pc, base, waited), (operation, bytes))| {
                Some(Site {
                    place: place(pc),
                    pc,
                    operation,
                    allocation: find(base)?,
                    waited,
                    bytes,
                })
            })
            .collect();
        sites.sort_by_key(|s| (s.pc, s.allocation.base, s.waited));
        let trigger = |(pc, waited)| Trigger {
            place: place(pc),
            waited,
        };
        Accesses {
            kernel: kernel.into(),
            sites,
            waited: self.blocks_waited == self.begun,
            triggers: self.triggers.into_iter().map(trigger).collect(),
        }
    }
}
