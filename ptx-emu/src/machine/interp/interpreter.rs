//! The interpreter loop.

use crate::Class;
use crate::machine::async_copy::{bulk_store, copy, tensor_copy, tensor_map_update};
use crate::machine::image;
use crate::machine::interp::calls;
use crate::machine::lane_mask::{lanes, set_bit};
use crate::machine::memory::{global, load_store};
use crate::machine::scheduler::lane_meetings;
use crate::machine::scheduler::lane_meetings::{Gathering, Scheduled};
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Pause, Worker};
use crate::machine::sync::cluster::PEER;
use crate::machine::sync::mbarrier::WaitOutcome;
use crate::machine::sync::warp_exchange::Match;
use crate::machine::sync::{barrier, cluster, mbarrier, warp_exchange};
use crate::machine::tensor_core::{mma, wgmma, wmma};
use crate::module::address_space::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
use crate::module::code::{
    ClockPart, Combine, InstructionSpace, LoadParam, Op, PairTest, PredSource, RegisterOperand,
    ResolvedGuard, SetP, Test, Window,
};
use crate::module::registers::{Regs, Undefined};
use crate::sanitize::init::propagation;
use crate::sanitize::profile::observer;

/// Returns the lanes of `mask` in which a predicate is true.
pub(crate) fn pred(regs: &Regs, source: PredSource, mask: u32) -> Result<u32, Undefined> {
    match source {
        PredSource::Register {
            slot,
            negated: false,
        } => Ok(regs.pred(slot, mask)? & mask),
        PredSource::Register {
            slot,
            negated: true,
        } => Ok(!regs.pred(slot, mask)? & mask),
        PredSource::Constant(true) => Ok(mask),
        PredSource::Constant(false) => Ok(0),
    }
}

fn guarded(regs: &Regs, guard: ResolvedGuard, mask: u32) -> Result<u32, Undefined> {
    pred(
        regs,
        PredSource::Register {
            slot: guard.pred,
            negated: guard.negated,
        },
        mask,
    )
}

fn combine(
    regs: &Regs,
    mask: u32,
    holds: u32,
    with: Option<(Combine, PredSource)>,
) -> Result<u32, Undefined> {
    let Some((how, source)) = with else {
        return Ok(holds);
    };
    let other = pred(regs, source, mask)?;
    Ok(match how {
        Combine::And => holds & other,
        Combine::Or => holds | other,
        Combine::Xor => holds ^ other,
    })
}

pub(crate) fn set_predicates(regs: &mut Regs, mask: u32, s: &SetP) -> Result<(), Undefined> {
    let t = &s.test;
    let holds = (t.compare)(regs, mask, t.a, t.b)?;
    let p = combine(regs, mask, holds, t.with)?;
    let q = combine(regs, mask, !holds, t.with)?;
    if let Some(slot) = s.p {
        regs.set_pred(slot, mask, p);
    }
    if let Some(slot) = s.q {
        regs.set_pred(slot, mask, q);
    }
    Ok(())
}

fn set_values(regs: &mut Regs, mask: u32, t: &Test, d: u32, one: u32) -> Result<(), Undefined> {
    let holds = (t.compare)(regs, mask, t.a, t.b)?;
    let holds = combine(regs, mask, holds, t.with)?;
    let out: [u32; 32] = std::array::from_fn(|i| if holds >> i & 1 != 0 { one } else { 0 });
    regs.set(d, mask, &out);
    Ok(())
}

/// Returns the lanes in which a comparison of pairs holds, for the low and for the high halves.
fn compare_pairs(regs: &Regs, mask: u32, t: &PairTest) -> Result<[u32; 2], Undefined> {
    let a = regs.get::<u32>(t.a, mask)?;
    let b = regs.get::<u32>(t.b, mask)?;
    let outcome = |a: f32, b: f32| a.partial_cmp(&b).map_or(3, |order| order as i8 + 1);
    let holds = |half: u32| {
        let of = |x: u32| (t.wide)((x >> (16 * half)) as u16);
        (0..32)
            .filter(|i| t.outcomes >> outcome(of(a[*i]), of(b[*i])) & 1 != 0)
            .fold(0, set_bit)
    };
    Ok([
        combine(regs, mask, holds(0), t.with)?,
        combine(regs, mask, holds(1), t.with)?,
    ])
}

