//! Asynchronous copies and mbarriers (PTX ISA, "Data Movement and Conversion Instructions:
//! Asynchronous copy", "Parallel Synchronization and Communication Instructions: mbarrier").

use crate::module::code::{
    BulkCopy, InstructionSpace, MbarrierInstruction, MbarrierOperation, MbarrierWait, Op, Phase,
    ThreadCopy,
};
use crate::module::context::operands::{Decode, Decoder};
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error, unsupported};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[("mbarrier", mbarrier), ("cp", cp)];

/// The form that the suffix after `mbarrier` selects.
#[derive(Clone, Copy)]
enum CopyForm {
    Init,
    Inval,
    ExpectTx,
    Arrive,
    ArriveDrop,
    TestWait,
    TryWait,
}

fn mbarrier(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let forms = &[
        (".init", CopyForm::Init),
        (".inval", CopyForm::Inval),
        (".expect_tx", CopyForm::ExpectTx),
        (".arrive", CopyForm::Arrive),
        (".arrive_drop", CopyForm::ArriveDrop),
        (".test_wait", CopyForm::TestWait),
        (".try_wait", CopyForm::TryWait),
    ];
    let Some(form) = d.choose(forms) else {
        return d.unsupported(d.name());
    };
    match form {
        CopyForm::Init => {
            let space = place(d)?;
            d.operands(2, 2)?;
            // A literal count is checked here, because the error then has a place in the text even
            // if the code never runs.
            literal(d, 1, 1, MOST_COUNT)?;
            let operation = MbarrierOperation::Init {
                count: d.src(1, Type::U32)?,
            };
            change(d, space, 0, operation)
        }
        CopyForm::Inval => {
            let space = place(d)?;
            d.operands(1, 1)?;
            change(d, space, 0, MbarrierOperation::Inval)
        }
        CopyForm::ExpectTx => {
            semantics(d, ".relaxed");
            let space = place(d)?;
            d.operands(2, 2)?;
            let operation = MbarrierOperation::ExpectTx {
                bytes: d.src(1, Type::U32)?,
            };
            change(d, space, 0, operation)
        }
        CopyForm::Arrive => arrive(d, false),
        CopyForm::ArriveDrop => arrive(d, true),
        CopyForm::TestWait => wait(d, false),
        CopyForm::TryWait => wait(d, true),
    }
}

/// The maximum count of an mbarrier.
pub(crate) const MOST_COUNT: u64 = (1 << 20) - 1;

/// Decodes `{.sem.scope}`. Only the default creates the happens-before relation that is modeled.
fn semantics(d: &mut Decode<'_, '_>, default: &str) {
    if d.eat(default) {
        d.choose(&[(".cta", ()), (".cluster", ())]);
    }
}

/// Decodes `{.shared, .shared::cta, .shared::cluster}.b64`.
fn place(d: &mut Decode<'_, '_>) -> Parsed<InstructionSpace> {
    let spaces = [
        (".shared", InstructionSpace::Shared),
        (".shared::cta", InstructionSpace::Shared),
        (".shared::cluster", InstructionSpace::Cluster),
    ];
    let space = d.choose(&spaces).unwrap_or(InstructionSpace::Generic);
    d.ty(&[Type::B64])?;
    Ok(space)
}

/// Checks the range of an operand if it is a literal.
fn literal(d: &Decode<'_, '_>, i: usize, least: u64, most: u64) -> Parsed<()> {
    let o = d.operand(i);
    if matches!(o.kind, OperandKind::Number(_)) && d.immediate(i, most)? < least {
        error(
            o.at,
            format!("a number from {least} to {most} was expected"),
        )
    } else {
        Ok(())
    }
}

fn change(
    d: &mut Decode<'_, '_>,
    space: InstructionSpace,
    at: usize,
    operation: MbarrierOperation,
) -> Parsed<Op> {
    let address = d.address(at, space != InstructionSpace::Generic)?;
    Ok(Op::Mbarrier(Box::new(MbarrierInstruction {
        space,
        address,
        operation,
    })))
}

