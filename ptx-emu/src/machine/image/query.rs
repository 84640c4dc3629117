//! `txq` and `suq`.

use crate::machine::device::images::descriptor::{
    Coordinates, Image, ImageShape, ReadMode, Sampler,
};
use crate::machine::image::handles;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::code::image::{Asked, ImageQuery};
use crate::module::lane_mask::lanes;

pub(crate) fn query_image(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    q: &ImageQuery,
) -> Checked<()> {
    let handles = handles::handles(block, w, mask, q.handle)?;
    let mut out = [0; 32];
    for lane in lanes(mask) {
        out[lane] = if q.of_texture {
            let (image, sampler) = handles::texture(block, w, lane, handles[lane])?;
            answer(q.asked, image, sampler)
        } else {
            answer(
                q.asked,
                handles::surface(block, w, lane, handles[lane])?,
                &Sampler::POINT,
            )
        };
    }

    w.regs.set(q.d, mask, &out);
    Ok(())
}

fn answer(asked: Asked, image: &Image, sampler: &Sampler) -> u32 {
    let [width, height, z] = image.extent;
    match asked {
        Asked::Width => width,
        // A device returns the fields of its texture descriptor.
        Asked::Height if image.shape == ImageShape::Layers1 => z,
        Asked::Height => height,
        Asked::Depth => match image.shape {
            ImageShape::Linear | ImageShape::D1 | ImageShape::D2 | ImageShape::Layers1 => 0,
            ImageShape::D3 | ImageShape::Layers2 | ImageShape::Cube | ImageShape::Cubes => z,
        },
        Asked::Layers => match image.shape {
            ImageShape::Layers1 | ImageShape::Layers2 => z,
            ImageShape::Cubes => z / 6,
            _ => 1,
        },
        Asked::ChannelType => image
            .format
            .channel
            .number(sampler.read == ReadMode::NormalizedFloat),
        Asked::ChannelOrder => image.format.order(),
        Asked::Normalized => u32::from(sampler.coordinates == Coordinates::Normalized),
        Asked::Levels | Asked::Samples => 1,
    }
}
