//! Textures and surfaces (manual, "Texture Instructions" and "Surface Instructions"), by a handle in a 64-bit register.
//!
//! Textures are fetched in unified mode, in which the sampler belongs to the texture. There are no mipmaps: whatever level
//! or gradients say, the texels are those of the image. Its texels are always resident.

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

/// The coordinates that count.
fn dimensions(geometry: Geometry) -> usize {
    match geometry {
        Geometry::D1 | Geometry::A1 => 1,
        Geometry::D2 | Geometry::A2 => 2,
        Geometry::D3 | Geometry::Cube | Geometry::ACube => 3,
    }
}

/// Whether a layer's index is before the coordinates.
fn layered(geometry: Geometry) -> bool {
    matches!(geometry, Geometry::A1 | Geometry::A2 | Geometry::ACube)
}

/// `[handle, {coordinates}]`, where a third coordinate is followed by one that nobody looks at.
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

/// The register that holds a handle, or the address of a reference that does.
fn of_name<'a>(d: &mut Decode<'_, 'a>, name: &'a str, at: At) -> Parsed<u32> {
    match d.register(name, at) {
        None => d
            .variable(name, 0, true)
            .map_or_else(|| d.named(name, at, Type::B64), Ok),
        Some(_) => d.named(name, at, Type::B64),
    }
}
