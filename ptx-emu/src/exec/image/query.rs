//! `txq` and `suq`.

use super::super::block::{Checked, Worker};
use super::super::lanes;
use super::super::warp::Warp;
use crate::image::{Coordinates, Image, Read, Sampler, Shape};
use crate::image_code::{Asked, ImageQuery};

impl Worker<'_, '_> {
    pub(super) fn query_image(&mut self, w: &mut Warp, mask: u32, q: &ImageQuery) -> Checked<()> {
        let handles = self.handles(w, mask, q.handle)?;
        let mut out = [0; 32];
        for lane in lanes(mask) {
            out[lane] = if q.of_texture {
                let (image, sampler) = self.texture(w, lane, handles[lane])?;
                answer(q.asked, image, sampler)
            } else {
                answer(
                    q.asked,
                    self.surface(w, lane, handles[lane])?,
                    &Sampler::POINT,
                )
            };
        }
        w.regs.set(q.d, mask, &out);
        Ok(())
    }
}

fn answer(asked: Asked, image: &Image, sampler: &Sampler) -> u32 {
    let [width, height, z] = image.extent;
    match asked {
        Asked::Width => width,
        // A device answers with what its descriptor holds there.
        Asked::Height if image.shape == Shape::Layers1 => z,
        Asked::Height => height,
        Asked::Depth => match image.shape {
            Shape::Linear | Shape::D1 | Shape::D2 | Shape::Layers1 => 0,
            Shape::D3 | Shape::Layers2 | Shape::Cube | Shape::Cubes => z,
        },
        Asked::Layers => match image.shape {
            Shape::Layers1 | Shape::Layers2 => z,
            Shape::Cubes => z / 6,
            _ => 1,
        },
        Asked::ChannelType => image
            .format
            .channel
            .number(sampler.read == Read::NormalizedFloat),
        Asked::ChannelOrder => image.format.order(),
        Asked::Normalized => u32::from(sampler.coordinates == Coordinates::Normalized),
        Asked::Levels | Asked::Samples => 1,
    }
}
