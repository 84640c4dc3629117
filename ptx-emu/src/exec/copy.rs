//! Copies that arrive later (manual, "cp.async.bulk").
//!
//! From its issue on a copy covers its destination: nobody may touch it. It arrives some turns later, as the seed
//! says, or when all warps wait; only then is its source read. Arrived, it counts as written by its mbarrier, so
//! that only those who have waited for the phase may read it.

use std::sync::atomic::Ordering::Relaxed;

use super::block::{Checked, Worker};
use super::grid::mix;
use super::lanes;
use super::shared::{Access, Writer};
use super::warp::Warp;
use crate::accesses::Deed;
use crate::code::{Address, Bulk, Space};
use crate::memory::Allocation;
use crate::{Class, Fault};

/// Turns that a copy takes at most while some warp can go on.
const LATE: u64 = 16;

/// A copy on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) pc: u32,
    thread: u32,
    to: u32,
    from: u64,
    bytes: u32,
    /// Address of the mbarrier it completes on.
    barrier: u32,
    due: u64,
}

/// The copies of a block.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    flights: Vec<Flight>,
    /// Turns taken, and copies issued.
    turns: u64,
    issued: u64,
}

impl Copies {
    /// Readies for a new block.
    pub(crate) fn start(&mut self) {
        self.flights.clear();
        (self.turns, self.issued) = (0, 0);
    }

    /// The copy whose destination is among `bytes` bytes.
    pub(crate) fn within(&self, address: u64, bytes: u64) -> Option<Flight> {
        let meets =
            |f: &&Flight| u64::from(f.to) < address + bytes && address < u64::from(f.to) + u64::from(f.bytes);
        self.flights.iter().find(meets).copied()
    }

    /// Whether a copy completes on the mbarrier at an address.
    pub(crate) fn aims_at(&self, address: u64) -> bool {
        self.flights.iter().any(|f| u64::from(f.barrier) == address)
    }
}

