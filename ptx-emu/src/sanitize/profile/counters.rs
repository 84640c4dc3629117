//! Counts the executions and the memory accesses of each instruction.
//!
//! A request to global memory is counted in sectors of 32 bytes. A request to shared memory is
//! counted in passes through 32 banks of 4 bytes, as Nsight Compute does.

use std::collections::BTreeMap;

use crate::module::address_space::{Addresses, ResolvedAddress, resolve};
use crate::module::code::{InstructionSpace, KernelCode};
use crate::module::lane_mask::{lanes, set_bit};
use crate::profile::{MemoryProfile, MemorySpace, Profile, SiteProfile};
use crate::sanitize::execution_context::ExecutionContext;
use crate::sanitize::observer::{ObservedAccess, Observer};

/// The counts by instruction.
#[derive(Debug)]
pub(crate) struct InstructionCounters(Vec<Counts>);

#[derive(Clone, Debug, Default)]
struct Counts {
    warps: u64,
    lanes: u64,
    diverged: u64,
    memory: BTreeMap<MemorySpace, MemoryProfile>,
}

impl InstructionCounters {
    /// Creates the counters of a kernel.
    pub(crate) fn new(code: &KernelCode) -> InstructionCounters {
        InstructionCounters(vec![Counts::default(); code.ops.len()])
    }

    /// Adds the counts of another host thread.
    pub(crate) fn add(&mut self, other: InstructionCounters) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
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
    }

    /// Returns the counts by place.
    pub(crate) fn profile(&self, code: &KernelCode) -> Profile {
        let executed = self
            .0
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

    /// Counts an access of a warp to one space.
    fn request(&mut self, pc: u32, space: MemorySpace, mask: u32, at: &Addresses, bytes: u32) {
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
        self.0[pc as usize]
            .memory
            .entry(space)
            .and_modify(|known| known.add(&more))
            .or_insert(more);
    }
}

impl Observer for InstructionCounters {
    fn before(&mut self, context: &impl ExecutionContext, mask: u32) {
        let position = context.position();
        let counts = &mut self.0[context.pc() as usize];
        counts.warps += 1;
        counts.lanes += u64::from(mask.count_ones());
        counts.diverged += u64::from(position.running != position.present);
    }

    /// Counts the access in each space to which its addresses resolve.
    fn access(&mut self, access: &ObservedAccess<'_>) {
        let addresses = access.addresses;
        let space_of = |lane: &usize| match (access.space, resolve(addresses[*lane]).0) {
            (InstructionSpace::Shared | InstructionSpace::Cluster, _) => MemorySpace::Shared,
            (InstructionSpace::Local, _) => MemorySpace::Local,
            (InstructionSpace::Generic, ResolvedAddress::Shared) => MemorySpace::Shared,
            (InstructionSpace::Generic, ResolvedAddress::Local) => MemorySpace::Local,
            _ => MemorySpace::Global,
        };
        for space in [MemorySpace::Global, MemorySpace::Shared, MemorySpace::Local] {
            let part = lanes(access.mask)
                .filter(|lane| space_of(lane) == space)
                .fold(0, set_bit);
            if part != 0 {
                self.request(access.pc, space, part, addresses, access.bytes);
            }
        }
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
        for word in &words {
            banks[(word % 32) as usize] += 1;
        }

        all.0 += banks.into_iter().max().unwrap_or(0);
        all.1 += u64::from(!words.is_empty());
    }

    all
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
