//! Asynchronous copies (manual, "cp.async", "cp.async.bulk").
//!
//! A copy reserves its destination from issue to completion, and no thread may access it in
//! between. A bulk copy completes some time slices later, chosen by the seed, or when all warps
//! wait. Its source is read only then. Its bytes count as written by its mbarrier, so a thread must
//! wait for the phase before it reads them.
//!
//! Copies that a thread makes with `cp.async` complete when the thread waits for their group, and
//! count as written by the thread at that moment. With `cp.async.mbarrier.arrive` they complete
//! some time slices later, and count as written by the mbarrier.

use std::rc::Rc;

use crate::machine::async_copy::tensor_copy::TensorBox;
use crate::machine::lane_mask::lanes;
use crate::machine::memory::allocation::ShadowedAllocation;
use crate::machine::scheduler::grid::mix;
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::module::code::asynchronous::{AsyncStore, Reduction};
use crate::module::code::{Address, BulkCopy, InstructionSpace, MemoryScope, ThreadCopy};
use crate::sanitize::race::launch_accesses::MemoryOperation;
use crate::sanitize::race::shared_shadow::{AccessProperties, CopyWriter, Proxy};
use crate::sanitize::race::vector_clocks::Clock;
use crate::{Class, Fault};

/// The maximum delay of a copy in turns, as long as a warp can run.
const LATE: u64 = 16;

/// A pending bulk copy or asynchronous store.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingArrival {
    pub(crate) pc: u32,
    thread: u32,
    to: u32,
    from: u64,
    bytes: u32,
    /// The address of the mbarrier on which it completes.
    barrier: u32,
    due: u64,
    /// For an arrival at the mbarrier: the number of the last copy of the thread that must complete
    /// first.
    before: Option<u64>,
    /// The box, for a copy from a tensor.
    boxed: Option<Rc<TensorBox>>,
    /// The words that `st.async` stores, or the operands of `red.async`.
    words: Vec<u32>,
    reduction: Option<Reduction>,
    /// The knowledge of the thread about phases of mbarriers.
    phases: Clock,
    /// The source and its version when the copy was issued, for a copy from shared memory whose
    /// bytes are in `words`.
    shared: Option<(u64, u64)>,
}

/// A pending `cp.async` of a thread.
#[derive(Clone, Copy, Debug)]
struct PendingCopy {
    pc: u32,
    thread: u32,
    to: u32,
    from: u64,
    bytes: u32,
    source_bytes: u32,
    /// The number of its group among the groups of the thread.
    group: u32,
    number: u64,
}

/// The pending copies of a block.
#[derive(Debug, Default)]
pub(crate) struct PendingCopies {
    arrivals: Vec<PendingArrival>,
    /// The `cp.async` copies by warp.
    own: Vec<Vec<PendingCopy>>,
    /// The number of groups that each thread has committed.
    groups: Vec<[u32; 32]>,
    /// The number of turns, and the number of issued copies.
    turns: u64,
    issued: u64,
}

impl PendingCopies {
    /// Resets the state for a new block.
    pub(crate) fn start(&mut self, warps: usize) {
        self.arrivals.clear();
        self.own.resize_with(warps, Vec::new);
        self.own.iter_mut().for_each(Vec::clear);
        self.groups.clear();
        self.groups.resize(warps, [0; 32]);
        self.turns = 0;
        self.issued = 0;
    }

    /// Returns the instruction of a copy whose destination overlaps `bytes` bytes at an address.
    pub(crate) fn within(&self, address: u64, bytes: u64) -> Option<u32> {
        let meets = |to: u32, size: u32| {
            u64::from(to) < address.saturating_add(bytes)
                && address < u64::from(to) + u64::from(size)
        };
        let flight = self
            .arrivals
            .iter()
            .find(|f| meets(f.to, f.bytes))
            .map(|f| f.pc);
        flight.or_else(|| {
            self.own
                .iter()
                .flatten()
                .find(|c| meets(c.to, c.bytes))
                .map(|c| c.pc)
        })
    }

