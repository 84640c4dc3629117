//! Bulk copies of tensors and out of shared memory (PTX ISA, "cp.async.bulk.tensor",
//! "cp.async.bulk"), and instructions that change tensor maps ("tensormap.replace").

use crate::module::code::asynchronous::{
    BulkStore, MapChange, OfMap, Reduction, TensorCopy, TensorPlace,
};
use crate::module::code::{InstructionSpace, Op, RegisterOperand};
use crate::module::context::operands::{Decode, Decoder};
use crate::module::registers::Bank;
use crate::module::tensor_map::{ElementKind, MapField};
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[("tensormap", tensormap)];

/// Decodes the forms of `cp.async.bulk` except contiguous copies to shared memory.
pub(crate) fn bulk(d: &mut Decode<'_, '_>) -> Parsed<Option<Op>> {
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
            Ok(Some(Op::BulkWait {
                keep: d.immediate(0, 1 << 20)? as u32,
                read,
            }))
        }
        Some(".global") => store(d).map(Some),
        _ => Ok(None),
    }
}

/// Decodes `cp.async.bulk.global.shared::cta.bulk_group{.L2::cache_hint} [d], [s], n{, policy}`.
fn store(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".global");
    d.require(&[(".shared::cta", ())])?;
    d.require(&[(".bulk_group", ())])?;
    let n = 3 + hint(d)?;
    d.operands(n, n)?;
    let to = d.address(0, false)?;
    let from = d.address(1, true)?;
    Ok(Op::BulkStore(Box::new(BulkStore {
        to,
        from,
        bytes: d.src(2, Type::U32)?,
        reduction: None,
    })))
}

/// Decodes `cp.reduce.async.bulk.global.shared::cta.bulk_group{.L2::cache_hint}.op{.noftz}.type
/// [d], [s], n{, policy}`.
pub(crate) fn reduce(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let bulk = d.eat(".async") && d.eat(".bulk");
    if bulk && d.eat(".tensor") {
        return reduce_tensor(d);
    }

    let known = bulk
        && [".global", ".shared::cta", ".bulk_group"]
            .iter()
            .all(|suffix| d.eat(suffix));
    if !known {
        return d.unsupported(d.name());
    }

    let hinted = hint(d)?;

    // A bulk reduction applies the operation of `red` to each element, so both share a table.
    let (ty, f) = crate::module::isa::memory::atomic::reduction(d)?;
    d.operands(3 + hinted, 3 + hinted)?;
    let to = d.address(0, false)?;
    let from = d.address(1, true)?;
    let reduction = Some(Reduction {
        bytes: ty.bytes(),
        f,
    });
    Ok(Op::BulkStore(Box::new(BulkStore {
        to,
        from,
        bytes: d.src(2, Type::U32)?,
        reduction,
    })))
}

fn hint(d: &mut Decode<'_, '_>) -> Parsed<usize> {
    if !d.eat(".L2::cache_hint") {
        return Ok(0);
    }
    let last = d.inst.operands.len().saturating_sub(1);
    d.src(last, Type::B64)?;
    Ok(1)
}

/// Decodes a tensor load or store.
///
/// -
/// `cp.async.bulk.tensor.dim.shared::cluster.global{.tile}.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint}
/// [d], [map, {c}], [bar]{, blocks}{, policy}`
/// - `cp.async.bulk.tensor.dim.global.shared::cta{.tile}.bulk_group{.L2::cache_hint} [map, {c}],
///   [s]{, policy}`
fn tensor(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.eat(".tensor");
    let dimensions = d.require(DIMENSIONS)?;
    if d.eat(".global") {
        d.require(&[(".shared::cta", ())])?;
        d.eat(".tile");
        if !d.eat(".bulk_group") {
            return d.unsupported(d.name());
        }
        let n = 2 + hint(d)?;
        d.operands(n, n)?;
        return stored(d, dimensions, None);
    }

    let into = d
        .choose(&[(".shared::cluster", ()), (".shared::cta", ())])
        .is_some();
    let known = into && d.eat(".global") && {
        d.eat(".tile");
        d.eat(".mbarrier::complete_tx::bytes")
    };
    let several = d.eat(".multicast::cluster");
    let n = 3 + usize::from(several) + hint(d)?;

    // Forms of the manual that are not emulated, such as `.im2col` and `.cta_group`, leave suffixes
    // behind here.
    if !known || d.peek().is_some() {
        return d.unsupported(d.name());
    }

    d.operands(n, n)?;
    let at = place(d, 1, dimensions)?;
    let blocks = if several {
        Some(d.src(3, Type::U16)?)
    } else {
        None
    };
    let shared = d.address(0, true)?;
    let barrier = Some(d.address(2, true)?);
    Ok(Op::TensorLoad(Box::new(TensorCopy {
        at,
        shared,
        barrier,
        blocks,
        reduction: None,
    })))
}

