//! Operands that texture and surface instructions share.

use crate::module::code::image::{CoordinateType, ImageGeometry, ImagePlace};
use crate::module::context::operands::Decode;
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;
use crate::syntax::{At, Parsed, error};

/// Returns the number of coordinates.
pub(crate) fn dimensions(geometry: ImageGeometry) -> usize {
    match geometry {
        ImageGeometry::D1 | ImageGeometry::A1 => 1,
        ImageGeometry::D2 | ImageGeometry::A2 => 2,
        ImageGeometry::D3 | ImageGeometry::Cube | ImageGeometry::ACube => 3,
    }
}

/// Returns true if the index of a layer precedes the coordinates.
pub(crate) fn layered(geometry: ImageGeometry) -> bool {
    matches!(
        geometry,
        ImageGeometry::A1 | ImageGeometry::A2 | ImageGeometry::ACube
    )
}

/// Decodes `[handle, {coordinates}]`. A third coordinate is followed by an unused one.
pub(crate) fn place(
    d: &mut Decode<'_, '_>,
    i: usize,
    geometry: ImageGeometry,
    ty: CoordinateType,
) -> Parsed<ImagePlace> {
    let o = d.operand(i);
    let OperandKind::Tensor(handle, all) = &o.kind else {
        return error(
            o.at,
            "a handle and coordinates, [handle, {x, ..}], were expected",
        );
    };

    let before = usize::from(layered(geometry));
    let counting = before + dimensions(geometry);

    // Coordinates are a vector of 1, 2 or 4 elements, so three coordinates have an unused fourth
    // one.
    let wanted = if counting == 3 { 4 } else { counting };
    if all.len() != wanted {
        return error(
            o.at,
            format!(
                "`{}` takes {wanted} coordinates, not {}",
                d.name(),
                all.len()
            ),
        );
    }

    let of = if ty == CoordinateType::Float {
        Type::F32
    } else {
        Type::S32
    };
    let layer = if before == 1 {
        Some(d.element_src(&all[0], Type::U32)?)
    } else {
        None
    };
    let at: Parsed<Vec<u32>> = all[before..counting]
        .iter()
        .map(|c| d.element_src(c, of))
        .collect();
    Ok(ImagePlace {
        geometry,
        handle: of_name(d, handle, o.at)?,
        layer,
        at: at?,
    })
}

/// Returns the register that contains a handle, or the address of a reference that contains it.
pub(crate) fn of_name<'a>(d: &mut Decode<'_, 'a>, name: &'a str, at: At) -> Parsed<u32> {
    match d.register(name, at) {
        None => d
            .variable(name, 0, true)
            .map_or_else(|| d.named(name, at, Type::B64), Ok),
        Some(_) => d.named(name, at, Type::B64),
    }
}