    /// Executes `cp.async.commit_group`.
    pub(crate) fn commit(&mut self, warp: u32, mask: u32) {
        lanes(mask).for_each(|l| self.groups[warp as usize][l] += 1);
    }

    /// Returns true if no copy is pending that completes without a wait.
    pub(crate) fn is_idle(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Returns the number of turns.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns a random time within the next turns.
    pub(crate) fn later(&mut self, seed: u64) -> u64 {
        self.issued += 1;
        self.turns + 1 + mix(seed ^ self.issued << 16) % LATE
    }

    /// Returns the time of the last arrival of a thread. The next arrival must not be earlier,
    /// because it also covers the copies of the last one.
    fn last_arrival(&self, thread: u32) -> u64 {
        let of_thread = |f: &&PendingArrival| f.before.is_some() && f.thread == thread;
        self.arrivals
            .iter()
            .filter(of_thread)
            .map(|f| f.due)
            .max()
            .unwrap_or(0)
    }

    /// Returns true if a pending copy completes on the mbarrier at an address.
    pub(crate) fn aims_at(&self, address: u64) -> bool {
        self.arrivals
            .iter()
            .any(|f| u64::from(f.barrier) == address)
    }
}

impl<'g> Worker<'g, '_> {
    /// Executes `cp.async.bulk` to shared memory.
    pub(crate) fn bulk(&mut self, w: &mut Warp, mask: u32, b: &BulkCopy) -> Checked<()> {
        if b.source == InstructionSpace::Shared {
            return self.bulk_between(w, mask, b);
        }
        let mut to = [0; 32];
        let mut from = [0; 32];
        let mut barrier = [0; 32];
        self.addresses(w, mask, &b.to, &mut to)?;
        self.addresses(w, mask, &b.from, &mut from)?;
        self.addresses(w, mask, &b.barrier, &mut barrier)?;
        let bytes = self.words(w, mask, b.bytes)?;
        self.check_alignment(w, mask, &to, 16)?;
        self.check_alignment(w, mask, &from, 16)?;
        let blocks = b.blocks.map(|slot| self.words(w, mask, slot)).transpose()?;
        for l in lanes(mask) {
            // At the same place in each block, and counted by the mbarrier at the same place.
            let all = match &blocks {
                Some(blocks) => self.named_blocks(w, l, blocks[l] & 0xffff)?,
                None => vec![None],
            };
            for rank in all {
                let to = self.in_block(w, to[l], rank)?;
                let barrier = self.in_block(w, barrier[l], rank)?;
                self.issue(w, l, (to, from[l], bytes[l]), barrier)?;
            }
        }
        Ok(())
    }

    /// Executes `cp.async.bulk` from the shared memory of the block to shared memory of the
    /// cluster.
    fn bulk_between(&mut self, w: &mut Warp, mask: u32, b: &BulkCopy) -> Checked<()> {
        let mut to = [0; 32];
        let mut from = [0; 32];
        let mut barrier = [0; 32];
        self.shared_addresses(w, mask, &b.to, InstructionSpace::Cluster, &mut to)?;
        self.shared_addresses(w, mask, &b.from, InstructionSpace::Shared, &mut from)?;
        self.shared_addresses(w, mask, &b.barrier, InstructionSpace::Cluster, &mut barrier)?;
        let bytes = self.words(w, mask, b.bytes)?;
        self.check_alignment(w, mask, &to, 16)?;
        self.check_alignment(w, mask, &from, 16)?;
        for l in lanes(mask) {
            self.check_size(w, l, bytes[l])?;
            self.check_target(w, l, barrier[l])?;
            self.check_beside(w, l, (to[l], barrier[l]), "cp.async.bulk")?;
            self.read_beside(w, l, w.now.pc, from[l], bytes[l])?;
            self.claim(w, l, to[l], bytes[l], Proxy::Async)?;
            if bytes[l] == 0 {
                continue;
            }
            let offset =
                |at: u64| (from[l] + at - u64::from(crate::module::decode::SHARED_BASE)) as usize;
            let words = (0..u64::from(bytes[l]))
                .step_by(4)
                .map(|at| self.shared.read(offset(at), 4) as u32);
            let words = words.collect();
            let shared = Some((from[l], self.version(from[l], bytes[l])));
            let to = to[l] as u32;
            let barrier = barrier[l] as u32;
            let bytes = bytes[l];
            let arrival = PendingArrival {
                to,
                bytes,
                barrier,
                words,
                shared,
                ..PendingArrival::default()
            };
            self.pend(w, l, arrival);
        }
        Ok(())
    }

