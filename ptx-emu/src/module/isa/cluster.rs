//! Clusters: addresses in other blocks, and the cluster barrier (PTX ISA, "mapa",
//! "barrier.cluster").

use crate::module::code::Op;
use crate::module::context::operands::{Decode, Decoder};
use crate::syntax::Parsed;
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;

pub(crate) const DECODERS: &[(&str, Decoder)] = &[("mapa", mapa)];

/// Decodes `mapa{.shared::cluster}.type d, a, rank`, where `a` is an address or a variable.
fn mapa(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".shared::cluster");
    let ty = d.ty(&[Type::U32, Type::U64])?;
    let wide = ty == Type::U64;
    d.operands(3, 3)?;

    // The name of a variable stands for its address, so variables are tried before registers.
    let variable = match d.operand(1).kind {
        OperandKind::Name(name) => d.variable(name, 0, wide),
        OperandKind::Sum(name, offset) => d.variable(name, offset, wide),
        _ => None,
    };
    let a = match variable {
        Some(slot) => slot,
        None => d.src(1, ty)?,
    };
    Ok(Op::MapAddress {
        d: d.dst(0, ty)?,
        a,
        rank: d.src(2, Type::U32)?,
        wide,
    })
}

/// Decodes `barrier.cluster.arrive{.release, .relaxed}{.aligned}` and
/// `barrier.cluster.wait{.acquire}{.aligned}` after the opcode.
pub(crate) fn barrier(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".cluster");
    let waits = d.require(&[(".arrive", false), (".wait", true)])?;
    let releases = if waits {
        d.eat(".acquire")
    } else {
        d.choose(&[(".release", true), (".relaxed", false)])
            .unwrap_or(true)
    };
    let aligned = d.eat(".aligned");
    d.operands(0, 0)?;
    Ok(if waits {
        Op::ClusterWait { aligned }
    } else {
        Op::ClusterArrive { releases, aligned }
    })
}
