//! Counts the effects of instructions, and records the instructions of one thread.

use std::collections::BTreeMap;

use crate::machine::lane_mask::{lanes, set_bit};
use crate::machine::memory::load_store::{Addresses, ResolvedAddress, resolve};
use crate::machine::scheduler::grid::GridState;
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::Worker;
use crate::module::code::{InstructionSpace, KernelCode};
use crate::module::registers::Bank;
use crate::profile::{
    Followed, FollowedStep, MemoryProfile, MemorySpace, Profile, RegisterStep, SiteProfile,
};
use crate::sanitize::arithmetic::value_checks;
use crate::sanitize::arithmetic::value_checks::Values;
use crate::sanitize::provenance::pointer_checks;
use crate::sanitize::provenance::pointer_checks::Provenance;

/// The profile and the followed thread of one worker.
#[derive(Debug)]
pub(crate) struct Observer {
    /// The counts by instruction. Empty if nothing is counted.
    counts: Vec<Counts>,
    followed: Option<Followed>,
    pub(crate) steps: Vec<FollowedStep>,
    pub(crate) values: Option<Values>,
    pub(crate) provenance: Option<Provenance>,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    warps: u64,
    lanes: u64,
    diverged: u64,
    memory: BTreeMap<MemorySpace, MemoryProfile>,
}

/// The next instruction of the followed thread.
pub(crate) struct FollowedInstruction {
    pc: u32,
    lane: u32,
    executed: bool,
    /// The routine and the call depth before the instruction. A call or return changes the
    /// registers.
    routine: u32,
    depth: usize,
    values: Vec<Option<u64>>,
}

impl Observer {
    /// Creates an observer if the launch requests one.
    pub(crate) fn of(grid: &GridState<'_>) -> Option<Box<Observer>> {
        let watch = grid.watch;
        let sites = if watch.profile {
            grid.code.ops.len()
        } else {
            0
        };
        let observer = || Observer {
            counts: vec![Counts::default(); sites],
            followed: watch.followed,
            steps: vec![],
            values: watch.arithmetic.then(Values::default),
            provenance: watch.provenance.then(Provenance::default),
        };
        let any = watch.profile || watch.arithmetic || watch.provenance || watch.followed.is_some();
        any.then(|| Box::new(observer()))
    }

    /// Adds the counts of another worker.
    pub(crate) fn add(&mut self, other: Observer) {
        for (own, more) in self.counts.iter_mut().zip(other.counts) {
            own.warps += more.warps;
            own.lanes += more.lanes;
            own.diverged += more.diverged;
            for (space, more) in more.memory {
                own.memory
                    .entry(space)
                    .and_modify(|known| known.add(&more))
                    .or_insert(more);
            }
        }
        self.steps.extend(other.steps);
    }

    /// Returns the counts by place.
    pub(crate) fn profile(&self, code: &KernelCode) -> Profile {
        let executed = self
            .counts
            .iter()
            .zip(&code.places)
            .filter(|(counts, _)| counts.warps > 0);
        let site = |(counts, place): (&Counts, &crate::SourcePlace)| SiteProfile {
            place: place.clone(),
            warps: counts.warps,
            lanes: counts.lanes,
            diverged: counts.diverged,
            memory: counts.memory.values().copied().collect(),
        };
        Profile {
            sites: executed.map(site).collect(),
        }
    }

    fn count(&mut self, w: &Warp, mask: u32) {
        let Some(counts) = self.counts.get_mut(w.now.pc as usize) else {
            return;
        };
        counts.warps += 1;
        counts.lanes += u64::from(mask.count_ones());
        counts.diverged += u64::from(w.now.mask != w.present());
    }

    /// Counts an access of a warp.
    pub(crate) fn access(
        &mut self,
        pc: u32,
        space: MemorySpace,
        mask: u32,
        at: &Addresses,
        bytes: u32,
    ) {
        let Some(counts) = self.counts.get_mut(pc as usize) else {
            return;
        };
        let mut more = MemoryProfile {
            space,
            requests: 1,
            bytes: u64::from(mask.count_ones() * bytes),
            sectors: 0,
            passes: 0,
            least_passes: 0,
        };
        match space {
            MemorySpace::Global => more.sectors = sectors(mask, at, bytes),
            MemorySpace::Shared => (more.passes, more.least_passes) = passes(mask, at, bytes),
            MemorySpace::Local => {}
        }
        counts
            .memory
            .entry(space)
            .and_modify(|known| known.add(&more))
            .or_insert(more);
    }
}

