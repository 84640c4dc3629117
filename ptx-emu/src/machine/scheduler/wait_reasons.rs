//! The reasons why warps cannot continue, and the sentence that reports them.
//!
//! A launch that stands still may have thousands of warps, most of which wait at the same place. A
//! report therefore groups the warps of a block by their reason, and the blocks by the reasons of
//! their warps.

use std::time::Duration;

use crate::machine::interp::lane_meetings;
use crate::machine::memory::lane_access;
use crate::machine::state::block::{Block, show_ranges};
use crate::machine::state::standstill_verdict::{
    BlockWaits, StandstillVerdict, WaitReason, WarpCount,
};
use crate::machine::state::warp::Warp;
use crate::{Class, Fault};

/// The maximum numbers of groups of blocks, and of groups of warps in a block, that a report names.
const MOST_BLOCK_GROUPS: usize = 4;
const MOST_WARP_GROUPS: usize = 6;

/// The maximum number of blocks of a group that a report names.
const MOST_BLOCKS: usize = 3;

/// Returns the reasons why warps wait, with equal reasons grouped.
pub(crate) fn wait_reasons(block: &Block<'_, '_>) -> String {
    let per_block = block.warps.len() as u32 / block.blocks.len() as u32;
    let mut groups: Vec<(u32, WaitReason, Vec<u32>)> = Vec::new();
    for w in &block.warps {
        let reason = wait_reason(block, w);
        let rank = w.index / per_block;
        let group = groups
            .iter_mut()
            .find(|(of, known, _)| *of == rank && *known == reason);
        match group {
            Some((_, _, warps)) => warps.push(w.index % per_block),
            None => groups.push((rank, reason, vec![w.index % per_block])),
        }
    }

    let left: usize = groups
        .iter()
        .skip(MOST_WARP_GROUPS)
        .map(|(_, _, warps)| warps.len())
        .sum();
    let named = groups
        .iter()
        .take(MOST_WARP_GROUPS)
        .map(|(rank, reason, warps)| {
            let number = if warps.len() == 1 {
                WarpCount::One
            } else {
                WarpCount::Several
            };
            let of = match block.blocks.len() {
                1 => String::new(),
                _ => format!(" of block {rank} of the cluster"),
            };
            let subject = if number == WarpCount::One {
                "warp"
            } else {
                "warps"
            };
            format!(
                "{subject} {}{of} {}",
                show_ranges(warps),
                reason.predicate(number)
            )
        });
    let mut named: Vec<String> = named.collect();
    named.extend((left > 0).then(|| format!("{left} other warps wait")));
    named.join("; ")
}

/// Returns the reason why a warp cannot run.
fn wait_reason(block: &Block<'_, '_>, w: &Warp) -> WaitReason {
    let warp = w.index;
    let line = |pc: u32| block.place(pc).line;
    if let Some((pc, arrived, all)) = block.cluster.waiting_at(warp) {
        return WaitReason::ClusterBarrier {
            line: line(pc),
            arrived,
            all,
        };
    }

    if let Some((pc, wanted, free)) = block.cluster.short_of(warp) {
        return WaitReason::Registers {
            line: line(pc),
            wanted,
            free,
        };
    }

    if let Some((id, pc, arrived, expected)) = block.barriers.waiting_at(warp) {
        return WaitReason::Barrier {
            id,
            line: line(pc),
            arrived,
            expected,
        };
    }

    if let Some(reason) = mbarrier_wait(block, w) {
        return reason;
    }

    match (w.present(), w.polling.asked()) {
        (0, _) => WaitReason::Exited,
        (_, Some((pc, _))) => WaitReason::Polls {
            line: line(pc),
            lanes: lane_meetings::waiting_lanes(block, w),
        },
        (_, None) => WaitReason::Loops {
            line: line(w.now.pc),
            lanes: lane_meetings::waiting_lanes(block, w),
        },
    }
}

/// Returns the reason of a warp that waits for an mbarrier, asleep or in a loop.
fn mbarrier_wait(block: &Block<'_, '_>, w: &Warp) -> Option<WaitReason> {
    if w.present() == 0 || !block.mbarriers.is_sleeping(w.index) && !w.polling.awaits_mbarrier() {
        return None;
    }

    let (pc, address, arrivals, bytes) = block.mbarriers.waiting_at(w.index)?;
    let polls = w.polling.asked().map(|(pc, _)| block.place(pc).line);
    Some(WaitReason::Mbarrier {
        address: block.shadow.local(address.into()),
        line: block.place(pc).line,
        arrivals,
        bytes,
        polls,
    })
}