/// Decodes the operands of a store or a reduction: `[map, {c}], [s]`.
fn stored(
    d: &mut Decode<'_, '_>,
    dimensions: usize,
    reduction: Option<&'static str>,
) -> Parsed<Op> {
    let at = place(d, 0, dimensions)?;
    let shared = d.address(1, true)?;
    Ok(Op::TensorStore(Box::new(TensorCopy {
        at,
        shared,
        barrier: None,
        blocks: None,
        reduction,
    })))
}

const REDUCTIONS: &[(&str, &str)] = &[
    (".add", ".add"),
    (".min", ".min"),
    (".max", ".max"),
    (".inc", ".inc"),
    (".dec", ".dec"),
    (".and", ".and"),
    (".or", ".or"),
    (".xor", ".xor"),
];

const DIMENSIONS: &[(&str, usize)] = &[(".1d", 1), (".2d", 2), (".3d", 3), (".4d", 4), (".5d", 5)];

/// Decodes
/// `cp.reduce.async.bulk.tensor.dim.global.shared::cta.op{.tile}.bulk_group{.L2::cache_hint} [map,
/// {c}], [s]{, policy}`.
fn reduce_tensor(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let dimensions = d.require(DIMENSIONS)?;
    d.require(&[(".global", ())])?;
    d.require(&[(".shared::cta", ())])?;
    let op = d.require(REDUCTIONS)?;
    d.eat(".tile");
    let known = d.eat(".bulk_group");
    let n = 2 + hint(d)?;
    if !known || d.peek().is_some() {
        return d.unsupported(d.name());
    }

    d.operands(n, n)?;
    stored(d, dimensions, Some(op))
}

/// Decodes `cp.async.bulk.prefetch.tensor.dim.L2.global{.tile}{.L2::cache_hint} [map, {c}]{,
/// policy}`.
pub(crate) fn prefetch(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let dimensions = d.require(DIMENSIONS)?;
    d.require(&[(".L2", ())])?;
    d.require(&[(".global", ())])?;
    d.eat(".tile");
    let n = 1 + hint(d)?;
    if d.peek().is_some() {
        return d.unsupported(d.name());
    }

    d.operands(n, n)?;
    Ok(Op::TensorMap(Box::new(OfMap::Prefetch(place(
        d, 0, dimensions,
    )?))))
}

/// Decodes `[map, {x, y}]`: the slots of the address of the map and of the coordinates.
fn place(d: &mut Decode<'_, '_>, i: usize, dimensions: usize) -> Parsed<TensorPlace> {
    let o = d.operand(i);
    let OperandKind::Tensor(map, coordinates) = &o.kind else {
        return error(o.at, "a place in a tensor, [map, {x, y}], was expected");
    };

    if coordinates.len() != dimensions {
        let n = coordinates.len();
        return error(
            o.at,
            format!("{dimensions} coordinates were expected, not {n}"),
        );
    }

    let place: Parsed<Vec<u32>> = coordinates
        .iter()
        .map(|c| d.element_src(c, Type::S32))
        .collect();
    Ok(TensorPlace {
        map: d.named(map, o.at, Type::B64)?,
        place: place?,
    })
}

