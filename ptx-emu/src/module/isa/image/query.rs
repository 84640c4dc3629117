//! `txq` and `suq`.

use crate::module::code::Op;
use crate::module::code::image::{Asked, ImageQuery, OfImage};
use crate::module::context::operands::Decode;
use crate::module::isa::image::place::of_name;
use crate::syntax::ast::OperandKind;
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error};

const OF_BOTH: &[(&str, Asked)] = &[
    (".width", Asked::Width),
    (".height", Asked::Height),
    (".depth", Asked::Depth),
    (".channel_data_type", Asked::ChannelType),
    (".channel_order", Asked::ChannelOrder),
    (".array_size", Asked::Layers),
];

const OF_TEXTURES: &[(&str, Asked)] = &[
    (".normalized_coords", Asked::Normalized),
    (".num_mipmap_levels", Asked::Levels),
    (".num_samples", Asked::Samples),
];

/// Decodes `txq.query.b32 d, [a]`.
pub(crate) fn txq(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    query(d, &[OF_BOTH, OF_TEXTURES].concat(), true)
}

/// Decodes `suq.query.b32 d, [a]`.
pub(crate) fn suq(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    query(d, OF_BOTH, false)
}

fn query(d: &mut Decode<'_, '_>, questions: &[(&str, Asked)], of_texture: bool) -> Parsed<Op> {
    let asked = d.require(questions)?;
    d.ty(&[Type::B32])?;
    d.operands(2, 2)?;
    let o = d.operand(1);
    let OperandKind::Address(Some(handle), 0) = o.kind else {
        return error(o.at, "a handle in brackets was expected");
    };

    let handle = of_name(d, handle, o.at)?;
    let to = d.dst(0, Type::B32)?;
    Ok(Op::Image(Box::new(OfImage::Query(ImageQuery {
        of_texture,
        handle,
        asked,
        d: to,
    }))))
}
