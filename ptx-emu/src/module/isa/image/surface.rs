//! `suld`, `sust` and `sured`.

use crate::module::code::image::{
    CoordinateType, ImageGeometry, OfImage, OutsideAccess, SurfaceAccess, SurfaceAct,
};
use crate::module::code::{
    AccessOrdering, Address, Atomic, InstructionSpace, MemoryScope, Op, RegisterOperand, Transfer,
    Unwritten, Width,
};
use crate::module::context::operands::Decode;
use crate::module::isa::image::place;
use crate::module::isa::memory::atomic::update_of;
use crate::syntax::ast::{OperandKind, ParsedOperand};
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error};

const GEOMETRIES: &[(&str, ImageGeometry)] = &[
    (".1d", ImageGeometry::D1),
    (".2d", ImageGeometry::D2),
    (".3d", ImageGeometry::D3),
    (".a1d", ImageGeometry::A1),
    (".a2d", ImageGeometry::A2),
];

const OUTSIDE: &[(&str, OutsideAccess)] = &[
    (".trap", OutsideAccess::Trap),
    (".clamp", OutsideAccess::Clamp),
    (".zero", OutsideAccess::Zero),
];

const TYPES: &[Type] = &[Type::B8, Type::B16, Type::B32, Type::B64];

/// The meaning of the suffixes.
struct SurfaceSuffixes {
    geometry: ImageGeometry,
    count: usize,
    ty: Type,
    outside: OutsideAccess,
}

/// Decodes `.b.geom{.cop}{.vec}.type.outside`.
fn form(d: &mut Decode<'_, '_>, caches: &[(&str, ())]) -> Parsed<SurfaceSuffixes> {
    d.require(&[(".b", ())])?;
    let geometry = d.require(GEOMETRIES)?;
    d.choose(caches);
    let count = d.choose(&[(".v2", 2), (".v4", 4)]).unwrap_or(1);
    let ty = d.ty(TYPES)?;
    let outside = d.require(OUTSIDE)?;
    if count as u32 * ty.bytes() > 16 {
        return d.unknown_form(format!("`{}`: a vector has at most 16 bytes", d.name()));
    }

    d.operands(2, 2)?;
    Ok(SurfaceSuffixes {
        geometry,
        count,
        ty,
        outside,
    })
}

/// Returns the elements of a vector in braces, or one register.
fn elements<'a>(d: &Decode<'_, 'a>, i: usize, count: usize) -> Parsed<&'a [ParsedOperand<'a>]> {
    let elements = d.elements(i);
    if elements.len() == count {
        Ok(elements)
    } else {
        error(
            d.operand(i).at,
            format!("`{}` needs a vector of {count} elements", d.name()),
        )
    }
}

/// Decodes `suld.b.geom{.cop}{.vec}.type.outside d, [a, b]`.
pub(crate) fn suld(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let form = form(d, &[(".ca", ()), (".cg", ()), (".cs", ()), (".cv", ())])?;
    let mut regs = Vec::new();
    for element in elements(d, 0, form.count)? {
        regs.push(match element.kind {
            OperandKind::Sink => None,
            _ => {
                let register = d.wider(element, form.ty)?;
                Some(RegisterOperand {
                    slot: register.slot,
                    bits: register.ty.bits(),
                })
            }
        });
    }

    access(d, &form, regs, 1)
}

/// Decodes `sust.b.geom{.cop}{.vec}.type.outside [a, b], c`.
pub(crate) fn sust(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let form = form(d, &[(".wb", ()), (".cg", ()), (".cs", ()), (".wt", ())])?;
    let mut regs = Vec::new();
    for element in elements(d, 1, form.count)? {
        regs.push(Some(match element.kind {
            OperandKind::Name(_) => {
                let register = d.wider(element, form.ty)?;
                RegisterOperand {
                    slot: register.slot,
                    bits: register.ty.bits(),
                }
            }
            _ => RegisterOperand {
                slot: d.element_src(element, form.ty)?,
                // The smallest registers have 16 bits, also for elements of 8 bits.
                bits: form.ty.bits().max(16),
            },
        }));
    }

    access(d, &form, regs, 0)
}