/// A field as the manual names it: of the whole map, of a dimension, or with numbered values.
#[derive(Clone, Copy)]
enum NamedField {
    Whole(MapField, Type),
    Each(fn(usize) -> MapField, u64, Type),
    Number(MapField, &'static [u32]),
}

/// The size and the kind of each element type, in the order of the table in the manual.
const ELEMENTS: &[u32] = {
    use ElementKind::{BFloat, Float, Signed, Unsigned};
    const fn of(bytes: u32, kind: ElementKind) -> u32 {
        bytes | (kind as u32) << 8
    }
    &[
        of(1, Unsigned),
        of(2, Unsigned),
        of(4, Unsigned),
        of(4, Signed),
        of(8, Unsigned),
        of(8, Signed),
        of(2, Float),
        of(4, Float),
        of(4, Float),
        of(8, Float),
        of(2, BFloat),
        of(4, Float),
        of(4, Float),
    ]
};

const FIELDS: &[(&str, NamedField)] = &[
    (
        ".global_address",
        NamedField::Whole(MapField::Address, Type::B64),
    ),
    (".rank", NamedField::Whole(MapField::Rank, Type::B32)),
    (".box_dim", NamedField::Each(MapField::Boxed, 4, Type::B32)),
    (".global_dim", NamedField::Each(MapField::Dim, 4, Type::B32)),
    (
        ".global_stride",
        NamedField::Each(MapField::Stride, 3, Type::B64),
    ),
    (
        ".element_stride",
        NamedField::Each(|_| MapField::Only(1), 4, Type::B32),
    ),
    (".elemtype", NamedField::Number(MapField::Element, ELEMENTS)),
    (
        ".interleave_layout",
        NamedField::Number(MapField::Only(0), &[0, 1, 2]),
    ),
    (
        ".swizzle_mode",
        NamedField::Number(MapField::Swizzle, &[0, 32, 64, 128]),
    ),
    (
        ".swizzle_atomicity",
        NamedField::Number(MapField::Only(0), &[0, 1, 2, 3]),
    ),
    (".fill_mode", NamedField::Number(MapField::Only(0), &[0, 1])),
];

/// Decodes `tensormap.replace.tile.field{.space}.b1024.type [a], {index,} value`, and
/// `tensormap.cp_fenceproxy`.
fn tensormap(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if d.require(&[(".replace", false), (".cp_fenceproxy", true)])? {
        return map_copy(d);
    }

    d.require(&[(".tile", ())])?;
    let field = d.require(FIELDS)?;
    let spaces = [
        (".global", InstructionSpace::Global),
        (".shared::cta", InstructionSpace::Shared),
    ];
    let space = d.choose(&spaces).unwrap_or(InstructionSpace::Generic);
    d.require(&[(".b1024", ())])?;
    let ty = match field {
        NamedField::Whole(_, ty) | NamedField::Each(.., ty) => ty,
        NamedField::Number(..) => Type::B32,
    };
    d.ty(&[ty])?;
    let (field, value) = match field {
        NamedField::Whole(field, _) => {
            d.operands(2, 2)?;
            (field, d.word(1, ty)?)
        }
        NamedField::Each(field, most, _) => {
            d.operands(3, 3)?;
            (field(d.immediate(1, most)? as usize), d.word(2, ty)?)
        }
        // The operand is a code of the manual. The map stores the meaning of the code, for example
        // a swizzle in bytes.
        NamedField::Number(field, values) => {
            d.operands(2, 2)?;
            let value = values[d.immediate(1, values.len() as u64 - 1)? as usize];
            (
                field,
                RegisterOperand {
                    slot: d.literal(Bank::W32, value.into()),
                    bits: 32,
                },
            )
        }
    };
    let address = d.address(0, space == InstructionSpace::Shared)?;
    Ok(Op::TensorMap(Box::new(OfMap::Change(MapChange {
        space,
        address,
        field,
        value,
    }))))
}

const SCOPES: &[(&str, ())] = &[(".cta", ()), (".cluster", ()), (".gpu", ()), (".sys", ())];

/// Decodes
/// `tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [to],
/// [from], 128` after its first suffix.
fn map_copy(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    for suffix in [".global", ".shared::cta", ".tensormap::generic", ".release"] {
        d.require(&[(suffix, ())])?;
    }

    d.require(SCOPES)?;
    d.require(&[(".sync", ())])?;
    d.require(&[(".aligned", ())])?;
    d.operands(3, 3)?;
    whole_map(d, 2)?;
    Ok(Op::TensorMap(Box::new(OfMap::Copy([
        d.address(0, false)?,
        d.address(1, true)?,
    ]))))
}

/// Decodes `fence.proxy.tensormap::generic.acquire.scope [map], 128`, and `.release.scope`, which
/// orders earlier accesses.
pub(crate) fn fence(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".proxy", ())])?;
    d.require(&[(".tensormap::generic", ())])?;
    let acquires = d.require(&[(".acquire", true), (".release", false)])?;
    d.require(SCOPES)?;
    if !acquires {
        d.operands(0, 0)?;
        return Ok(Op::Nothing);
    }

    d.operands(2, 2)?;
    whole_map(d, 1)?;
    Ok(Op::TensorMap(Box::new(OfMap::Fence(d.address(0, false)?))))
}

/// Checks that an operand is the size of a tensor map.
fn whole_map(d: &Decode<'_, '_>, i: usize) -> Parsed<()> {
    match d.immediate(i, 128)? {
        128 => Ok(()),
        _ => error(
            d.operand(i).at,
            "128, the size of a tensor map, was expected",
        ),
    }
}