impl<'g> Worker<'g, '_> {
    /// `cp.async.bulk` from global to shared memory.
    pub(crate) fn bulk(&mut self, w: &mut Warp, mask: u32, b: &Bulk) -> Checked<()> {
        let (mut to, mut from, mut barrier) = ([0; 32], [0; 32], [0; 32]);
        self.shared_addresses(w, mask, &b.to, Space::Shared, &mut to)?;
        self.addresses(w, mask, &b.from, &mut from)?;
        self.shared_addresses(w, mask, &b.barrier, Space::Shared, &mut barrier)?;
        let bytes = self.words(w, mask, b.bytes)?;
        self.check_alignment(w, mask, &to, 16)?;
        self.check_alignment(w, mask, &from, 16)?;
        lanes(mask).try_for_each(|l| self.issue(w, l, (to[l], from[l], bytes[l]), barrier[l]))
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
        let access = Access { pc: w.now.pc, thread: 0, reads: false, writes: true, strong: false };
        for at in (0..bytes.into()).step_by(8) {
            self.touch(w, lane, to.wrapping_add(at), 8, access)?;
        }
        let a = self.source(w, lane, from, bytes)?;
        self.record_source(w, lane, a, from, bytes)?;
        let copies = &mut self.copies;
        copies.issued += 1;
        let delay = 1 + mix(self.grid.schedule.seed ^ copies.issued << 16 ^ u64::from(self.block[0])) % LATE;
        let (pc, thread, due) = (w.now.pc, w.index * 32 + lane as u32, copies.turns + delay);
        if bytes > 0 {
            let (to, barrier) = (to as u32, barrier as u32);
            copies.flights.push(Flight { pc, thread, to, from, bytes, barrier, due });
            self.shared.cover(to, bytes, true);
        }
        Ok(())
    }

    fn check_size(&self, w: &Warp, lane: usize, bytes: u32) -> Checked<()> {
        if bytes.is_multiple_of(16) {
            return Ok(());
        }
        let what = format!("a bulk copy of {bytes} bytes, which is no multiple of 16");
        Err(self.fault(w, 1 << lane, Class::Misaligned, what))
    }

    /// The allocation that a copy reads, whose bytes must all be there.
    fn source(&self, w: &Warp, lane: usize, from: u64, bytes: u32) -> Checked<&'g Allocation> {
        let a = self.lane_allocation(w, lane, from, bytes)?;
        self.check_lane(w, lane, a, from, bytes)?;
        Ok(a)
    }

    /// Records what a copy reads, when traced.
    fn record_source(&mut self, w: &Warp, lane: usize, a: &Allocation, from: u64, bytes: u32) -> Checked<()> {
        if self.recorder.is_none() {
            return Ok(());
        }
        for at in (0..bytes.into()).step_by(16) {
            self.record(w, 1 << lane, Deed::Read, Some(a), &[from + at; 32], 16)?;
        }
        Ok(())
    }

    /// `cp.async.bulk.prefetch.L2`: nothing happens, but the bytes must exist.
    pub(crate) fn bulk_prefetch(&mut self, w: &Warp, mask: u32, from: Address, bytes: u32) -> Checked<()> {
        let mut addresses = [0; 32];
        self.addresses(w, mask, &from, &mut addresses)?;
        self.check_alignment(w, mask, &addresses, 16)?;
        let bytes = self.words(w, mask, bytes)?;
        lanes(mask).try_for_each(|l| {
            self.check_size(w, l, bytes[l])?;
            self.lane_allocation(w, l, addresses[l], bytes[l]).map(|_| ())
        })
    }

    /// Counts a turn, and lets the copies arrive whose time has come; whether there were any.
    pub(crate) fn land_due(&mut self) -> Checked<bool> {
        self.copies.turns += 1;
        let mut landed = false;
        while let Some(i) = self.copies.flights.iter().position(|f| f.due <= self.copies.turns) {
            self.land(i)?;
            landed = true;
        }
        Ok(landed)
    }

    /// Lets the next copy arrive, since nobody can go on without; whether there was one.
    pub(crate) fn land_next(&mut self) -> Checked<bool> {
        let flights = self.copies.flights.iter().enumerate();
        match flights.min_by_key(|(_, f)| f.due).map(|(i, _)| i) {
            Some(i) => self.land(i).map(|()| true),
            None => Ok(false),
        }
    }

    fn land(&mut self, i: usize) -> Checked<()> {
        let f = self.copies.flights.remove(i);
        // Both were checked at the issue, and neither goes away while the copy is under way.
        let (Some((target, agent)), Some(a)) = (self.agent(f.barrier), self.grid.table.find(f.from)) else {
            return Ok(());
        };
        let first = ((f.from - a.base) / 4) as usize;
        let words = a.words()[first..first + f.bytes as usize / 4].iter().map(|word| word.load(Relaxed));
        self.shared.cover(f.to, f.bytes, false);
        self.shared.land(f.to, words, Writer::Agent(agent), f.pc);
        self.bytes_came(target, f.bytes, f.pc, f.thread)
    }

    /// All warps have exited: every copy must have been waited for, and every byte that was expected have come.
    pub(crate) fn unfinished(&self) -> Checked<()> {
        let flying = self.copies.flights.first().map(|f| (f.pc, f.thread));
        if let Some((pc, thread)) = flying.or(self.mbarriers.forgotten()) {
            let what = "the block has ended, and nothing has waited for a copy".to_string();
            return Err(self.left_behind(pc, thread, what, "wait for every copy before the block ends"));
        }
        let Some((address, bytes, (pc, thread))) = self.mbarriers.expecting() else { return Ok(()) };
        let what = format!("the block has ended, and the mbarrier at 0x{address:x} lacks {bytes} bytes");
        Err(self.left_behind(pc, thread, what, "expect exactly the bytes that copies bring"))
    }

    fn left_behind(&self, pc: u32, thread: u32, what: String, instead: &'static str) -> Box<Fault> {
        let warp = &self.warps[thread as usize / 32];
        let mut fault = self.fault(warp, 1 << (thread % 32), Class::AsyncUnfinished, what);
        fault.place = Some(self.place(pc));
        fault.instead = instead;
        fault
    }
}
