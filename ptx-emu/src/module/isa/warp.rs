//! Instructions that several lanes execute together: barriers, fences, shuffles and votes (PTX ISA,
//! "Parallel Synchronization and Communication Instructions").

use crate::module::code::{
    Barrier, BarrierKind, EXECUTING, Exchange, FenceInstruction, MemoryScope, Op, Shuffle,
    ShuffleMode, Vote,
};
use crate::module::context::operands::{Decode, Decoder};
use crate::module::isa::memory::load_store::SCOPES;
use crate::module::registers::Bank;
use crate::syntax::Parsed;
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("bar", bar),
    ("barrier", barrier),
    ("membar", membar),
    ("fence", fence),
    ("shfl", shfl),
    ("vote", vote),
    ("match", matches),
    ("redux", redux),
    ("activemask", activemask),
    ("elect", elect),
];

/// Decodes `bar.*`, which is `barrier.*.aligned`, and `bar.warp.sync`.
fn bar(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if d.eat(".warp") {
        d.require(&[(".sync", ())])?;
        d.operands(1, 1)?;
        return Ok(Op::Exchange(Exchange::WarpBarrier {
            mask: d.src(0, Type::B32)?,
        }));
    }
    d.eat(".cta");
    block_barrier(d)
}

fn barrier(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if d.peek() == Some(".cluster") {
        return crate::module::isa::cluster::barrier(d);
    }
    d.eat(".cta");
    block_barrier(d)
}

#[derive(Clone, Copy)]
enum BarrierForm {
    Sync,
    Arrive,
    Red,
}

fn block_barrier(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let form = d.require(&[
        (".sync", BarrierForm::Sync),
        (".arrive", BarrierForm::Arrive),
        (".red", BarrierForm::Red),
    ])?;
    let reduction = match form {
        BarrierForm::Red => Some(d.require(&[(".popc", 0), (".and", 1), (".or", 2)])?),
        _ => None,
    };

    // `bar` is `barrier.aligned`. Targets before sm_70 require convergence in both forms.
    let aligned = d.inst.opcode == "bar" || d.eat(".aligned") || !d.schedules_independently();
    let first = usize::from(reduction.is_some());
    let kind = match (form, reduction) {
        (BarrierForm::Sync, _) => BarrierKind::Sync,
        (BarrierForm::Arrive, _) => BarrierKind::Arrive,
        (_, reduction) => {
            let ty = d.ty(if reduction == Some(0) {
                &[Type::U32]
            } else {
                &[Type::Pred]
            })?;
            let n = d.operands(3, 4)?;
            let to = d.dst(0, ty)?;
            let pred = d.pred(n - 1)?;
            match reduction {
                Some(0) => BarrierKind::Popc { d: to, pred },
                Some(1) => BarrierKind::And { d: to, pred },
                _ => BarrierKind::Or { d: to, pred },
            }
        }
    };
    let counted = match form {
        BarrierForm::Sync => d.operands(1, 2)? == 2,
        BarrierForm::Arrive => d.operands(2, 2)? == 2,
        BarrierForm::Red => d.operands(3, 4)? == 4,
    };
    check_literals(d, first, counted)?;
    let id = d.src(first, Type::U32)?;
    let count = if counted {
        Some(d.src(first + 1, Type::U32)?)
    } else {
        None
    };
    Ok(Op::Barrier(Box::new(Barrier {
        kind,
        id,
        count,
        aligned,
    })))
}

/// Checks literal barrier numbers and thread counts.
fn check_literals(d: &Decode<'_, '_>, first: usize, counted: bool) -> Parsed<()> {
    if matches!(d.operand(first).kind, OperandKind::Number(_)) {
        d.immediate(first, 15)?;
    }
    if counted && matches!(d.operand(first + 1).kind, OperandKind::Number(_)) {
        let count = d.immediate(first + 1, 1024)?;
        if count == 0 || count % 32 != 0 {
            return d.error(format!(
                "a barrier for {count} threads: the count is a positive multiple of 32"
            ));
        }
    }
    Ok(())
}

fn membar(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let scopes = [
        (".cta", MemoryScope::Block),
        (".gl", MemoryScope::Device),
        (".sys", MemoryScope::Device),
    ];
    let scope = d.require(&scopes)?;
    d.operands(0, 0)?;
    Ok(Op::Fence(FenceInstruction {
        acquires: true,
        releases: true,
        scope,
    }))
}

fn fence(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if matches!(d.peek(), Some(".proxy" | ".mbarrier_init")) {
        return crate::module::isa::async_copy::copy::proxy_fence(d);
    }

    let both = (true, true);
    let halves = [
        (".sc", both),
        (".acq_rel", both),
        (".acquire", (true, false)),
        (".release", (false, true)),
    ];
    let (acquires, releases) = d.choose(&halves).unwrap_or(both);
    let scope = d.require(SCOPES)?;
    d.operands(0, 0)?;
    Ok(Op::Fence(FenceInstruction {
        acquires,
        releases,
        scope,
    }))
}

