//! Runs a warp for some instructions, and compares the states of a warp that polls.

use std::fmt::Write;
use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::fault::{Class, Fault};
use crate::machine::interp::interpreter;
use crate::machine::memory::lane_access;
use crate::machine::scheduler::wait_reasons;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::standstill::Polled;
use crate::machine::state::warp::Warp;
use crate::machine::state::warp_parts::Pause;
use crate::module::code::instruction::Op;
use crate::module::code::operand::InstructionSpace;
use crate::module::lane_mask::lanes;

/// Lets a warp execute up to `most` instructions.
pub(crate) fn run(block: &mut Block<'_, '_>, warp: &mut Warp, most: u64) -> Checked<Pause> {
    let turn = most.min(block.turns.fuel.saturating_add(1));
    let before = warp.executed;
    let result = if block.observers.is_some() {
        interpreter::execute::<true>(block, warp, before + turn)
    } else {
        interpreter::execute::<false>(block, warp, before + turn)
    };
    let used = warp.executed - before;
    block.stats.warp_instructions += used;
    block.stats.lane_instructions += std::mem::take(&mut warp.lane_count);
    let pause = result?;
    match block.turns.fuel.checked_sub(used) {
        Some(left) => block.turns.fuel = left,
        None => return Err(out_of_fuel(block, warp)),
    }

    Ok(pause)
}

pub(crate) fn note_asked(block: &Block<'_, '_>, w: &mut Warp) {
    let step = &block.grid.code.ops[w.now.pc as usize];
    let (address, strong) = match &step.op {
        Op::Load(t) if t.space != InstructionSpace::Local => (&t.address, t.order.is_strong()),
        Op::Atomic(a) => (&a.address, true),
        Op::Atomics(v) => (&v.1[0].address, true),
        Op::LoadFragment(_) => {
            // The fragment may lie in global memory, which other blocks write.
            w.polling.polled = w.polling.polled.max(Polled::Device);
            return;
        }
        // Textures and surfaces may lie over memory of the host.
        Op::Image(_) => {
            w.polling.polled = Polled::Host;
            return;
        }
        _ => return,
    };
    let mut addresses = [0; 32];
    w.polling.asks |= strong;
    let known = lane_access::lane_addresses(block, w, w.now.mask, address, &mut addresses).is_ok();
    if known && w.now.mask != 0 {
        let first = addresses[w.now.mask.trailing_zeros() as usize];
        w.polling.asked = Some((w.now.pc, first));

        // Without an outside, it does not matter whose memory it is.
        let most = if block.grid.standstill.is_open() {
            Polled::Host
        } else {
            Polled::Device
        };
        if w.polling.polled < most {
            let polled = lanes(w.now.mask)
                .map(|lane| polled_at(block, addresses[lane]))
                .max();
            w.polling.polled = w.polling.polled.max(polled.unwrap_or_default());
        }
    }
}

/// Returns a hash of the position and the registers of a warp.
pub(crate) fn state(w: &Warp) -> u64 {
    let mut hasher = FxHasher::default();
    for frame in w.frames() {
        for n in [frame.pc, frame.join, frame.mask] {
            hasher.write_u32(n);
        }
    }

    let mut lanes = LaneHashes::default();
    for (known, values) in w.regs.w32.defined.iter().zip(&w.regs.w32.lanes) {
        if *known != 0 {
            lanes.add(values);
        }
    }

    for (known, values) in w.regs.w64.defined.iter().zip(&w.regs.w64.lanes) {
        if *known != 0 {
            lanes.add(&values.map(|value| value as u32));
            lanes.add(&values.map(|value| (value >> 32) as u32));
        }
    }

    let words = w.local.iter().take(w.top.div_ceil(4) as usize);
    for word in words {
        lanes.add(word);
    }

    for hash in lanes.0 {
        hasher.write_u32(hash);
    }

    for (value, known) in w.regs.pred.iter().zip(&w.regs.pred_defined) {
        hasher.write_u32(value & known);
    }

    hasher.write_usize(w.calls.len());
    hasher.finish()
}

/// The hashes of the registers of each lane.
///
/// A warp that polls is hashed again and again, and it may have hundreds of registers. The compiler
/// turns the operations on all lanes into vector instructions.
#[derive(Default)]
struct LaneHashes([u32; 32]);

impl LaneHashes {
    /// Adds the values of a register. For a given value, each hash is a bijection of the hash
    /// before, so a difference in a single register is never lost.
    fn add(&mut self, values: &[u32; 32]) {
        // The golden ratio times 2^32, as an odd number.
        const FACTOR: u32 = 0x9e37_79b1;
        for (hash, value) in self.0.iter_mut().zip(values) {
            *hash = (hash.rotate_left(5) ^ value).wrapping_mul(FACTOR);
        }
    }
}

/// Returns the memory in which an address lies.
fn polled_at(block: &Block<'_, '_>, address: u64) -> Polled {
    match block.grid.table.reach(address).map(|a| a.owner) {
        None => Polled::Block,
        Some(Some(_)) => Polled::Device,
        Some(None) => Polled::Host,
    }
}

fn out_of_fuel(block: &Block<'_, '_>, warp: &Warp) -> Box<Fault> {
    let mut what = format!(
        "the block has executed {} warp instructions and not ended",
        block.grid.schedule.fuel
    );
    if let Some(reason) = wait_reasons::mbarrier_reason(block, warp) {
        let _ = write!(what, "; {reason}");
    }

    let mut fault = block.fault(warp, warp.now.mask, Class::OutOfFuel, what);
    fault.instead = "look for a loop that never ends, or raise the schedule's fuel";
    fault
}
