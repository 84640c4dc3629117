//! Cache hints, events for tools, and the block of an address (PTX ISA, "Data Movement and
//! Conversion Instructions", "Miscellaneous Instructions").

use crate::module::code::{
    AccessOrdering, Address, InstructionSpace, MemoryScope, Op, RegisterOperand, Transfer,
    Unwritten, Width,
};
use crate::module::context::operands::{Decode, Decoder};
use crate::module::registers::Bank;
use crate::syntax::Parsed;
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("applypriority", applypriority),
    ("discard", discard),
    ("pmevent", pmevent),
    ("brkpt", brkpt),
    ("getctarank", getctarank),
];

/// Decodes `applypriority{.global}.L2::evict_normal [a], 128`.
fn applypriority(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".global");
    d.require(&[(".L2::evict_normal", ())])?;
    d.operands(2, 2)?;
    if d.immediate(1, 128)? != 128 {
        return d.error("applypriority is for 128 bytes");
    }
    d.address(0, false)?;
    Ok(Op::Nothing)
}

/// The number of bytes that `discard` covers.
const DISCARDED: u32 = 128;
/// The contents of discarded words. No kernel may rely on them.
const NOISE: u64 = 0xd15c_a4de_d15c_a4de;

/// Decodes `discard{.global}.L2 [a], 128`, which is an ordinary store of an unspecified value (PTX
/// ISA, "discard").
fn discard(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let space = if d.eat(".global") {
        InstructionSpace::Global
    } else {
        InstructionSpace::Generic
    };
    d.require(&[(".L2", ())])?;
    d.operands(2, 2)?;
    if d.immediate(1, DISCARDED.into())? != u64::from(DISCARDED) {
        return d.error("discard is for 128 bytes");
    }

    let address = d.address(0, false)?;
    let noise = RegisterOperand {
        slot: d.literal(Bank::W64, NOISE),
        bits: 64,
    };

    // The 128 bytes are two stores of eight 64-bit registers each.
    let half = |site: u32, offset: i64| Transfer {
        space,
        address: Address {
            offset: address.offset + offset,
            ..address
        },
        width: Width {
            bytes: 8,
            signed: false,
        },
        regs: vec![Some(noise); DISCARDED as usize / 16],
        read_only: false,
        unwritten: Unwritten::Fault,
        order: AccessOrdering::Weak,
        scope: MemoryScope::Block,
        site,
    };
    Ok(Op::Discard(Box::new([
        half(d.site(), 0),
        half(d.site(), i64::from(DISCARDED / 2)),
    ])))
}

/// Decodes `pmevent`. There are no profiler counters here.
fn pmevent(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let most = if d.eat(".mask") { 0xffff } else { 15 };
    d.operands(1, 1)?;
    d.immediate(0, most)?;
    Ok(Op::Nothing)
}

/// Decodes `brkpt`. Without a debugger it ends the launch, as `trap` does.
fn brkpt(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.operands(0, 0)?;
    Ok(Op::Trap)
}

/// Decodes `getctarank{.shared::cluster}.type d, a`.
fn getctarank(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let space = if d.eat(".shared::cluster") {
        InstructionSpace::Cluster
    } else {
        InstructionSpace::Generic
    };
    let ty = d.ty(&[Type::U32, Type::U64])?;
    let wide = ty == Type::U64;
    d.operands(2, 2)?;

    // The name of a variable stands for its address, so variables are tried before registers.
    let variable = match d.operand(1).kind {
        OperandKind::Name(name) => d.variable(name, 0, wide),
        OperandKind::Sum(name, offset) => d.variable(name, offset, wide),
        _ => None,
    };
    let slot = match variable {
        Some(slot) => slot,
        None => d.src(1, ty)?,
    };
    let address = Address {
        slot,
        wide,
        offset: 0,
    };
    Ok(Op::ClusterRank(Box::new((
        space,
        address,
        d.dst(0, Type::U32)?,
    ))))
}