/// Decodes an access whose place is operand `at`.
fn access(
    d: &mut Decode<'_, '_>,
    form: &SurfaceSuffixes,
    regs: Vec<Option<RegisterOperand>>,
    at: usize,
) -> Parsed<Op> {
    let place = place::place(d, at, form.geometry, CoordinateType::Integer)?;

    // The handle stands in for the address. The address of each lane follows from the handle and
    // the coordinates during execution.
    let transfer = Transfer {
        space: InstructionSpace::Global,
        address: Address {
            slot: place.handle,
            wide: true,
            offset: 0,
        },
        width: Width {
            bytes: form.ty.bytes(),
            signed: false,
        },
        regs,
        read_only: false,
        unwritten: Unwritten::Fault,
        order: AccessOrdering::Weak,
        scope: MemoryScope::Device,
        site: d.site(),
    };
    let act = if at == 0 {
        SurfaceAct::Store(transfer)
    } else {
        SurfaceAct::Load(transfer)
    };
    Ok(Op::Image(Box::new(OfImage::Surface(SurfaceAccess {
        place,
        outside: form.outside,
        act,
    }))))
}

const OPERATIONS: &[(&str, &str)] = &[
    (".add", ".add"),
    (".min", ".min"),
    (".max", ".max"),
    (".and", ".and"),
    (".or", ".or"),
];

/// Decodes `sured.b.op.geom.ctype.outside [a, b], c`, and `sured.p.op.geom.b32.outside`, which
/// counts texels and uses their type.
pub(crate) fn sured(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let texels = d.require(&[(".b", false), (".p", true)])?;
    let op = d.require(OPERATIONS)?;
    let geometry = d.require(&GEOMETRIES[..3])?;
    let ty = if texels {
        d.ty(&[Type::B32])?
    } else {
        d.ty(&[Type::U32, Type::U64, Type::S32, Type::B32, Type::S64])?
    };
    let outside = d.require(OUTSIDE)?;
    d.operands(2, 2)?;
    let place = place::place(d, 0, geometry, CoordinateType::Integer)?;
    let [element] = elements(d, 1, 1)? else {
        return error(d.operand(1).at, "one register was expected");
    };

    let bits = if matches!(op, ".and" | ".or") {
        Type::B32
    } else {
        Type::U32
    };

    // `sured.p` uses the type of the texels, which is known only at run time. Both signs are
    // decoded here.
    let types = match (texels, bits) {
        (false, _) => [ty; 2],
        (true, Type::B32) => [Type::B32; 2],
        (true, _) => [Type::U32, Type::S32],
    };
    let [Some(unsigned), Some(signed)] = types.map(|ty| update_of(op, ty)) else {
        return d.error(format!("`{}` does not exist for {ty}", d.name()));
    };

    let b = RegisterOperand {
        slot: d.element_src(element, ty)?,
        bits: ty.bits(),
    };
    let address = Address {
        slot: place.handle,
        wide: true,
        offset: 0,
    };
    let site = d.site();
    let space = InstructionSpace::Global;
    let order = AccessOrdering::Relaxed;
    let scope = MemoryScope::Device;
    let of = |f| Atomic {
        space,
        address,
        bytes: ty.bytes(),
        f,
        d: None,
        b,
        c: None,
        high: None,
        order,
        scope,
        site,
    };
    let act = if texels {
        SurfaceAct::ReduceTexel([of(unsigned), of(signed)])
    } else {
        SurfaceAct::Reduce(of(unsigned))
    };
    Ok(Op::Image(Box::new(OfImage::Surface(SurfaceAccess {
        place,
        outside,
        act,
    }))))
}
