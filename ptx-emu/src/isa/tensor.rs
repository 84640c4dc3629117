//! Bulk copies of tensors, and out of shared memory (manual, "cp.async.bulk.tensor", "cp.async.bulk").

use crate::async_code::{BulkStore, Reduction, TensorCopy};
use crate::code::Op;
use crate::decode::Decode;
use crate::parse::ast::OperandKind;
use crate::parse::types::Type;
use crate::parse::{Parsed, error};

/// What follows `cp.async.bulk`, where it is not a copy to shared memory of bytes that lie one after another.
pub(super) fn bulk(d: &mut Decode<'_, '_>) -> Parsed<Option<Op>> {
    match d.peek() {
        Some(".tensor") => tensor(d).map(Some),
        Some(".commit_group") => {
            d.eat(".commit_group");
            d.operands(0, 0)?;
            Ok(Some(Op::BulkCommit))
        }
        Some(".wait_group") => {
            d.eat(".wait_group");
            let read = d.eat(".read");
            d.operands(1, 1)?;
            Ok(Some(Op::BulkWait { keep: d.immediate(0, 1 << 20)? as u32, read }))
        }
        Some(".global") => store(d).map(Some),
        _ => Ok(None),
    }
}

/// `cp.async.bulk.global.shared::cta.bulk_group{.L2::cache_hint} [d], [s], n{, policy}`
fn store(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".global");
    d.require(&[(".shared::cta", ())])?;
    d.require(&[(".bulk_group", ())])?;
    let n = 3 + hint(d)?;
    d.operands(n, n)?;
    let (to, from) = (d.address(0, false)?, d.address(1, true)?);
    Ok(Op::BulkStore(Box::new(BulkStore { to, from, bytes: d.src(2, Type::U32)?, reduction: None })))
}

/// `cp.reduce.async.bulk.global.shared::cta.bulk_group{.L2::cache_hint}.op{.noftz}.type [d], [s], n{, policy}`
pub(super) fn reduce(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let known =
        [".async", ".bulk", ".global", ".shared::cta", ".bulk_group"].iter().all(|suffix| d.eat(suffix));
    if !known {
        return d.error(format!("unsupported in ptx-emu: {}", d.name()));
    }
    let hinted = hint(d)?;
    let (ty, f) = super::atomic::reduction(d)?;
    d.operands(3 + hinted, 3 + hinted)?;
    let (to, from) = (d.address(0, false)?, d.address(1, true)?);
    let reduction = Some(Reduction { bytes: ty.bytes(), f });
    Ok(Op::BulkStore(Box::new(BulkStore { to, from, bytes: d.src(2, Type::U32)?, reduction })))
}

fn hint(d: &mut Decode<'_, '_>) -> Parsed<usize> {
    if !d.eat(".L2::cache_hint") {
        return Ok(0);
    }
    let last = d.inst.operands.len().saturating_sub(1);
    d.src(last, Type::B64)?;
    Ok(1)
}

/// `cp.async.bulk.tensor.dim.shared::cluster.global{.tile}.mbarrier::complete_tx::bytes{.multicast::cluster}
/// {.L2::cache_hint} [d], [map, {c}], [bar]{, blocks}{, policy}` and
/// `cp.async.bulk.tensor.dim.global.shared::cta{.tile}.bulk_group{.L2::cache_hint} [map, {c}], [s]{, policy}`
fn tensor(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".tensor");
    let dimensions = d.require(&[(".1d", 1), (".2d", 2), (".3d", 3), (".4d", 4), (".5d", 5)])?;
    if d.eat(".global") {
        d.require(&[(".shared::cta", ())])?;
        d.eat(".tile");
        if !d.eat(".bulk_group") {
            return d.error(format!("unsupported in ptx-emu: {}", d.name()));
        }
        let n = 2 + hint(d)?;
        d.operands(n, n)?;
        let (map, place) = place(d, 0, dimensions)?;
        let shared = d.address(1, true)?;
        return Ok(Op::TensorStore(Box::new(TensorCopy { map, place, shared, barrier: None, blocks: None })));
    }
    let into = d.choose(&[(".shared::cluster", ()), (".shared::cta", ())]).is_some();
    let known = into && d.eat(".global") && {
        d.eat(".tile");
        d.eat(".mbarrier::complete_tx::bytes")
    };
    let several = d.eat(".multicast::cluster");
    let n = 3 + usize::from(several) + hint(d)?;
    if !known || d.peek().is_some() {
        return d.error(format!("unsupported in ptx-emu: {}", d.name()));
    }
    d.operands(n, n)?;
    let (map, place) = place(d, 1, dimensions)?;
    let blocks = if several { Some(d.src(3, Type::U16)?) } else { None };
    let (shared, barrier) = (d.address(0, true)?, Some(d.address(2, true)?));
    Ok(Op::TensorLoad(Box::new(TensorCopy { map, place, shared, barrier, blocks })))
}

/// `[map, {x, y}]`: slots of the map's address and of the coordinates.
fn place(d: &mut Decode<'_, '_>, i: usize, dimensions: usize) -> Parsed<(u32, Vec<u32>)> {
    let o = d.operand(i);
    let OperandKind::Tensor(map, coordinates) = &o.kind else {
        return error(o.at, "a place in a tensor, [map, {x, y}], was expected");
    };
    if coordinates.len() != dimensions {
        let n = coordinates.len();
        return error(o.at, format!("{dimensions} coordinates were expected, not {n}"));
    }
    let place: Parsed<Vec<u32>> = coordinates.iter().map(|c| d.element_src(c, Type::S32)).collect();
    Ok((d.named(map, o.at, Type::B64)?, place?))
}
