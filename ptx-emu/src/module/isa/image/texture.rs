//! `tex` and `tld4`.

use crate::module::code::Op;
use crate::module::code::image::{CoordinateType, Fetch, ImageGeometry, OfImage};
use crate::module::context::operands::Decode;
use crate::module::isa::image::place;
use crate::module::isa::image::place::{dimensions, layered};
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error, unsupported};

/// The operands of a fetch after the destination and the place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FetchLevel {
    Zero,
    Given,
    Gradients,
}

const LEVELS: &[(&str, FetchLevel)] = &[
    (".base", FetchLevel::Zero),
    (".level", FetchLevel::Given),
    (".grad", FetchLevel::Gradients),
];

const GEOMETRIES: &[(&str, ImageGeometry)] = &[
    (".1d", ImageGeometry::D1),
    (".2d", ImageGeometry::D2),
    (".3d", ImageGeometry::D3),
    (".a1d", ImageGeometry::A1),
    (".a2d", ImageGeometry::A2),
    (".cube", ImageGeometry::Cube),
    (".acube", ImageGeometry::ACube),
];

const GATHERED: &[(&str, ImageGeometry)] = &[
    (".2d", ImageGeometry::D2),
    (".a2d", ImageGeometry::A2),
    (".cube", ImageGeometry::Cube),
    (".acube", ImageGeometry::ACube),
];

const DTYPES: &[Type] = &[Type::U32, Type::S32, Type::F32];

/// Decodes `tex{.base,.level,.grad}.geom.v4.dtype.ctype d{|p}, [a, c]{, level | dx, dy}{, offset}`.
pub(crate) fn tex(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let level = d.choose(LEVELS).unwrap_or(FetchLevel::Zero);
    let geometry = d.require(GEOMETRIES)?;
    d.require(&[(".v4", ())])?;
    let dtype = d.ty(DTYPES)?;
    let coordinates = match d.ty(&[Type::S32, Type::F32])? {
        Type::F32 => CoordinateType::Float,
        _ => CoordinateType::Integer,
    };
    if coordinates == CoordinateType::Integer
        && matches!(geometry, ImageGeometry::Cube | ImageGeometry::ACube)
    {
        return d.error(format!(
            "`{}` needs .f32 coordinates, which are a direction in a cube",
            d.name()
        ));
    }

    // There is one mipmap level, so levels and gradients are only checked for their types.
    let least = match level {
        FetchLevel::Zero => 2,
        FetchLevel::Given => 3,
        FetchLevel::Gradients => 4,
    };
    let given = operands(d, least)?;
    match level {
        FetchLevel::Zero => {}
        FetchLevel::Given => {
            d.src(
                2,
                if coordinates == CoordinateType::Float {
                    Type::F32
                } else {
                    Type::S32
                },
            )?;
        }
        FetchLevel::Gradients => {
            gradient(d, 2, geometry)?;
            gradient(d, 3, geometry)?;
        }
    }

    fetch(d, geometry, dtype, coordinates, None, (least..given).next())
}

/// Decodes `tld4.comp.geom.v4.dtype.f32 d{|p}, [a, c]{, offset}`.
pub(crate) fn tld4(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let channel = d.require(&[(".r", 0), (".g", 1), (".b", 2), (".a", 3)])?;
    let geometry = d.require(GATHERED)?;
    d.require(&[(".v4", ())])?;
    let dtype = d.ty(DTYPES)?;
    d.ty(&[Type::F32])?;
    let given = operands(d, 2)?;
    fetch(
        d,
        geometry,
        dtype,
        CoordinateType::Float,
        Some(channel),
        (2..given).next(),
    )
}

/// Checks the number of operands: `least`, or one more for an offset. A comparison depth is not
/// supported.
fn operands(d: &Decode<'_, '_>, least: usize) -> Parsed<usize> {
    match d.operands(least, least + 2)? {
        n if n == least + 2
            || n > least && !matches!(d.operand(least).kind, OperandKind::Vector(_)) =>
        {
            unsupported(d.inst.at, format!("`{}` with a depth to compare", d.name()))
        }
        n => Ok(n),
    }
}

fn gradient(d: &mut Decode<'_, '_>, i: usize, geometry: ImageGeometry) -> Parsed<()> {
    let given = d.elements(i);
    let wanted = dimensions(geometry);
    let wanted = if wanted == 3 { 4 } else { wanted };
    if given.len() != wanted || !matches!(d.operand(i).kind, OperandKind::Vector(_)) {
        return error(
            d.operand(i).at,
            format!(
                "`{}` takes gradients of {wanted} numbers in braces",
                d.name()
            ),
        );
    }

    given
        .iter()
        .try_for_each(|g| d.element_src(g, Type::F32).map(|_| ()))
}

/// Decodes the operands that `tex` and `tld4` have in common.
///
/// `gathers` is the channel that `tld4` reads, and `offset` the number of the operand with the
/// offsets.
fn fetch(
    d: &mut Decode<'_, '_>,
    geometry: ImageGeometry,
    dtype: Type,
    coordinates: CoordinateType,
    gathers: Option<usize>,
    offset: Option<usize>,
) -> Parsed<Op> {
    let o = d.operand(0);
    let (elements, resident) = match &o.kind {
        OperandKind::Vector(elements) => (elements, None),
        OperandKind::Resident(elements, p) => (elements, d.pred_dst(p, o.at)?),
        _ => return error(o.at, "a vector of 4 registers was expected"),
    };
    if elements.len() != 4 {
        return error(
            o.at,
            format!(
                "`{}` needs a vector of 4 elements, not {}",
                d.name(),
                elements.len()
            ),
        );
    }

    // An element `_` needs no register, so the value of that channel is dropped.
    let mut to = [None; 4];
    for (to, element) in to.iter_mut().zip(elements) {
        *to = match element.kind {
            OperandKind::Sink => None,
            _ => Some(d.element_dst(element, dtype)?),
        };
    }

    let offset = offset.map_or(Ok(Vec::new()), |i| offsets(d, i, geometry))?;
    let place = place::place(d, 1, geometry, coordinates)?;
    let floats = dtype == Type::F32;
    let fetch = Fetch {
        place,
        coordinates,
        floats,
        gathers,
        offset,
        d: to,
        resident,
    };
    Ok(Op::Image(Box::new(OfImage::Fetch(fetch))))
}

/// Decodes the offsets in texels that are added to the coordinates.
fn offsets(d: &mut Decode<'_, '_>, i: usize, geometry: ImageGeometry) -> Parsed<Vec<u32>> {
    let given = d.elements(i);
    let n = dimensions(geometry);
    if matches!(geometry, ImageGeometry::Cube | ImageGeometry::ACube) {
        return error(d.operand(i).at, format!("`{}` takes no offset", d.name()));
    }

    let padded = if n == 3 { 4 } else { n };
    if given.len() != padded {
        let layers = if layered(geometry) {
            ", without the layer"
        } else {
            ""
        };
        return error(
            d.operand(i).at,
            format!("an offset has {padded} numbers here{layers}"),
        );
    }

    given[..n]
        .iter()
        .map(|o| d.element_src(o, Type::S32))
        .collect()
}