/// Decodes `mbarrier.arrive{_drop}{.expect_tx}{.noComplete}{.release.scope}{.shared}.b64 state,
/// [a]{, count | bytes}`.
fn arrive(d: &mut Decode<'_, '_>, drops: bool) -> Parsed<Op> {
    let expects = d.eat(".expect_tx");
    let completes = expects || !d.eat(".noComplete");
    semantics(d, ".release");
    let space = place(d)?;

    // With `.expect_tx` the third operand is a number of bytes, and without it an optional count.
    let n = d.operands(if expects || !completes { 3 } else { 2 }, 3)?;
    let state = match d.operand(0).kind {
        OperandKind::Sink => None,
        _ => Some(d.dst(0, Type::B64)?),
    };
    let last = if n == 3 {
        Some(d.src(2, Type::U32)?)
    } else {
        None
    };
    let (expect, count) = if expects { (last, None) } else { (None, last) };
    change(
        d,
        space,
        1,
        MbarrierOperation::Arrive {
            state,
            expect,
            count,
            drops,
            completes,
        },
    )
}

/// Returns true if an operand is a predicate register, negated or not.
fn is_predicate(d: &mut Decode<'_, '_>, i: usize) -> bool {
    let o = d.operand(i);
    match o.kind {
        OperandKind::Not(_) => true,
        OperandKind::Name(name) => d.register(name, o.at).is_some_and(|r| r.ty == Type::Pred),
        _ => false,
    }
}

/// Decodes `mbarrier.{test,try}_wait{.parity}{.acquire.scope}{.shared}.b64 p, [a], phase{, time}`.
fn wait(d: &mut Decode<'_, '_>, suspends: bool) -> Parsed<Op> {
    let parity = d.eat(".parity");
    semantics(d, ".acquire");
    let space = place(d)?;

    // The time hint of `try_wait` is checked but not used, because suspended time is not modeled.
    if d.operands(3, if suspends { 4 } else { 3 })? == 4 {
        d.src(3, Type::U32)?;
    }

    let p = match d.operand(0).kind {
        OperandKind::Sink => None,
        _ => Some(d.dst(0, Type::Pred)?),
    };
    let phase = if parity {
        literal(d, 2, 0, 1)?;
        Phase::Parity(d.src(2, Type::U32)?)
    } else {
        Phase::State(d.src(2, Type::B64)?)
    };
    let address = d.address(1, space != InstructionSpace::Generic)?;
    Ok(Op::MbarrierWait(Box::new(MbarrierWait {
        space,
        address,
        p,
        phase,
        suspends,
    })))
}

/// Decodes `fence.proxy.async{.space}` and `fence.mbarrier_init.release.cluster` after the opcode.
pub(crate) fn proxy_fence(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let name = d.name();
    match name.as_str() {
        // This form orders only accesses to global memory.
        "fence.proxy.async.global" => {
            d.skip();
            d.operands(0, 0)?;
            Ok(Op::Nothing)
        }
        "fence.proxy.async"
        | "fence.proxy.async.shared::cta"
        | "fence.proxy.async.shared::cluster"
        | "fence.mbarrier_init.release.cluster" => {
            d.skip();
            d.operands(0, 0)?;
            Ok(Op::ProxyFence {
                mbarriers: name.ends_with("cluster") && name.contains("init"),
            })
        }
        name if name.starts_with("fence.proxy.tensormap") => {
            crate::module::isa::async_copy::tensor::fence(d)
        }
        name => d.unsupported(name),
    }
}

fn cp(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if d.eat(".reduce") {
        return crate::module::isa::async_copy::tensor::reduce(d);
    }

    d.require(&[(".async", ())])?;
    if d.eat(".bulk") {
        return bulk(d);
    }

    match d.choose(&[
        (".ca", Single::Ca),
        (".cg", Single::Cg),
        (".mbarrier", Single::Arrives),
    ]) {
        Some(Single::Arrives) => copy_arrives(d),
        Some(cached) => single(d, cached == Single::Cg),
        None => group(d),
    }
}

/// The form that the suffix after `cp.async` selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Single {
    Ca,
    Cg,
    Arrives,
}

/// Decodes `cp.async.{ca,cg}.shared.global{.L2::cache_hint}{.L2::size} [d], [s], size{, source
/// size}{, policy}`.
fn single(d: &mut Decode<'_, '_>, cg: bool) -> Parsed<Op> {
    d.require(&[(".shared", ()), (".shared::cta", ())])?;
    d.require(&[(".global", ())])?;
    let hinted = d.eat(".L2::cache_hint");
    d.choose(&[(".L2::64B", ()), (".L2::128B", ()), (".L2::256B", ())]);
    let least = 3 + usize::from(hinted);
    let n = d.operands(least, least + 1)?;
    if hinted {
        d.src(n - 1, Type::B64)?;
    }

    // `.cg` bypasses L1, which works on 16 bytes only (PTX ISA, "cp.async").
    let bytes = d.immediate(2, 16)? as u32;
    if !matches!(bytes, 4 | 8 | 16) || cg && bytes != 16 {
        let sizes = if cg { "16" } else { "4, 8 or 16" };
        return d.error(format!("`{}` copies {sizes} bytes, not {bytes}", d.name()));
    }

    if n > least && is_predicate(d, 3) {
        return unsupported(
            d.inst.at,
            format!("{} with a predicate that ignores the source", d.name()),
        );
    }

    let source_bytes = if n > least {
        Some(d.src(3, Type::U32)?)
    } else {
        None
    };
    let to = d.address(0, true)?;
    let from = d.address(1, false)?;
    Ok(Op::Copy(Box::new(ThreadCopy {
        to,
        from,
        bytes,
        source_bytes,
    })))
}

