//! Clusters: addresses in other blocks and the barrier of all (manual, "mapa", "barrier.cluster").

use super::Decoder;
use crate::code::Op;
use crate::decode::Decode;
use crate::parse::Parsed;
use crate::parse::types::Type;

pub(super) const DECODERS: &[(&str, Decoder)] = &[("mapa", mapa)];

/// `mapa.shared::cluster.u32 d, a, rank`
fn mapa(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if d.name() != "mapa.shared::cluster.u32" {
        return d.error(format!("unsupported in ptx-emu: {}", d.name()));
    }
    d.skip();
    d.operands(3, 3)?;
    Ok(Op::MapAddress { d: d.dst(0, Type::U32)?, a: d.src(1, Type::U32)?, rank: d.src(2, Type::U32)? })
}

/// `barrier.cluster.arrive{.release, .relaxed}{.aligned}` and `barrier.cluster.wait{.acquire}{.aligned}`, the opcode
/// consumed.
pub(super) fn barrier(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".cluster");
    let waits = d.require(&[(".arrive", false), (".wait", true)])?;
    let releases = match waits {
        true => d.eat(".acquire"),
        false => d.choose(&[(".release", true), (".relaxed", false)]).unwrap_or(true),
    };
    d.eat(".aligned");
    d.operands(0, 0)?;
    Ok(if waits { Op::ClusterWait } else { Op::ClusterArrive { releases } })
}