/// Returns the instruction at which a warp waits for an mbarrier, if it does.
pub(crate) fn mbarrier_wait_at(block: &Block<'_, '_>, w: &Warp) -> Option<u32> {
    mbarrier_wait(block, w)?;
    block.mbarriers.waiting_at(w.index).map(|(pc, ..)| pc)
}

/// Returns the sentence that a warp waits for an mbarrier, if it does.
pub(crate) fn mbarrier_reason(block: &Block<'_, '_>, w: &Warp) -> Option<String> {
    let reason = mbarrier_wait(block, w)?;
    Some(format!(
        "{} {}",
        block.warp_name(w.index),
        reason.predicate(WarpCount::One)
    ))
}

/// Returns the waits of a block that does nothing but wait.
pub(crate) fn waits(block: &Block<'_, '_>, turn: u64) -> BlockWaits {
    let first = block
        .warps
        .iter()
        .find(|w| w.polling.is_again() && w.present() != 0);
    let first = first.or_else(|| block.warps.iter().find(|w| w.present() != 0));
    let first = first.unwrap_or(&block.warps[0]);
    let mut fault = block.fault(first, first.now.mask, Class::Deadlock, "");
    if let Some(pc) = mbarrier_wait_at(block, first) {
        fault.place = Some(block.place(pc));
    }

    if let Some((pc, address)) = first.polling.asked() {
        fault.place = Some(block.place(pc));
        lane_access::locate(block, &mut fault, address);
    }

    BlockWaits {
        turn,
        block: block.blocks[0],
        reasons: wait_reasons(block),
        fault,
    }
}

/// Returns the fault of a launch that stood still for some time, from the blocks that wait in the
/// order of the schedule and the number of blocks that had no space to begin.
pub(crate) fn standstill_fault(
    verdict: StandstillVerdict,
    lasted: Duration,
    waiting: Vec<BlockWaits>,
    unbegun: u64,
) -> Option<Box<Fault>> {
    let mut groups: Vec<(&str, Vec<[u32; 3]>)> = Vec::new();
    for waits in &waiting {
        match groups
            .iter_mut()
            .find(|(reasons, _)| *reasons == waits.reasons)
        {
            Some((_, blocks)) => blocks.push(waits.block),
            None => groups.push((&waits.reasons, vec![waits.block])),
        }
    }

    let mut named: Vec<String> = groups
        .iter()
        .take(MOST_BLOCK_GROUPS)
        .map(|(reasons, blocks)| in_blocks(blocks, reasons))
        .collect();
    let left: usize = groups
        .iter()
        .skip(MOST_BLOCK_GROUPS)
        .map(|(_, blocks)| blocks.len())
        .sum();
    named.extend((left > 0).then(|| format!("{left} other blocks wait")));
    let blocks = if unbegun == 1 { "block" } else { "blocks" };
    named.extend(
        (unbegun > 0).then(|| format!("{unbegun} {blocks} cannot begin before others end")),
    );
    let named = named.join("; ");
    let mut fault = waiting.into_iter().next()?.fault;
    match verdict {
        StandstillVerdict::Deadlock => {
            fault.what = format!("no thread can continue: {named}");
            fault.instead = if unbegun == 0 {
                "what the threads wait for must be written by a thread that does not wait for them"
            } else {
                "blocks that wait for each other must run at the same time: launch fewer, or make the launch cooperative"
            };
        }
        StandstillVerdict::TimeLimit => {
            fault.class = Class::TimeLimit;
            fault.what = format!(
                "the launch has waited for {} s, in which no thread could continue: {named}",
                (lasted.as_secs_f64() * 10.0).round() / 10.0
            );
            fault.instead = "look for a wait that nothing ends, or raise the limit if the host or another stream ends it later";
        }
    }

    Some(fault)
}

/// Returns the sentence that the warps of some blocks wait.
fn in_blocks(blocks: &[[u32; 3]], reasons: &str) -> String {
    let name = |[x, y, z]: &[u32; 3]| format!("({x},{y},{z})");
    let mut names: Vec<String> = blocks.iter().take(MOST_BLOCKS).map(name).collect();
    if blocks.len() > MOST_BLOCKS {
        names.push("..".into());
    }

    match blocks {
        [one] => format!("in block {}, {reasons}", name(one)),
        _ => format!(
            "in {} blocks, {}, {reasons}",
            blocks.len(),
            names.join(", ")
        ),
    }
}