/// Decodes `cp.async.commit_group`, `cp.async.wait_group n` and `cp.async.wait_all`.
fn group(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let forms = &[
        (".commit_group", None),
        (".wait_group", Some(false)),
        (".wait_all", Some(true)),
    ];
    let Some(form) = d.choose(forms) else {
        return d.unsupported(d.name());
    };

    let n = usize::from(form == Some(false));
    d.operands(n, n)?;
    Ok(match form {
        None => Op::CopyCommit,
        Some(true) => Op::CopyWait { keep: None },
        Some(false) => Op::CopyWait {
            keep: Some(d.immediate(0, 1 << 20)? as u32),
        },
    })
}

/// Decodes `cp.async.mbarrier.arrive{.noinc}{.shared}.b64 [a]`.
fn copy_arrives(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".arrive", ())])?;
    let more = !d.eat(".noinc");
    let space = place(d)?;
    d.operands(1, 1)?;
    Ok(Op::CopyArrives(Box::new((
        space,
        d.address(0, space != InstructionSpace::Generic)?,
        more,
    ))))
}

/// Decodes the forms of `cp.async.bulk` to shared memory, and its prefetch.
///
/// - `cp.async.bulk.dst.global.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint}
///   [d], [s], n, [bar]{, blocks}{, policy}`
/// - `cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [d], [s], n, [bar]`
/// - `cp.async.bulk.prefetch.L2.global{.L2::cache_hint} [s], n{, policy}`
fn bulk(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if let Some(op) = crate::module::isa::async_copy::tensor::bulk(d)? {
        return Ok(op);
    }

    let prefetches = d.eat(".prefetch");
    if prefetches && d.eat(".tensor") {
        return crate::module::isa::async_copy::tensor::prefetch(d);
    }

    let into = if prefetches {
        d.choose(&[(".L2", InstructionSpace::Global)])
    } else {
        d.choose(&[
            (".shared::cluster", InstructionSpace::Cluster),
            (".shared::cta", InstructionSpace::Shared),
        ])
    };
    let source = d.choose(&[
        (".global", InstructionSpace::Global),
        (".shared::cta", InstructionSpace::Shared),
    ]);

    // A copy within shared memory has the destination `.shared::cluster`, which includes the own
    // block.
    let between = source == Some(InstructionSpace::Shared);
    let possible = !between || !prefetches && into == Some(InstructionSpace::Cluster);
    let whole = into.is_some()
        && source.is_some()
        && possible
        && (prefetches || d.eat(".mbarrier::complete_tx::bytes"));
    let several = !prefetches && !between && d.eat(".multicast::cluster");
    let hinted = !between && d.eat(".L2::cache_hint");
    if !whole || d.peek().is_some() {
        return d.unsupported(d.name());
    }

    let (n, size) = if prefetches {
        (2, 1)
    } else {
        (4 + usize::from(several), 2)
    };
    d.operands(n + usize::from(hinted), n + usize::from(hinted))?;
    if hinted {
        d.src(n, Type::B64)?;
    }

    if matches!(d.operand(size).kind, OperandKind::Number(_)) {
        let bytes = d.immediate(size, u32::MAX.into())?;
        if bytes % 16 != 0 {
            return d.error(format!(
                "a bulk copy of {bytes} bytes: the size is a multiple of 16"
            ));
        }
    }

    if prefetches {
        return Ok(Op::BulkPrefetch(Box::new((
            d.address(0, false)?,
            d.src(1, Type::U32)?,
        ))));
    }

    Ok(Op::Bulk(Box::new(BulkCopy {
        to: d.address(0, true)?,
        from: d.address(1, between)?,
        bytes: d.src(2, Type::U32)?,
        barrier: d.address(3, true)?,
        source: if between {
            InstructionSpace::Shared
        } else {
            InstructionSpace::Global
        },
        blocks: if several {
            Some(d.src(4, Type::U16)?)
        } else {
            None
        },
    })))
}