    /// Checks that a store to another block completes on an mbarrier in the same block.
    fn check_beside(
        &self,
        w: &Warp,
        lane: usize,
        (to, barrier): (u64, u64),
        name: &str,
    ) -> Checked<()> {
        if self.shared.rank(to) == self.shared.rank(barrier) {
            return Ok(());
        }
        let what = format!("{name} to another block than that of its mbarrier");
        let mut fault = self.fault(w, 1 << lane, Class::Mbarrier, what);
        fault.instead = "name an mbarrier of the block that is stored to";
        Err(fault)
    }

    /// Executes `st.async` and `red.async`. They land like a copy, with the current values.
    pub(crate) fn store_async(&mut self, w: &mut Warp, mask: u32, s: &AsyncStore) -> Checked<()> {
        let mut to = [0; 32];
        let mut barrier = [0; 32];
        self.shared_addresses(w, mask, &s.to, s.space, &mut to)?;
        self.shared_addresses(w, mask, &s.barrier, s.space, &mut barrier)?;
        let bytes = s.values.iter().map(|value| value.bits / 8).sum();
        self.check_alignment(w, mask, &to, bytes)?;
        self.check_alignment(w, mask, &barrier, 8)?;
        let mut words = vec![Vec::new(); 32];
        for value in &s.values {
            let values = self.take(w, *value, mask)?;
            for l in lanes(mask) {
                let halves = [values[l] as u32, (values[l] >> 32) as u32];
                words[l].extend(&halves[..value.bits as usize / 32]);
            }
        }
        lanes(mask).try_for_each(|l| {
            let words = std::mem::take(&mut words[l]);
            self.issue_words(w, l, (to[l], barrier[l]), words, s.reduction)
        })
    }

    /// Issues a store of words, whose mbarrier must be in the same block.
    fn issue_words(
        &mut self,
        w: &Warp,
        lane: usize,
        (to, barrier): (u64, u64),
        words: Vec<u32>,
        reduction: Option<Reduction>,
    ) -> Checked<()> {
        self.object(w, lane, barrier)?;
        let bytes = 4 * words.len() as u32;
        if reduction.is_none() {
            self.claim(w, lane, to, bytes, Proxy::Generic)?;
        }
        let name = if reduction.is_some() {
            "red.async"
        } else {
            "st.async"
        };
        self.check_beside(w, lane, (to, barrier), name)?;
        if reduction.is_some() {
            self.claim_reduction(w, lane, (to, barrier as u32), bytes)?;
        }
        let to = to as u32;
        let barrier = barrier as u32;
        let arrival = PendingArrival {
            to,
            bytes,
            barrier,
            words,
            reduction,
            ..PendingArrival::default()
        };
        self.pend(w, lane, arrival);
        Ok(())
    }