impl MemoryProfile {
    fn add(&mut self, more: &MemoryProfile) {
        self.requests += more.requests;
        self.bytes += more.bytes;
        self.sectors += more.sectors;
        self.passes += more.passes;
        self.least_passes += more.least_passes;
    }
}

/// Returns the number of 32-byte sectors that the lanes touch.
fn sectors(mask: u32, at: &Addresses, bytes: u32) -> u64 {
    let touched =
        lanes(mask).flat_map(|lane| at[lane] / 32..=(at[lane] + u64::from(bytes.max(1)) - 1) / 32);
    let mut touched: Vec<u64> = touched.collect();
    touched.sort_unstable();
    touched.dedup();
    touched.len() as u64
}

/// Returns the number of passes through the banks of shared memory, and the number without
/// conflicts.
fn passes(mask: u32, at: &Addresses, bytes: u32) -> (u64, u64) {
    let group = 32 / (bytes.div_ceil(4).max(1) as usize).min(32);
    let mut all = (0, 0);
    for first in (0..32).step_by(group) {
        let active = lanes(mask).filter(|lane| (first..first + group).contains(lane));
        let words =
            active.flat_map(|lane| at[lane] / 4..=(at[lane] + u64::from(bytes.max(1)) - 1) / 4);
        let mut words: Vec<u64> = words.collect();
        words.sort_unstable();
        words.dedup();
        let mut banks = [0; 32];
        words
            .iter()
            .for_each(|word| banks[(word % 32) as usize] += 1);
        all.0 += banks.into_iter().max().unwrap_or(0);
        all.1 += u64::from(!words.is_empty());
    }
    all
}

/// Returns the value of a register in a lane if it is initialized.
fn value(w: &Warp, bank: Bank, slot: u32, lane: u32) -> Option<u64> {
    let slot = slot as usize;
    let written = |mask: u32| mask >> lane & 1 != 0;
    match bank {
        Bank::Pred => {
            written(w.regs.pred_defined[slot]).then(|| u64::from(w.regs.pred[slot] >> lane & 1))
        }
        Bank::W32 => {
            written(w.regs.w32.defined[slot]).then(|| w.regs.w32.lanes[slot][lane as usize].into())
        }
        Bank::W64 => {
            written(w.regs.w64.defined[slot]).then(|| w.regs.w64.lanes[slot][lane as usize])
        }
    }
}

/// Counts an access in each space to which its addresses resolve.
#[inline]
pub(crate) fn observe(
    block: &mut Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    space: InstructionSpace,
    addresses: &Addresses,
    bytes: u32,
) {
    if let Some(observer) = &mut block.observer {
        let space_of = |lane: &usize| match (space, resolve(addresses[*lane]).0) {
            (InstructionSpace::Shared | InstructionSpace::Cluster, _) => MemorySpace::Shared,
            (InstructionSpace::Local, _) => MemorySpace::Local,
            (InstructionSpace::Generic, ResolvedAddress::Shared) => MemorySpace::Shared,
            (InstructionSpace::Generic, ResolvedAddress::Local) => MemorySpace::Local,
            _ => MemorySpace::Global,
        };
        for space in [MemorySpace::Global, MemorySpace::Shared, MemorySpace::Local] {
            let part = lanes(mask)
                .filter(|lane| space_of(lane) == space)
                .fold(0, set_bit);
            if part != 0 {
                observer.access(w.now.pc, space, part, addresses, bytes);
            }
        }
    }
}

