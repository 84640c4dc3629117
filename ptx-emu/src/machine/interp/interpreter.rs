//! The interpreter loop.

use crate::Class;
use crate::machine::interp::operations::rare;
use crate::machine::interp::predicates::{guarded, logic, set_predicates, set_values};
use crate::machine::interp::{calls, undefined_operands};
use crate::machine::memory::lane_access::extend;
use crate::machine::memory::load_store;
use crate::machine::observation;
use crate::machine::scheduler::lane_meetings;
use crate::machine::scheduler::lane_meetings::{Gathering, Scheduled};
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::warp_parts::Pause;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::machine::sync::mbarrier::WaitOutcome;
use crate::machine::sync::{barrier, cluster, mbarrier};
use crate::machine::tensor_core::wgmma;
use crate::module::code::{LoadParam, Op};
use crate::module::lane_mask::{lanes, set_bit};
use crate::module::registers::Regs;

fn load_param(regs: &mut Regs, mask: u32, params: &[u8], p: &LoadParam) {
    for (i, to) in p.regs.iter().enumerate() {
        let start = p.offset as usize + i * p.width.bytes as usize;
        let mut bytes = [0; 8];
        bytes[..p.width.bytes as usize]
            .copy_from_slice(&params[start..start + p.width.bytes as usize]);
        let Some(to) = to else { continue };
        let value = extend(
            u64::from_le_bytes(bytes),
            p.width.bytes,
            p.width.signed,
            to.bits,
        );
        match to.bits {
            64 => regs.set(to.slot, mask, &[value; 32]),
            _ => regs.set(to.slot, mask, &[value as u32; 32]),
        }
    }
}

/// Returns true if an instruction outside of [`operation`] may have an effect that other
/// threads can see. Atomics report their effects themselves.
fn affects(op: &Op) -> bool {
    !matches!(
        op,
        Op::Atomic(_)
            | Op::Atomics(_)
            | Op::Shuffle(_)
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Redux { .. }
            | Op::Elect { .. }
            | Op::WarpBarrier { .. }
            | Op::Fence(_)
            | Op::ActiveMask { .. }
            | Op::Window { .. }
            | Op::IsSpace { .. }
            | Op::Clock { .. }
            | Op::Copies(_)
            | Op::SetPairP { .. }
            | Op::SetPair { .. }
            | Op::Video(_)
            | Op::Nothing
            | Op::Mma(_)
            | Op::LoadMatrix(_)
            | Op::MoveMatrix { .. }
            | Op::Product(_)
            | Op::LoadFragment(_)
            | Op::MapAddress { .. }
            | Op::Image(_)
    )
}

/// The instruction at which a warp continues.
enum Next {
    /// The following instruction.
    Following,
    /// The instruction in its frame.
    Frame,
    /// The instruction in its frame, after other warps have run.
    Pause(Pause),
}

/// Runs a warp until it waits, ends, or has executed `until` instructions.
pub(crate) fn execute<const OBSERVED: bool>(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    until: u64,
) -> Checked<Pause> {
    let ops = &block.grid.code.ops[..];
    loop {
        if w.now.pc == w.now.join || w.now.mask == 0 {
            match continue_elsewhere(block, w)? {
                None => continue,
                Some(pause) => return Ok(pause),
            }
        }
        if w.executed >= until {
            return Ok(Pause::Turn);
        }
        let step = &ops[w.now.pc as usize];
        let mask = match step.guard {
            None => w.now.mask,
            Some(g) => match guarded(&w.regs, g, w.now.mask) {
                Ok(mask) => mask,
                Err(u) => return Err(block.undefined(w, u)),
            },
        };
        w.executed += 1;
        w.lane_count += u64::from(mask.count_ones());
        let before = if OBSERVED {
            observation::before(block, w, mask)
        } else {
            None
        };
        if mask == 0 {
            if OBSERVED {
                observation::after(block, w, before);
            }
            w.now.pc += 1;
            continue;
        }
        if step.watched {
            wgmma::check_products(block, w)?;
        }
        let next = operation(block, w, mask, &step.op);
        if OBSERVED {
            observation::after(block, w, before);
        }
        match next? {
            Next::Following => w.now.pc += 1,
            Next::Frame => {}
            Next::Pause(pause) => return Ok(pause),
        }
    }
}

/// Continues with the next lanes after the running ones have reconverged or ended. The function
/// is separate because the interpreter loop is faster without it.
#[inline(never)]
fn continue_elsewhere(block: &mut Worker<'_, '_>, w: &mut Warp) -> Checked<Option<Pause>> {
    while w.now.pc == w.now.join && w.now.mask != 0 {
        w.resume();
        if !w.apart.is_empty() {
            w.reconverge(block.grid.code);
        }
    }
    if w.now.mask != 0 {
        return Ok(None);
    }
    if !w.apart.is_empty() {
        return Ok(match lane_meetings::schedule(block, w)? {
            Scheduled::Running => None,
            Scheduled::Waits => Some(Pause::Waits),
            Scheduled::Ended => Some(Pause::Ended),
        });
    }
    if w.calls.is_empty() {
        return Ok(Some(Pause::Ended));
    }
    calls::leave(block, w)?;
    Ok(None)
}