    /// Checks that a reduction may change its destination, and records it as a strong write of the
    /// mbarrier.
    ///
    /// It follows the rules of an atomic by the thread. Other reductions and atomics may access the
    /// destination concurrently, and a thread that waits may read the result.
    fn claim_reduction(
        &mut self,
        w: &Warp,
        lane: usize,
        (to, barrier): (u64, u32),
        bytes: u32,
    ) -> Checked<()> {
        if self.shared.rank(to) == w.rank {
            let what = "red.async to shared memory of the thread's own block".to_string();
            let mut fault = self.fault(w, 1 << lane, Class::Mbarrier, what);
            fault.instead = "use red.shared::cta, or name another block of the cluster by mapa";
            return Err(fault);
        }
        let access = AccessProperties {
            pc: w.now.pc,
            reads: true,
            writes: true,
            strong: true,
            ..AccessProperties::default()
        };
        let offset = self.touch(w, lane, to, bytes, access)?;
        if let Some((_, agent)) = self.agent(barrier) {
            let value = self.shared.read(offset, bytes);
            self.shared
                .land_strong(to as u32, value, bytes, agent, w.now.pc);
        }
        Ok(())
    }

    /// Queues a copy of a lane and marks its destination as covered.
    fn pend(&mut self, w: &Warp, lane: usize, arrival: PendingArrival) {
        let due = self
            .copies
            .later(self.grid.schedule.seed ^ u64::from(self.blocks[0][0]));
        let pc = w.now.pc;
        let thread = w.index * 32 + lane as u32;
        let mut phases = Clock::new();
        self.shared.clocks.release_phases(w.index, &mut phases);
        if arrival.reduction.is_none() {
            self.shared.cover(arrival.to, arrival.bytes, true);
        }
        self.copies.arrivals.push(PendingArrival {
            pc,
            thread,
            due,
            phases,
            ..arrival
        });
    }

    fn issue(
        &mut self,
        w: &Warp,
        lane: usize,
        (to, from, bytes): (u64, u64, u32),
        barrier: u64,
    ) -> Checked<()> {
        self.check_size(w, lane, bytes)?;
        self.check_target(w, lane, barrier)?;
        self.claim(w, lane, to, bytes, Proxy::Async)?;
        let a = self.source(w, lane, from, bytes)?;
        self.record_source(w, lane, a, from, bytes)?;
        if bytes > 0 {
            let to = to as u32;
            let barrier = barrier as u32;
            self.pend(
                w,
                lane,
                PendingArrival {
                    to,
                    from,
                    bytes,
                    barrier,
                    ..PendingArrival::default()
                },
            );
        }
        Ok(())
    }

    /// Issues the copy of a box to the arena. Its source was checked.
    pub(crate) fn issue_box(
        &mut self,
        w: &Warp,
        lane: usize,
        (to, barrier): (u64, u64),
        boxed: Rc<TensorBox>,
    ) -> Checked<()> {
        let bytes = boxed.map.box_bytes();
        self.check_target(w, lane, barrier)?;
        self.claim(w, lane, to, bytes, Proxy::Async)?;
        let to = to as u32;
        let barrier = barrier as u32;
        let arrival = PendingArrival {
            to,
            bytes,
            barrier,
            boxed: Some(boxed),
            ..PendingArrival::default()
        };
        self.pend(w, lane, arrival);
        Ok(())
    }

    /// Executes `cp.async`.
    pub(crate) fn copy(&mut self, w: &mut Warp, mask: u32, c: &ThreadCopy) -> Checked<()> {
        let mut to = [0; 32];
        let mut from = [0; 32];
        self.shared_addresses(w, mask, &c.to, InstructionSpace::Shared, &mut to)?;
        self.addresses(w, mask, &c.from, &mut from)?;
        self.check_alignment(w, mask, &to, c.bytes)?;
        self.check_alignment(w, mask, &from, c.bytes)?;
        let sizes = c
            .source_bytes
            .map_or(Ok([c.bytes; 32]), |slot| self.words(w, mask, slot))?;
        for l in lanes(mask) {
            let source_bytes = sizes[l];
            if source_bytes > c.bytes {
                let what = format!(
                    "cp.async reads {source_bytes} bytes where it copies {}",
                    c.bytes
                );
                return Err(self.fault(w, 1 << l, Class::OutOfBounds, what));
            }
            self.claim(w, l, to[l], c.bytes, Proxy::Generic)?;
            if source_bytes > 0 {
                let a = self.source(w, l, from[l], source_bytes)?;
                self.record_source(w, l, a, from[l], source_bytes)?;
            }
            self.copies.issued += 1;
            let own = PendingCopy {
                pc: w.now.pc,
                thread: w.index * 32 + l as u32,
                to: to[l] as u32,
                from: from[l],
                bytes: c.bytes,
                source_bytes,
                group: self.copies.groups[w.index as usize][l],
                number: self.copies.issued,
            };
            self.copies.own[w.index as usize].push(own);
            self.shared.cover(own.to, own.bytes, true);
        }
        Ok(())
    }

