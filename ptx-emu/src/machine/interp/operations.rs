//! Dispatches the operations that lanes may execute together with lanes that wait for them.

use crate::fault::Class;
use crate::machine::async_copy::{bulk_store, copy, tensor_copy, tensor_map_update};
use crate::machine::image::execute;
use crate::machine::interp::calls;
use crate::machine::interp::predicates::{set_pair, set_pair_predicates};
use crate::machine::memory::cluster_window::PEER;
use crate::machine::memory::{global_record, lane_access, load_store};
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::machine::sync::warp_exchange::Match;
use crate::machine::sync::{cluster, mbarrier, warp_exchange};
use crate::machine::tensor_core::{mma, wgmma, wmma};
use crate::module::address_space::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
use crate::module::code::instruction::Op;
use crate::module::code::operand::{ClockPart, InstructionSpace, RegisterOperand, Window};
use crate::module::lane_mask::{lanes, set_bit};
use crate::module::registers::{Regs, Undefined};

/// Executes instructions on parts of registers. Returns `None` for all others.
pub(crate) fn pairs(regs: &mut Regs, mask: u32, op: &Op) -> Option<Result<(), Undefined>> {
    Some(match op {
        Op::SetPairP { test, p, q } => set_pair_predicates(regs, mask, test, [*p, *q]),
        Op::SetPair { test, d, one } => set_pair(regs, mask, test, *d, *one),
        Op::Copies(all) => regs.copy_all(mask, all),
        Op::Video(v) => crate::machine::interp::video::run(regs, mask, v),
        _ => return None,
    })
}

/// Adds or subtracts the base of a window of the generic address space.
pub(crate) fn window(
    regs: &mut Regs,
    mask: u32,
    d: u32,
    a: u32,
    base: u64,
) -> Result<(), Undefined> {
    let out = regs.get::<u64>(a, mask)?.map(|a| a.wrapping_add(base));
    regs.set(d, mask, &out);
    Ok(())
}

/// Returns the value that is added to an address in a window, or, with `to`, to a generic address.
pub(crate) fn window_base(window: Window, to: bool) -> u64 {
    let base = if window == InstructionSpace::Shared {
        SHARED_WINDOW
    } else {
        PARAM_WINDOW
    };
    if to { base.wrapping_neg() } else { base }
}

pub(crate) fn is_space(
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
        Op::GridWait => global_record::grid_wait(block, w),
        Op::GridTrigger => global_record::grid_trigger(block, w),
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
pub(crate) fn clock(block: &Worker<'_, '_>, w: &mut Warp, mask: u32, d: u32, part: ClockPart) {
    let now = block.stats.warp_instructions + w.executed;
    match part {
        ClockPart::Whole => w.regs.set(d, mask, &[now; 32]),
        ClockPart::Low => w.regs.set(d, mask, &[now as u32; 32]),
        ClockPart::High => w.regs.set(d, mask, &[(now >> 32) as u32; 32]),
    }
}

/// Executes asynchronous instructions, instructions on the cluster, and instructions on the
/// stack.
pub(crate) fn beside(block: &mut Worker<'_, '_>, w: &mut Warp, mask: u32, op: &Op) -> Checked<()> {
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
        Op::Image(of) => execute::operate_on_image(block, w, mask, of),
        Op::BulkCommit => {
            block.stores.commit(w.index, mask);
            Ok(())
        }
        Op::BulkWait { keep, read } => bulk_store::wait_stores(block, w, mask, *keep, *read),
        Op::Alloca { d, size, align } => calls::alloca(block, w, mask, *d, *size, *align),
        Op::StackSave { d } => {
            let top = [w.top.into(); 32];
            lane_access::put(w, *d, mask, &top);
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
