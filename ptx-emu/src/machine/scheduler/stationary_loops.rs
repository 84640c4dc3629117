//! Loops that only another thread can end, although some of their registers change.
//!
//! A warp that polls and counts, or that looks at a clock, is never twice in the same state. Its
//! loop has no end all the same if the registers that change decide nothing: neither a branch, nor
//! an address, nor a value that is compared with memory. One iteration shows which registers those
//! are. Let X be the registers that differ after the iteration, closed under the instructions of
//! the loop: the destination of an instruction that reads X is in X. If only instructions on
//! registers name X, and none of them is guarded by X, then every later iteration executes the same
//! instructions with the same values outside of X, as long as memory stays as it is.
//!
//! A loop that counts up to a limit has its counter in a comparison, so it is not taken for one
//! that waits in vain.

use rustc_hash::FxHashSet;

use crate::machine::scheduler::warp_steps;
use crate::machine::scheduler::warp_steps::state;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::machine::state::warp_parts::{Pause, WarpFrame};
use crate::module::analysis::instruction_text::{parts, split};
use crate::module::code::{KernelCode, Op};
use crate::module::registers::Bank;

/// The maximum number of instructions in an iteration.
const MOST_STEPS: u32 = 2048;

/// A register of the running routine.
type Register = (Bank, u32);

/// The result of examining one iteration of a loop.
pub(crate) enum Iteration {
    /// Only another thread can end the loop.
    Bound,
    /// The loop may end by itself, or the iteration is too long.
    Unknown,
    /// The warp stopped before the end of the iteration.
    Paused(Pause),
}

/// The registers that an instruction writes, and those that it reads.
struct RegisterFlow {
    writes: Vec<Register>,
    reads: Vec<Register>,
}

/// Returns the position of a warp: its call depth and its frames.
fn position(w: &Warp) -> (usize, Vec<[u32; 3]>) {
    (
        w.calls.len(),
        w.frames()
            .map(|WarpFrame { pc, join, mask }| [*pc, *join, *mask])
            .collect(),
    )
}

/// Executes one iteration of the loop of a polling warp. `before` are the effects of the warp
/// at the start of its turn.
pub(crate) fn iterate(block: &mut Block<'_, '_>, w: &mut Warp, before: u64) -> Checked<Iteration> {
    let pc = w.now.pc;
    let start = position(w);
    let start_state = state(w);
    let lanes32 = w.regs.w32.lanes.clone();
    let lanes64 = w.regs.w64.lanes.clone();
    let predicates = w.regs.pred.clone();
    let mut steps = FxHashSet::default();
    for _ in 0..MOST_STEPS {
        steps.insert(w.now.pc);
        warp_steps::note_asked(block, w);
        let pause = warp_steps::run(block, w, 1)?;
        if !matches!(pause, Pause::Turn | Pause::Sleeps | Pause::Yields) {
            return Ok(Iteration::Paused(pause));
        }

        w.polling.note_failed(pause);
        if w.effects != before {
            return Ok(Iteration::Unknown);
        }

        if w.now.pc == pc && position(w) == start {
            if state(w) == start_state {
                return Ok(Iteration::Bound);
            }

            // The registers of lanes that run apart are not compared.
            if !w.apart.is_empty() {
                return Ok(Iteration::Unknown);
            }

            let mut changed = FxHashSet::default();
            changed.extend(differing(Bank::W32, &lanes32, &w.regs.w32.lanes));
            changed.extend(differing(Bank::W64, &lanes64, &w.regs.w64.lanes));
            changed.extend(differing(Bank::Pred, &predicates, &w.regs.pred));
            let bound = is_bound(block.grid.code, &steps, changed);
            return Ok(if bound {
                Iteration::Bound
            } else {
                Iteration::Unknown
            });
        }
    }

    Ok(Iteration::Unknown)
}

/// Returns the registers of a bank that have changed.
fn differing<T: PartialEq>(bank: Bank, old: &[T], new: &[T]) -> impl Iterator<Item = Register> {
    let pairs = old.iter().zip(new).enumerate();
    pairs
        .filter(|(_, (old, new))| old != new)
        .map(move |(slot, _)| (bank, slot as u32))
}

/// Returns true if the registers that change in a loop affect neither its control flow nor its
/// memory accesses.
fn is_bound(code: &KernelCode, steps: &FxHashSet<u32>, mut changed: FxHashSet<Register>) -> bool {
    let flows: Vec<(&Op, RegisterFlow)> = steps
        .iter()
        .map(|&pc| (&code.ops[pc as usize].op, flow(code, pc)))
        .collect();
    for (op, flow) in &flows {
        match op {
            // A clock may show the same time twice.
            Op::Clock { .. } => changed.extend(&flow.writes),
            // Neither local memory nor the registers of other routines are compared, and carries
            // are not named.
            Op::Store(_) | Op::Call(_) | Op::Return | Op::Alloca { .. } => return false,
            _ => {}
        }
    }

    if steps.iter().any(|&pc| has_carry(code, pc)) {
        return false;
    }

    // Extends the set until it is closed.
    loop {
        let known = changed.len();
        for (op, flow) in &flows {
            let reads = flow.reads.iter().any(|register| changed.contains(register));
            let writes = flow
                .writes
                .iter()
                .any(|register| changed.contains(register));
            let ignores =
                !reads && !writes || matches!(op, Op::Sleep | Op::Clock { .. } | Op::Nothing);
            if ignores {
                continue;
            }
            if !is_on_registers(op) {
                return false;
            }
            if reads {
                changed.extend(&flow.writes);
            }
        }
        if changed.len() == known {
            break;
        }
    }

    // A guard decides whether the instruction is executed, which includes branches.
    let guard = |pc: &u32| {
        code.ops[*pc as usize]
            .guard
            .map(|guard| (Bank::Pred, guard.pred))
    };
    !steps
        .iter()
        .filter_map(guard)
        .any(|guard| changed.contains(&guard))
}

/// Returns true if an instruction only computes registers of a lane from other registers of the
/// lane.
fn is_on_registers(op: &Op) -> bool {
    matches!(
        op,
        Op::Alu(..)
            | Op::SetP(_)
            | Op::Set { .. }
            | Op::SetPairP { .. }
            | Op::SetPair { .. }
            | Op::Logic { .. }
            | Op::Copies(_)
            | Op::Window { .. }
            | Op::IsSpace { .. }
    )
}

/// Returns true if an instruction reads or writes the carry, which is not a named register.
fn has_carry(code: &KernelCode, pc: u32) -> bool {
    let (name, _) = parts(&code.places[pc as usize]);
    name.split('.')
        .any(|part| matches!(part, "cc" | "addc" | "subc" | "madc"))
}

/// Returns the registers that an instruction writes by its first operand, and those that it reads,
/// without its guard.
fn flow(code: &KernelCode, pc: u32) -> RegisterFlow {
    let (_, operands) = parts(&code.places[pc as usize]);
    let (first, others) = split(operands);
    RegisterFlow {
        writes: named(code, pc, first),
        reads: named(code, pc, others),
    }
}

/// Returns the registers that a fragment of an instruction names.
fn named(code: &KernelCode, pc: u32, text: &str) -> Vec<Register> {
    let routine = code
        .routines
        .partition_point(|r| r.start <= pc)
        .saturating_sub(1);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '$' | '_');
    let names: Vec<&str> = text.split(|c| !is_part(c)).collect();
    let name = |(bank, slot): &Register| code.name_of(routine as u32, *bank, *slot).unwrap_or("");
    code.mentioned(pc)
        .iter()
        .filter(|register| names.contains(&name(register)))
        .copied()
        .collect()
}