    /// Executes `cp.async.wait_group`, after which each lane has at most `keep` pending groups, or
    /// `cp.async.wait_all`.
    pub(crate) fn copy_wait(&mut self, w: &Warp, mask: u32, keep: Option<u32>) {
        let groups = self.copies.groups[w.index as usize];
        self.land_own(w.index, None, |c| {
            let lane = c.thread as usize % 32;
            mask >> lane & 1 != 0 && keep.is_none_or(|keep| c.group + keep < groups[lane])
        });
    }

    /// Completes the `cp.async` copies of a warp for which `which` is true. Returns true if there
    /// were any.
    fn land_own(
        &mut self,
        warp: u32,
        agent: Option<usize>,
        which: impl Fn(&PendingCopy) -> bool,
    ) -> bool {
        let mut own = std::mem::take(&mut self.copies.own[warp as usize]);
        let before = own.len();
        own.retain(|c| {
            let arrives = which(c);
            if arrives {
                self.shared.cover(c.to, c.bytes, false);
                let by = agent.map_or(CopyWriter::Thread(c.thread), CopyWriter::Agent);
                self.shared.land(
                    c.to,
                    self.grid.words(c.from, c.bytes, c.source_bytes),
                    by,
                    c.pc,
                );
            }
            !arrives
        });
        let landed = own.len() < before;
        self.copies.own[warp as usize] = own;
        landed
    }

    /// Executes `cp.async.mbarrier.arrive`. `more` is set without `.noinc`.
    pub(crate) fn copy_arrives(
        &mut self,
        w: &Warp,
        mask: u32,
        space: InstructionSpace,
        a: Address,
        more: bool,
    ) -> Checked<()> {
        let mut addresses = [0; 32];
        self.shared_addresses(w, mask, &a, space, &mut addresses)?;
        self.check_alignment(w, mask, &addresses, 8)?;
        for l in lanes(mask) {
            let i = self.object(w, l, addresses[l])?;
            if more {
                self.expect_more(w, l, i)?;
            }
            let due = self
                .copies
                .later(self.grid.schedule.seed ^ u64::from(self.blocks[0][0]));
            let due = due.max(self.copies.last_arrival(w.index * 32 + l as u32));
            let pc = w.now.pc;
            let thread = w.index * 32 + l as u32;
            let barrier = addresses[l] as u32;
            let before = Some(self.copies.issued);
            let arrival = PendingArrival {
                pc,
                thread,
                barrier,
                due,
                before,
                ..PendingArrival::default()
            };
            self.copies.arrivals.push(arrival);
        }
        Ok(())
    }

    /// Checks that a copy issued by a thread may write its destination.
    fn claim(&mut self, w: &Warp, lane: usize, to: u64, bytes: u32, proxy: Proxy) -> Checked<()> {
        let thread = w.index * 32 + lane as u32;
        let access = AccessProperties {
            pc: w.now.pc,
            thread,
            writes: true,
            proxy,
            ..AccessProperties::default()
        };
        if !self.shared.may_claim(to, bytes, access) {
            let places = (0..bytes.into()).step_by(4).map(|at| to.wrapping_add(at));
            places
                .into_iter()
                .try_for_each(|place| self.claim_word(w, lane, place, access))?;
        }
        if bytes > 0 {
            self.shared.claim(to as u32, bytes, access);
        }
        Ok(())
    }