fn set_pair_predicates(
    regs: &mut Regs,
    mask: u32,
    t: &PairTest,
    to: [Option<u32>; 2],
) -> Result<(), Undefined> {
    let holds = compare_pairs(regs, mask, t)?;
    to.into_iter().zip(holds).for_each(|(to, holds)| {
        if let Some(slot) = to {
            regs.set_pred(slot, mask, holds);
        }
    });
    Ok(())
}

fn set_pair(regs: &mut Regs, mask: u32, t: &PairTest, d: u32, one: u32) -> Result<(), Undefined> {
    let [low, high] = compare_pairs(regs, mask, t)?;
    let part = |holds: u32, i: usize, of: u32| if holds >> i & 1 != 0 { one & of } else { 0 };
    let out: [u32; 32] = std::array::from_fn(|i| part(low, i, 0xffff) | part(high, i, 0xffff_0000));
    regs.set(d, mask, &out);
    Ok(())
}

/// Executes instructions on parts of registers. Returns `None` for all others.
fn pairs(regs: &mut Regs, mask: u32, op: &Op) -> Option<Result<(), Undefined>> {
    Some(match op {
        Op::SetPairP { test, p, q } => set_pair_predicates(regs, mask, test, [*p, *q]),
        Op::SetPair { test, d, one } => set_pair(regs, mask, test, *d, *one),
        Op::Copies(all) => regs.copy_all(mask, all),
        Op::Video(v) => crate::machine::interp::video::run(regs, mask, v),
        _ => return None,
    })
}

fn logic(
    regs: &mut Regs,
    mask: u32,
    table: u8,
    d: u32,
    a: PredSource,
    b: PredSource,
) -> Result<(), Undefined> {
    let a = pred(regs, a, mask)?;
    let b = pred(regs, b, mask)?;
    let cases = [!a & !b, !a & b, a & !b, a & b];
    let value = (0..4)
        .filter(|i| table >> i & 1 != 0)
        .fold(0, |value, i| value | cases[i]);
    regs.set_pred(d, mask, value);
    Ok(())
}

/// Adds or subtracts the base of a window of the generic address space.
fn window(regs: &mut Regs, mask: u32, d: u32, a: u32, base: u64) -> Result<(), Undefined> {
    let out = regs.get::<u64>(a, mask)?.map(|a| a.wrapping_add(base));
    regs.set(d, mask, &out);
    Ok(())
}

/// Returns the value that is added to an address in a window, or, with `to`, to a generic address.
fn window_base(window: Window, to: bool) -> u64 {
    let base = if window == InstructionSpace::Shared {
        SHARED_WINDOW
    } else {
        PARAM_WINDOW
    };
    if to { base.wrapping_neg() } else { base }
}

fn is_space(
    regs: &mut Regs,
    mask: u32,
    d: u32,
    a: u32,
    space: InstructionSpace,
    constant: impl Fn(u64) -> bool,
) -> Result<(), Undefined> {
    let a = regs.get::<u64>(a, mask)?;
    let within = |a: u64, base: u64| (base..base + WINDOW).contains(&a);
    let test = |a: u64| match space {
        InstructionSpace::Shared => within(a, SHARED_WINDOW) && a - SHARED_WINDOW < PEER,
        InstructionSpace::Cluster => within(a, SHARED_WINDOW),
        InstructionSpace::Local => within(a, LOCAL_WINDOW),
        InstructionSpace::Param => within(a, PARAM_WINDOW),
        InstructionSpace::Const => constant(a),
        InstructionSpace::Global | InstructionSpace::Generic => {
            ![SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW]
                .iter()
                .any(|window| within(a, *window))
                && !constant(a)
        }
    };
    let value = lanes(mask).filter(|i| test(a[*i])).fold(0, set_bit);
    regs.set_pred(d, mask, value);
    Ok(())
}

