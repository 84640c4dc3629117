//! The interpreter loop.

use crate::Class;
use crate::fault::Fault;
use crate::machine::async_copy::{bulk_store, copy, tensor_copy, tensor_map_update};
use crate::machine::image::execute;
use crate::machine::interp::address_windows::{is_space, window, window_base};
use crate::machine::interp::lane_meetings::{Gathering, Scheduled};
use crate::machine::interp::{calls, lane_meetings, undefined_operands, video};
use crate::machine::memory::global::global_record;
use crate::machine::memory::lane_access::extend;
use crate::machine::memory::{lane_access, load_store, local};
use crate::machine::observation;
use crate::machine::predicates::{
    guarded, logic, set_pair, set_pair_predicates, set_predicates, set_values,
};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::machine::state::warp_parts::Pause;
use crate::machine::sync::mbarrier::WaitOutcome;
use crate::machine::sync::{barrier, cluster, mbarrier, warp_exchange};
use crate::machine::tensor_core::{mma, wgmma, wmma};
use crate::module::code::instruction::Instruction;
use crate::module::code::operand::{ClockPart, InstructionSpace, RegisterOperand};
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
    block: &mut Block<'_, '_>,
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
        if OBSERVED {
            observation::before(block, w, mask);
        }

        if mask == 0 {
            if OBSERVED {
                observation::after(block, w);
            }
            w.now.pc += 1;
            continue;
        }

        let early = if step.preparation.is_none() {
            Ok(None)
        } else {
            if step.preparation.uses_product() {
                wgmma::check_products(block, w)?;
            }
            prepare(block, w, mask, step)
        };
        let next = match early {
            Ok(None) => operation(block, w, mask, &step.op),
            Ok(Some(next)) => Ok(next),
            Err(fault) => Err(fault),
        };
        if OBSERVED {
            observation::after(block, w);
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
fn continue_elsewhere(block: &mut Block<'_, '_>, w: &mut Warp) -> Checked<Option<Pause>> {
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

/// Lets lanes meet before an operation that they must execute together. Returns the place at which
/// the warp continues if the operation is not executed now.
#[inline(never)]
fn prepare(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    step: &Instruction,
) -> Checked<Option<Next>> {
    if step.preparation.gathers() && mask != w.present() {
        match lane_meetings::gather_lanes(block, w, mask, &step.op)? {
            Gathering::Executes => {}
            Gathering::Elsewhere => return Ok(Some(Next::Frame)),
            Gathering::Waits => return Ok(Some(Next::Pause(Pause::Waits))),
        }
    }
    w.effects += u64::from(step.preparation.acts());
    Ok(None)
}

/// Executes an operation in the lanes of `mask`, which have met.
///
/// The match is exhaustive, so a new operation does not compile before it is executed here. The
/// operations of inner loops are short or inlined, and all others are calls.
#[inline(always)]
fn operation(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32, op: &Op) -> Checked<Next> {
    // Operations on registers, whose operands may be uninitialized.
    let computed = match op {
        Op::Alu(run, slots) => run(&mut w.regs, mask, slots),
        Op::SetP(s) => set_predicates(&mut w.regs, mask, s),
        Op::Set { test, d, one } => set_values(&mut w.regs, mask, test, *d, *one),
        Op::Logic { table, d, a, b } => logic(&mut w.regs, mask, *table, *d, *a, *b),
        Op::SetPairP { test, p, q } => set_pair_predicates(&mut w.regs, mask, test, [*p, *q]),
        Op::SetPair { test, d, one } => set_pair(&mut w.regs, mask, test, *d, *one),
        Op::Copies(all) => w.regs.copy_all(mask, all),
        Op::Video(v) => video::run(&mut w.regs, mask, v),
        Op::Window {
            d,
            a,
            window: InstructionSpace::Local,
            to,
        } => local::convert(w, mask, *d, *a, *to),
        Op::Window {
            d,
            a,
            window: space,
            to,
        } => window(&mut w.regs, mask, *d, *a, window_base(*space, *to)),
        Op::IsSpace { d, a, space } => is_space(block, w, mask, *d, *a, *space),

        // Memory.
        Op::Load(t) => return load_store::load(block, w, mask, t).map(following),
        Op::Store(t) => return load_store::store(block, w, mask, t).map(following),
        Op::LoadParam(p) => {
            load_param(&mut w.regs, mask, block.grid.launch.params, p);
            return Ok(Next::Following);
        }
        Op::Atomic(a) => return load_store::atomic(block, w, mask, a).map(following),
        Op::Atomics(v) => {
            return load_store::atomics(block, w, mask, v.0, &v.1).map(following);
        }
        Op::Discard(halves) => {
            return load_store::discard(block, w, mask, halves).map(following);
        }
        Op::Fence(fence) => {
            load_store::fence(block, w, mask, *fence);
            return Ok(Next::Following);
        }
        Op::Image(of) => return execute::operate_on_image(block, w, mask, of).map(following),

        // Control flow and calls.
        Op::Branch { target, join } => {
            w.branch(mask, *target, *join);
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
        Op::Trap => return Err(trap(block, w, mask)),
        Op::Nothing => return Ok(Next::Following),
        Op::Sleep => return Ok(pause_after(w, Pause::Sleeps)),
        Op::Alloca { d, size, align } => {
            return calls::alloca(block, w, mask, *d, *size, *align).map(following);
        }
        Op::StackSave { d } => {
            let top = [w.top.into(); 32];
            lane_access::put(w, *d, mask, &top);
            return Ok(Next::Following);
        }
        Op::StackRestore { a } => {
            return calls::stack_restore(block, w, mask, *a).map(following);
        }

        // Lanes, warps and blocks.
        Op::Exchange(exchange) => {
            return warp_exchange::exchange(block, w, mask, exchange).map(following);
        }
        Op::ActiveMask { d } => {
            w.regs.set(*d, mask, &[mask; 32]);
            return Ok(Next::Following);
        }
        Op::Clock { d, part } => {
            clock(block, w, mask, *d, *part);
            return Ok(Next::Following);
        }
        Op::Barrier(b) => {
            w.effects += 1;
            let waits = barrier::barrier(block, w, mask, b)?;
            return Ok(if waits {
                pause_after(w, Pause::Waits)
            } else {
                Next::Following
            });
        }
        Op::Mbarrier(b) => return mbarrier::mbarrier(block, w, mask, b).map(following),
        Op::MbarrierWait(b) => {
            return Ok(match mbarrier::wait(block, w, mask, b)? {
                // The warp executes the wait again when it is woken.
                WaitOutcome::Suspended => Next::Pause(Pause::Waits),
                WaitOutcome::Answered => Next::Following,
                WaitOutcome::NotYet => pause_after(w, Pause::Yields),
            });
        }
        Op::ProxyFence { mbarriers } => {
            mbarrier::proxy_fence(block, w, *mbarriers);
            return Ok(Next::Following);
        }
        Op::GridWait => {
            global_record::grid_wait(block, w);
            return Ok(Next::Following);
        }
        Op::GridTrigger => {
            global_record::grid_trigger(block, w);
            return Ok(Next::Following);
        }
        Op::SetMaxRegisters { count } => {
            let waits = cluster::set_registers(block, w, mask, *count)?;
            return Ok(again_if(waits));
        }
        Op::ClusterArrive { releases, aligned } => {
            if *aligned {
                cluster::check_present(block, w, mask)?;
            }
            return cluster::cluster_arrive(block, w, mask, *releases).map(following);
        }
        Op::ClusterWait { aligned } => {
            if *aligned {
                cluster::check_present(block, w, mask)?;
            }
            let waits = cluster::cluster_wait(block, w)?;
            return Ok(again_if(waits));
        }
        Op::ClusterRank(c) => {
            return cluster::cluster_rank(block, w, mask, c.0, &c.1, c.2).map(following);
        }
        Op::MapAddress { d, a, rank, wide } => {
            let bits = if *wide { 64 } else { 32 };
            let operand = |slot| RegisterOperand { slot, bits };
            return cluster::map_address(block, w, mask, operand(*d), operand(*a), *rank)
                .map(following);
        }

        // Asynchronous copies.
        Op::Copy(c) => return copy::copy(block, w, mask, c).map(following),
        Op::CopyCommit => {
            block.pending.copies.commit(w.index, mask);
            return Ok(Next::Following);
        }
        Op::CopyWait { keep } => {
            copy::copy_wait(block, w, mask, *keep);
            return Ok(Next::Following);
        }
        Op::CopyArrives(a) => {
            return copy::copy_arrives(block, w, mask, a.0, a.1, a.2).map(following);
        }
        Op::Bulk(b) => return copy::bulk(block, w, mask, b).map(following),
        Op::BulkPrefetch(b) => {
            return copy::bulk_prefetch(block, w, mask, b.0, b.1).map(following);
        }
        Op::BulkStore(b) => return bulk_store::store_bulk(block, w, mask, b).map(following),
        Op::BulkCommit => {
            block.pending.stores.commit(w.index, mask);
            return Ok(Next::Following);
        }
        Op::BulkWait { keep, read } => {
            return bulk_store::wait_stores(block, w, mask, *keep, *read).map(following);
        }
        Op::AsyncStore(s) => return copy::store_async(block, w, mask, s).map(following),
        Op::TensorLoad(t) => return tensor_copy::load_tensor(block, w, mask, t).map(following),
        Op::TensorStore(t) => return bulk_store::store_tensor(block, w, mask, t).map(following),
        Op::TensorMap(of) => {
            return tensor_map_update::operate_on_map(block, w, mask, of).map(following);
        }

        // Matrices.
        Op::Mma(m) => return mma::mma(block, w, mask, m).map(following),
        Op::LoadMatrix(m) => return mma::load_matrix(block, w, mask, m).map(following),
        Op::StoreMatrix(m) => return mma::store_matrix(block, w, mask, m).map(following),
        Op::MoveMatrix { d, a } => return mma::move_matrix(block, w, mask, *d, *a).map(following),
        Op::Product(p) => return wmma::multiply_fragments(block, w, mask, p).map(following),
        Op::LoadFragment(m) => return wmma::load_fragment(block, w, mask, m).map(following),
        Op::StoreFragment(m) => return wmma::store_fragment(block, w, mask, m).map(following),
        Op::Wgmma(product) => return wgmma::multiply(block, w, mask, product).map(following),
        Op::WgmmaFence => return wgmma::fence_products(block, w, mask).map(following),
        Op::WgmmaCommit => return wgmma::commit_products(block, w, mask).map(following),
        Op::WgmmaWait { keep } => {
            return wgmma::wait_products(block, w, mask, *keep).map(following);
        }
    };
    match computed {
        Ok(()) => Ok(Next::Following),
        Err(u) => undefined_operands::propagate(block, w, mask, op, u).map(following),
    }
}

/// Continues with the following instruction.
fn following((): ()) -> Next {
    Next::Following
}

/// Executes the instruction again after other warps have run, or continues with the following one.
fn again_if(waits: bool) -> Next {
    if waits {
        Next::Pause(Pause::Waits)
    } else {
        Next::Following
    }
}

/// Continues with the following instruction after other warps have run.
fn pause_after(w: &mut Warp, pause: Pause) -> Next {
    w.now.pc += 1;
    Next::Pause(pause)
}

#[cold]
fn trap(block: &Block<'_, '_>, w: &Warp, mask: u32) -> Box<Fault> {
    let mut fault = block.fault(w, mask, Class::Trap, "trap was executed");
    fault.instead = "the kernel itself says that something is wrong";
    fault
}

fn branch_indexed(
    block: &mut Block<'_, '_>,
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

/// Executes a clock read, which counts executed instructions.
pub(crate) fn clock(block: &Block<'_, '_>, w: &mut Warp, mask: u32, d: u32, part: ClockPart) {
    let now = block.stats.warp_instructions + w.executed;
    match part {
        ClockPart::Whole => w.regs.set(d, mask, &[now; 32]),
        ClockPart::Low => w.regs.set(d, mask, &[now as u32; 32]),
        ClockPart::High => w.regs.set(d, mask, &[(now >> 32) as u32; 32]),
    }
}