/// Records the instruction that a warp is about to execute in the lanes of `mask`.
pub(crate) fn before(
    block: &mut Worker<'_, '_>,
    w: &Warp,
    mask: u32,
) -> Option<FollowedInstruction> {
    value_checks::before_values(block, w, mask);
    pointer_checks::before_pointers(block, w, mask);
    let observer = block.observer.as_mut()?;
    observer.count(w, mask);
    let followed = observer
        .followed
        .filter(|f| observer.steps.len() < f.most)?;
    if block.blocks[w.rank as usize] != followed.block {
        return None;
    }
    let [x, y, _] = block.grid.launch.block;
    let [tx, ty, tz] = followed.thread;
    let lane = (tx + x * (ty + y * tz))
        .checked_sub(32 * w.number)
        .filter(|lane| *lane < 32)?;
    if w.now.mask >> lane & 1 == 0 {
        return None;
    }
    let pc = w.now.pc;
    let values = block
        .grid
        .code
        .mentioned(pc)
        .iter()
        .map(|(bank, slot)| value(w, *bank, *slot, lane));
    Some(FollowedInstruction {
        pc,
        lane,
        executed: mask >> lane & 1 != 0,
        routine: w.routine,
        depth: w.calls.len(),
        values: values.collect(),
    })
}

/// Discards the next instruction, because other lanes run first.
pub(crate) fn forget_pending(block: &mut Worker<'_, '_>) {
    value_checks::forget_pending_values(block);
    pointer_checks::forget_pending_pointers(block);
}

/// Records the result of an instruction in the followed thread.
pub(crate) fn after(block: &mut Worker<'_, '_>, w: &mut Warp, before: Option<FollowedInstruction>) {
    value_checks::after_values(block, w);
    pointer_checks::after_pointers(block, w);
    let (Some(before), Some(observer)) = (before, block.observer.as_mut()) else {
        return;
    };
    let code = block.grid.code;
    let same = (w.routine, w.calls.len()) == (before.routine, before.depth);
    let registers = code.mentioned(before.pc).iter().zip(before.values);
    let registers = registers.map(|((bank, slot), value_before)| RegisterStep {
        name: code
            .name_of(before.routine, *bank, *slot)
            .unwrap_or("a temporary")
            .to_owned(),
        bits: match bank {
            Bank::Pred => 1,
            Bank::W32 => 32,
            Bank::W64 => 64,
        },
        before: value_before,
        after: if same {
            value(w, *bank, *slot, before.lane)
        } else {
            value_before
        },
    });
    let place = code.places[before.pc as usize].clone();
    observer.steps.push(FollowedStep {
        place,
        executed: before.executed,
        registers: registers.collect(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(f: impl Fn(u64) -> u64) -> Addresses {
        std::array::from_fn(|lane| f(lane as u64))
    }

    #[test]
    fn sectors_have_32_bytes() {
        let all = u32::MAX;
        let cases = [
            (all, at(|lane| 4 * lane), 4, 4),
            (all, at(|lane| 4 * lane + 4), 4, 5),
            (all, at(|_| 4), 4, 1),
            (all, at(|lane| 32 * lane), 4, 32),
            (1, at(|_| 30), 4, 2),
            (all, at(|lane| 16 * lane), 16, 16),
        ];
        for (mask, at, bytes, wanted) in cases {
            assert_eq!(sectors(mask, &at, bytes), wanted, "{at:?}");
        }
    }

    #[test]
    fn a_bank_serves_a_word_in_a_pass() {
        let all = u32::MAX;
        let cases = [
            (all, at(|lane| 4 * lane), 4, (1, 1)),
            // One word for all, and two that lanes share.
            (all, at(|_| 64), 4, (1, 1)),
            (all, at(|lane| lane), 1, (1, 1)),
            (all, at(|lane| 8 * lane), 4, (2, 1)),
            (all, at(|lane| 128 * lane), 4, (32, 1)),
            (0xffff, at(|lane| 128 * lane), 4, (16, 1)),
            (all, at(|lane| 132 * lane), 4, (1, 1)),
            (all, at(|lane| 8 * lane), 8, (2, 2)),
            (all, at(|lane| 16 * lane), 16, (4, 4)),
            (all, at(|lane| 32 * lane), 16, (8, 4)),
        ];
        for (mask, at, bytes, wanted) in cases {
            assert_eq!(passes(mask, &at, bytes), wanted, "{at:?}");
        }
    }
}