    /// Checks that a copy may write one word, and returns a fault that describes the conflict.
    fn claim_word(
        &mut self,
        w: &Warp,
        lane: usize,
        place: u64,
        access: AccessProperties,
    ) -> Checked<()> {
        let unfenced = match access.proxy {
            Proxy::Async => self.shared.unfenced(place, w.index),
            Proxy::Generic => None,
        };
        self.touch(w, lane, place, 4, access)?;
        unfenced.map_or(Ok(()), |earlier| {
            Err(self.overtakes(w, lane, place, earlier))
        })
    }

    pub(crate) fn check_size(&self, w: &Warp, lane: usize, bytes: u32) -> Checked<()> {
        if bytes.is_multiple_of(16) {
            return Ok(());
        }
        let what = format!("a bulk copy of {bytes} bytes, which is not a multiple of 16");
        Err(self.fault(w, 1 << lane, Class::Misaligned, what))
    }

    /// Returns the allocation that a copy reads, which must contain all its bytes.
    fn source(
        &self,
        w: &Warp,
        lane: usize,
        from: u64,
        bytes: u32,
    ) -> Checked<&'g ShadowedAllocation> {
        let a = self.lane_allocation(w, lane, from, bytes)?;
        self.check_lane(w, lane, a, from, bytes)?;
        Ok(a)
    }

    /// Records the bytes that a copy reads, in a traced launch.
    fn record_source(
        &mut self,
        w: &Warp,
        lane: usize,
        a: &ShadowedAllocation,
        from: u64,
        bytes: u32,
    ) -> Checked<()> {
        if self.recorder.is_none() {
            return Ok(());
        }
        for at in (0..bytes).step_by(16) {
            let part = (bytes - at).min(16);
            self.record(
                w,
                1 << lane,
                (MemoryOperation::Read, MemoryScope::Device, None),
                Some(a),
                &[from + u64::from(at); 32],
                part,
            )?;
        }
        Ok(())
    }

    /// Executes `cp.async.bulk.prefetch.L2`, which only checks that the bytes exist.
    pub(crate) fn bulk_prefetch(
        &mut self,
        w: &Warp,
        mask: u32,
        from: Address,
        bytes: u32,
    ) -> Checked<()> {
        let mut addresses = [0; 32];
        self.addresses(w, mask, &from, &mut addresses)?;
        self.check_alignment(w, mask, &addresses, 16)?;
        let bytes = self.words(w, mask, bytes)?;
        lanes(mask).try_for_each(|l| {
            self.check_size(w, l, bytes[l])?;
            self.lane_allocation(w, l, addresses[l], bytes[l])
                .map(|_| ())
        })
    }

    /// Advances the time by a turn and completes the copies that are due. Returns true if there
    /// were any.
    pub(crate) fn land_due(&mut self) -> Checked<bool> {
        self.copies.turns += 1;
        self.store_due();
        let mut landed = false;
        while let Some(i) = self
            .copies
            .arrivals
            .iter()
            .position(|f| f.due <= self.copies.turns)
        {
            self.land(i)?;
            landed = true;
        }
        Ok(landed)
    }

    /// Completes the next copy, because no warp can run without it. Returns true if there was one.
    pub(crate) fn land_next(&mut self) -> Checked<bool> {
        let arrivals = self.copies.arrivals.iter().enumerate();
        match arrivals.min_by_key(|(_, f)| f.due).map(|(i, _)| i) {
            Some(i) => self.land(i).map(|()| true),
            None => Ok(false),
        }
    }

    fn land(&mut self, i: usize) -> Checked<()> {
        let f = self.copies.arrivals.remove(i);
        // It existed at the issue, and cannot be invalidated while a copy is pending.
        let Some((target, agent)) = self.agent(f.barrier) else {
            return Ok(());
        };
        if let Some(before) = f.before {
            let mine = |c: &PendingCopy| c.thread == f.thread && c.number < before;
            let landed = self.land_own(f.thread / 32, Some(agent), mine);
            return self.copy_arrived(target, f.pc, f.thread, landed);
        }
        if let Some(reduction) = f.reduction {
            self.shared.reduce(f.to, &f.words, reduction, agent, f.pc);
            self.copy_knew(target, &f.phases);
            return self.bytes_came(target, f.bytes, f.pc, f.thread);
        }
        if let Some((from, version)) = f.shared
            && self.version(from, f.bytes) != version
        {
            let warp = &self.warps[f.thread as usize / 32];
            return Err(self.written_meanwhile(warp, f.thread as usize % 32, f.pc, from));
        }
        self.shared.cover(f.to, f.bytes, false);
        match &f.boxed {
            None if !f.words.is_empty() => {
                self.shared.land(
                    f.to,
                    f.words.iter().copied(),
                    CopyWriter::Agent(agent),
                    f.pc,
                );
            }
            None => self.shared.land(
                f.to,
                self.grid.words(f.from, f.bytes, f.bytes),
                CopyWriter::Agent(agent),
                f.pc,
            ),
            Some(boxed) => {
                let words = self.box_words(boxed, f.to.into());
                self.shared
                    .land(f.to, words.into_iter(), CopyWriter::Agent(agent), f.pc);
                self.shared.set_pattern(f.to, f.bytes, boxed.map.swizzle);
            }
        }
        self.copy_knew(target, &f.phases);
        self.bytes_came(target, f.bytes, f.pc, f.thread)
    }

    /// Checks a cluster, or the block with this rank, after all its warps have exited. Every copy
    /// must have been waited for, and all expected bytes must have arrived.
    pub(crate) fn unfinished(&self, rank: Option<u32>) -> Checked<()> {
        let here =
            |thread: u32| rank.is_none_or(|rank| self.warps[thread as usize / 32].rank == rank);
        if let Some((pc, thread)) = self.products.forgotten(here) {
            let what = "the block has ended, and a warp has not waited for a product".to_string();
            let instead = "execute wgmma.commit_group and wgmma.wait_group 0 before the block ends";
            return Err(self.left_behind(pc, thread, what, instead));
        }
        if let Some((pc, thread)) = self.stores.forgotten(here) {
            let what =
                "the block has ended, and a copy may still read its shared memory".to_string();
            let instead = "execute cp.async.bulk.wait_group.read 0 before the block ends";
            return Err(self.left_behind(pc, thread, what, instead));
        }
        let lands_here = |f: &&PendingArrival| {
            rank.is_none_or(|rank| self.shared.rank(f.barrier.into()) == rank)
        };
        let flying = self
            .copies
            .arrivals
            .iter()
            .find(lands_here)
            .map(|f| (f.pc, f.thread));
        let own = self
            .copies
            .own
            .iter()
            .flatten()
            .find(|c| here(c.thread))
            .map(|c| (c.pc, c.thread));
        let forgotten = if rank.is_none() {
            self.mbarriers.forgotten()
        } else {
            None
        };
        if let Some((pc, thread)) = flying.or(own).or(forgotten) {
            let what = "the block has ended, and nothing has waited for a copy".to_string();
            return Err(self.left_behind(
                pc,
                thread,
                what,
                "wait for every copy before the block ends",
            ));
        }
        let expecting = if rank.is_none() {
            self.mbarriers.expecting()
        } else {
            None
        };
        let Some((address, bytes, (pc, thread))) = expecting else {
            return Ok(());
        };
        let address = self.shared.local(address.into());
        let what =
            format!("the block has ended, and the mbarrier at 0x{address:x} lacks {bytes} bytes");
        Err(self.left_behind(
            pc,
            thread,
            what,
            "expect exactly the bytes that copies bring",
        ))
    }

    fn left_behind(&self, pc: u32, thread: u32, what: String, instead: &'static str) -> Box<Fault> {
        let warp = &self.warps[thread as usize / 32];
        let mut fault = self.fault(warp, 1 << (thread % 32), Class::AsyncUnfinished, what);
        fault.place = Some(self.place(pc));
        fault.instead = instead;
        fault
    }
}