/// Returns true if a shuffle or vote has no `.sync` and no mask, as old targets and versions allow.
fn is_maskless(d: &mut Decode<'_, '_>) -> Parsed<bool> {
    if d.eat(".sync") {
        return Ok(false);
    }
    if d.allows_maskless() {
        Ok(true)
    } else {
        d.require(&[(".sync", ())]).map(|()| false)
    }
}

/// Returns the register of a mask, or [`EXECUTING`] if there is no mask.
fn lane_mask(d: &mut Decode<'_, '_>, maskless: bool, i: usize) -> Parsed<u32> {
    if maskless {
        Ok(EXECUTING)
    } else {
        d.src(i, Type::B32)
    }
}

/// Decodes `shfl.sync.mode.b32 d|p, a, b, c, mask`, and the form without `.sync` and mask.
fn shfl(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let maskless = is_maskless(d)?;
    let mode = d.require(&[
        (".up", ShuffleMode::Up),
        (".down", ShuffleMode::Down),
        (".bfly", ShuffleMode::Bfly),
        (".idx", ShuffleMode::Idx),
    ])?;
    d.ty(&[Type::B32])?;

    // Targets below sm_70 execute all lanes of a warp together, so the old form has no mask.
    let operands = 5 - usize::from(maskless);
    d.operands(operands, operands)?;
    let (to, p) = d.dst_pair(0, Type::B32)?;
    let a = d.src(1, Type::B32)?;
    let b = d.src(2, Type::B32)?;
    let c = d.src(3, Type::B32)?;
    let mask = lane_mask(d, maskless, 4)?;
    Ok(Op::Exchange(Exchange::Shuffle(Box::new(Shuffle {
        mode,
        d: to,
        p,
        a,
        b,
        c,
        mask,
    }))))
}

fn vote(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    // ptxas accepts the two suffixes in either order.
    let first = d.eat(".sync");
    let mode = d.require(&[
        (".all", Vote::All),
        (".any", Vote::Any),
        (".uni", Vote::Uni),
        (".ballot", Vote::Ballot),
    ])?;
    let maskless = !first && is_maskless(d)?;
    let ty = d.ty(if mode == Vote::Ballot {
        &[Type::B32]
    } else {
        &[Type::Pred]
    })?;
    let operands = 3 - usize::from(maskless);
    d.operands(operands, operands)?;
    Ok(Op::Exchange(Exchange::Vote {
        mode,
        d: d.dst(0, ty)?,
        pred: d.pred(1)?,
        mask: lane_mask(d, maskless, 2)?,
    }))
}

fn matches(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let all = d.require(&[(".any", false), (".all", true)])?;
    d.require(&[(".sync", ())])?;
    let ty = d.ty(&[Type::B32, Type::B64])?;
    d.operands(3, 3)?;
    let (to, p) = d.dst_pair(0, Type::B32)?;
    if p.is_some() && !all {
        return d.error("match.any has no predicate destination");
    }

    // The instruction always writes a register, so `_` becomes one that is never read.
    let to = to.unwrap_or_else(|| d.scratch(Bank::W32));
    Ok(Op::Exchange(Exchange::Match {
        all,
        d: to,
        p,
        a: d.src(1, ty)?,
        wide: ty == Type::B64,
        mask: d.src(2, Type::B32)?,
    }))
}

fn redux(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".sync", ())])?;
    let op = d.require(&[
        (".add", 0),
        (".min", 1),
        (".max", 2),
        (".and", 3),
        (".or", 4),
        (".xor", 5),
    ])?;
    let ty = d.ty(if op < 3 {
        &[Type::U32, Type::S32]
    } else {
        &[Type::B32]
    })?;
    let f: fn(u32, u32) -> u32 = match (op, ty) {
        // Two's complement sums do not depend on the sign. Minimum and maximum do.
        (0, _) => u32::wrapping_add,
        (1, Type::S32) => |a, b| (a as i32).min(b as i32) as u32,
        (1, _) => u32::min,
        (2, Type::S32) => |a, b| (a as i32).max(b as i32) as u32,
        (2, _) => u32::max,
        (3, _) => |a, b| a & b,
        (4, _) => |a, b| a | b,
        _ => |a, b| a ^ b,
    };
    d.operands(3, 3)?;
    Ok(Op::Exchange(Exchange::Redux {
        f,
        d: d.dst(0, ty)?,
        a: d.src(1, ty)?,
        mask: d.src(2, Type::B32)?,
    }))
}

fn activemask(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.ty(&[Type::B32])?;
    d.operands(1, 1)?;
    Ok(Op::ActiveMask {
        d: d.dst(0, Type::B32)?,
    })
}

fn elect(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".sync", ())])?;
    d.operands(2, 2)?;
    let (to, p) = d.dst_pair(0, Type::B32)?;
    match p {
        Some(p) => Ok(Op::Exchange(Exchange::Elect {
            d: to,
            p,
            mask: d.src(1, Type::B32)?,
        })),
        None => d.error("elect.sync writes `d|p`: the predicate is missing"),
    }
}
