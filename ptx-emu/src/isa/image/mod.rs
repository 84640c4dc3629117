//! Textures and surfaces (PTX ISA, "Texture Instructions", "Surface Instructions"), selected by a
//! handle in a 64-bit register.
//!
//! Textures are fetched in unified mode, in which the sampler belongs to the texture. There are no
//! mipmaps, so levels and gradients have no effect. Texels are always resident.

mod query;
mod surface;
mod texture;

use super::Decoder;
use crate::decode::Decode;
use crate::image_code::{CoordinateType, Geometry, ImagePlace};
use crate::parse::ast::OperandKind;
use crate::parse::types::Type;
use crate::parse::{At, Parsed, error};

pub(super) const DECODERS: &[(&str, Decoder)] = &[
    ("tex", texture::tex),
    ("tld4", texture::tld4),
    ("txq", query::txq),
    ("suld", surface::suld),
    ("sust", surface::sust),
    ("sured", surface::sured),
    ("suq", query::suq),
];

/// Returns the number of coordinates.
fn dimensions(geometry: Geometry) -> usize {
    match geometry {
        Geometry::D1 | Geometry::A1 => 1,
        Geometry::D2 | Geometry::A2 => 2,
        Geometry::D3 | Geometry::Cube | Geometry::ACube => 3,
    }
}

/// Returns true if the index of a layer precedes the coordinates.
fn layered(geometry: Geometry) -> bool {
    matches!(geometry, Geometry::A1 | Geometry::A2 | Geometry::ACube)
}

/// Decodes `[handle, {coordinates}]`. A third coordinate is followed by an unused one.
fn place(
    d: &mut Decode<'_, '_>,
    i: usize,
    geometry: Geometry,
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
fn of_name<'a>(d: &mut Decode<'_, 'a>, name: &'a str, at: At) -> Parsed<u32> {
    match d.register(name, at) {
        None => d
            .variable(name, 0, true)
            .map_or_else(|| d.named(name, at, Type::B64), Ok),
        Some(_) => d.named(name, at, Type::B64),
    }
}