#[inline(always)]
fn operation(block: &mut Worker<'_, '_>, w: &mut Warp, mask: u32, op: &Op) -> Checked<Next> {
    let done = match op {
        Op::Alu(run, slots) => run(&mut w.regs, mask, slots),
        Op::SetP(s) => set_predicates(&mut w.regs, mask, s),
        Op::Branch { target, join } => {
            w.branch(mask, *target, *join);
            return Ok(Next::Frame);
        }
        Op::Load(t) => return load_store::load(block, w, mask, t).map(|()| Next::Following),
        Op::Store(t) => return load_store::store(block, w, mask, t).map(|()| Next::Following),
        Op::LoadParam(p) => {
            load_param(&mut w.regs, mask, block.grid.launch.params, p);
            Ok(())
        }
        Op::Set { test, d, one } => set_values(&mut w.regs, mask, test, *d, *one),
        Op::Logic { table, d, a, b } => logic(&mut w.regs, mask, *table, *d, *a, *b),
        Op::Exit
        | Op::Call(_)
        | Op::Return
        | Op::Barrier(_)
        | Op::MbarrierWait(_)
        | Op::Sleep
        | Op::ClusterWait { .. }
        | Op::SetMaxRegisters { .. }
        | Op::BranchIndexed { .. } => {
            if mask != w.present() {
                match lane_meetings::gather_lanes(block, w, mask, op)? {
                    Gathering::Executes => {}
                    Gathering::Elsewhere => return Ok(Next::Frame),
                    Gathering::Waits => return Ok(Next::Pause(Pause::Waits)),
                }
            }
            return control(block, w, mask, op);
        }
        op => {
            if mask != w.present() {
                match lane_meetings::gather_lanes(block, w, mask, op)? {
                    Gathering::Executes => {}
                    Gathering::Elsewhere => return Ok(Next::Frame),
                    Gathering::Waits => return Ok(Next::Pause(Pause::Waits)),
                }
            }
            w.effects += u64::from(affects(op));
            rare(block, w, mask, op)?
        }
    };
    match done {
        Ok(()) => Ok(Next::Following),
        Err(u) => undefined_operands::hand_on(block, w, mask, op, u).map(|()| Next::Following),
    }
}

/// Executes instructions after which the warp may wait, end or branch.
fn control(block: &mut Worker<'_, '_>, w: &mut Warp, mask: u32, op: &Op) -> Checked<Next> {
    match op {
        Op::Exit => {
            w.exit(mask);
            w.reconverge(block.grid.code);
            return Ok(Next::Frame);
        }
        Op::Call(call) => {
            calls::call(block, w, mask, call)?;
            return Ok(Next::Frame);
        }
        Op::Return => {
            w.give_back(mask);
            w.reconverge(block.grid.code);
            return Ok(Next::Frame);
        }
        Op::BranchIndexed {
            index,
            targets,
            join,
        } => {
            branch_indexed(block, w, mask, *index, targets, *join)?;
            return Ok(Next::Frame);
        }
        Op::MbarrierWait(b) => match mbarrier::wait(block, w, mask, b)? {
            // It executes the wait again when it is woken.
            WaitOutcome::Suspended => return Ok(Next::Pause(Pause::Waits)),
            WaitOutcome::Answered => return Ok(Next::Following),
            WaitOutcome::NotYet => {}
        },
        // They execute it again when they are woken.
        Op::ClusterWait { aligned } => {
            if *aligned {
                cluster::check_present(block, w, mask)?;
            }
            let waits = cluster::cluster_wait(block, w)?;
            return Ok(if waits {
                Next::Pause(Pause::Waits)
            } else {
                Next::Following
            });
        }
        Op::SetMaxRegisters { count } => {
            let waits = cluster::set_registers(block, w, mask, *count)?;
            return Ok(if waits {
                Next::Pause(Pause::Waits)
            } else {
                Next::Following
            });
        }
        Op::Barrier(b) => {
            w.effects += 1;
            if !barrier::barrier(block, w, mask, b)? {
                return Ok(Next::Following);
            }
        }
        _ => {}
    }
    w.now.pc += 1;
    Ok(Next::Pause(match op {
        Op::Barrier(_) => Pause::Waits,
        Op::MbarrierWait(_) => Pause::Yields,
        _ => Pause::Sleeps,
    }))
}

fn branch_indexed(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    index: u32,
    targets: &[u32],
    join: u32,
) -> Checked<()> {
    let index = *w
        .regs
        .get::<u32>(index, mask)
        .map_err(|u| block.undefined(w, u))?;
    let bad = lanes(mask)
        .filter(|l| index[*l] as usize >= targets.len())
        .fold(0, set_bit);
    if bad != 0 {
        let lane = bad.trailing_zeros() as usize;
        let what = format!(
            "brx.idx with index {} into a list of {} labels",
            index[lane],
            targets.len()
        );
        return Err(block.fault(w, bad, Class::OutOfBounds, what));
    }
    let mut groups: Vec<(u32, u32)> = Vec::new();
    for lane in lanes(w.now.mask) {
        let to = if mask >> lane & 1 != 0 {
            targets[index[lane] as usize]
        } else {
            w.now.pc + 1
        };
        match groups.iter_mut().find(|(pc, _)| *pc == to) {
            Some((_, mask)) => *mask |= 1 << lane,
            None => groups.push((to, 1 << lane)),
        }
    }
    match groups[..] {
        [(to, _)] => w.now.pc = to,
        _ => w.diverge(&groups, join),
    }
    Ok(())
}