/// Extends a value from memory to a register with `bits` bits.
#[inline(always)]
pub(crate) fn extend(value: u64, bytes: u32, signed: bool, bits: u32) -> u64 {
    let shift = 64 - 8 * bytes;
    let value = if signed {
        ((value << shift) as i64 >> shift) as u64
    } else {
        value
    };
    value & u64::MAX >> (64 - bits)
}

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
            observer::before(block, w, mask)
        } else {
            None
        };
        if mask == 0 {
            if OBSERVED {
                observer::after(block, w, before);
            }
            w.now.pc += 1;
            continue;
        }
        if step.watched {
            wgmma::check_products(block, w)?;
        }
        let next = operation(block, w, mask, &step.op);
        if OBSERVED {
            observer::after(block, w, before);
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
        Err(u) => propagation::hand_on(block, w, mask, op, u).map(|()| Next::Following),
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

/// Executes instructions that are rare in inner loops.
pub(crate) fn rare(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    op: &Op,
) -> Checked<Result<(), Undefined>> {
    match op {
        Op::Atomic(a) => load_store::atomic(block, w, mask, a)?,
        Op::Atomics(v) => load_store::atomics(block, w, mask, v.0, &v.1)?,
        Op::Shuffle(s) => warp_exchange::shuffle(block, w, mask, s)?,
        Op::Vote {
            mode,
            d,
            pred,
            mask: named,
        } => warp_exchange::vote(block, w, mask, *mode, *d, *pred, *named)?,
        Op::Match {
            all,
            d,
            p,
            a,
            wide,
            mask: named,
        } => {
            let m = Match {
                all: *all,
                d: *d,
                p: *p,
                a: *a,
                wide: *wide,
            };
            warp_exchange::matches(block, w, mask, &m, *named)?
        }
        Op::Redux {
            f,
            d,
            a,
            mask: named,
        } => warp_exchange::redux(block, w, mask, *f, *d, *a, *named)?,
        Op::Elect { d, p, mask: named } => warp_exchange::elect(block, w, mask, *d, *p, *named)?,
        Op::WarpBarrier { mask: named } => warp_exchange::warp_barrier(block, w, mask, *named)?,
        Op::Fence(fence) => load_store::fence(block, w, mask, *fence),
        Op::Mma(m) => mma::mma(block, w, mask, m)?,
        Op::Mbarrier(b) => mbarrier::mbarrier(block, w, mask, b)?,
        Op::Bulk(b) => copy::bulk(block, w, mask, b)?,
        Op::BulkPrefetch(b) => copy::bulk_prefetch(block, w, mask, b.0, b.1)?,
        Op::Copy(c) => copy::copy(block, w, mask, c)?,
        Op::CopyCommit => block.copies.commit(w.index, mask),
        Op::CopyWait { keep } => copy::copy_wait(block, w, mask, *keep),
        Op::CopyArrives(a) => copy::copy_arrives(block, w, mask, a.0, a.1, a.2)?,
        Op::LoadMatrix(m) => mma::load_matrix(block, w, mask, m)?,
        Op::ProxyFence { mbarriers } => mbarrier::proxy_fence(block, w, *mbarriers),
        Op::GridWait => global::grid_wait(block, w),
        Op::GridTrigger => global::grid_trigger(block, w),
        Op::ActiveMask { d } => w.regs.set(*d, mask, &[mask; 32]),
        Op::Window {
            d,
            a,
            window: InstructionSpace::Local,
            to,
        } => {
            return Ok(crate::machine::memory::local::convert(w, mask, *d, *a, *to));
        }
        Op::Window {
            d,
            a,
            window: space,
            to,
        } => {
            return Ok(window(&mut w.regs, mask, *d, *a, window_base(*space, *to)));
        }
        Op::IsSpace { d, a, space } => {
            let constant = |a: u64| block.grid.table.find(a).is_some_and(|a| a.constant);
            return Ok(is_space(&mut w.regs, mask, *d, *a, *space, constant));
        }
        Op::Clock { d, part } => clock(block, w, mask, *d, *part),
        Op::Trap => {
            let mut fault = block.fault(w, mask, Class::Trap, "trap was executed");
            fault.instead = "the kernel itself says that something is wrong";
            return Err(fault);
        }
        op => match pairs(&mut w.regs, mask, op) {
            Some(done) => return Ok(done),
            None => beside(block, w, mask, op)?,
        },
    }
    Ok(Ok(()))
}

/// Executes a clock read, which counts executed instructions.
fn clock(block: &Worker<'_, '_>, w: &mut Warp, mask: u32, d: u32, part: ClockPart) {
    let now = block.stats.warp_instructions + w.executed;
    match part {
        ClockPart::Whole => w.regs.set(d, mask, &[now; 32]),
        ClockPart::Low => w.regs.set(d, mask, &[now as u32; 32]),
        ClockPart::High => w.regs.set(d, mask, &[(now >> 32) as u32; 32]),
    }
}

/// Executes asynchronous instructions, instructions on the cluster, and instructions on the
/// stack.
fn beside(block: &mut Worker<'_, '_>, w: &mut Warp, mask: u32, op: &Op) -> Checked<()> {
    match op {
        Op::Wgmma(product) => wgmma::multiply(block, w, mask, product),
        Op::WgmmaFence => wgmma::fence_products(block, w, mask),
        Op::WgmmaCommit => wgmma::commit_products(block, w, mask),
        Op::WgmmaWait { keep } => wgmma::wait_products(block, w, mask, *keep),
        Op::TensorLoad(t) => tensor_copy::load_tensor(block, w, mask, t),
        Op::TensorStore(t) => bulk_store::store_tensor(block, w, mask, t),
        Op::BulkStore(b) => bulk_store::store_bulk(block, w, mask, b),
        Op::AsyncStore(s) => copy::store_async(block, w, mask, s),
        Op::TensorMap(of) => tensor_map_update::operate_on_map(block, w, mask, of),
        Op::Image(of) => image::operate_on_image(block, w, mask, of),
        Op::BulkCommit => {
            block.stores.commit(w.index, mask);
            Ok(())
        }
        Op::BulkWait { keep, read } => bulk_store::wait_stores(block, w, mask, *keep, *read),
        Op::Alloca { d, size, align } => calls::alloca(block, w, mask, *d, *size, *align),
        Op::StackSave { d } => {
            let top = [w.top.into(); 32];
            crate::machine::memory::load_store::put(w, *d, mask, &top);
            Ok(())
        }
        Op::Discard(halves) => load_store::discard(block, w, mask, halves),
        Op::StackRestore { a } => calls::stack_restore(block, w, mask, *a),
        Op::MapAddress { d, a, rank, wide } => {
            let bits = if *wide { 64 } else { 32 };
            let operand = |slot| RegisterOperand { slot, bits };
            cluster::map_address(block, w, mask, operand(*d), operand(*a), *rank)
        }
        Op::ClusterArrive { releases, aligned } => {
            if *aligned {
                cluster::check_present(block, w, mask)?;
            }
            cluster::cluster_arrive(block, w, mask, *releases)
        }
        Op::Product(p) => wmma::multiply_fragments(block, w, mask, p),
        Op::LoadFragment(m) => wmma::load_fragment(block, w, mask, m),
        Op::StoreFragment(m) => wmma::store_fragment(block, w, mask, m),
        Op::ClusterRank(c) => cluster::cluster_rank(block, w, mask, c.0, &c.1, c.2),
        Op::StoreMatrix(m) => mma::store_matrix(block, w, mask, m),
        Op::MoveMatrix { d, a } => mma::move_matrix(block, w, mask, *d, *a),
        _ => Ok(()),
    }
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
