//! The textures and surfaces of a program by handle. Handles are never reused.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::machine::device::images::descriptor::{Coordinates, Filter, Image, ImageShape, Sampler};
use crate::machine::device::images::image_error::ImageError;

/// The first handle. It is neither an address of memory nor close to small numbers.
const FIRST: u64 = 0x7e00_0000_0000_0000;

/// The texture or surface of a handle.
#[derive(Clone, Debug)]
pub(crate) enum BoundImage {
    Texture(Image, Sampler),
    Surface(Image),
}

/// All textures and surfaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    live: BTreeMap<u64, Arc<BoundImage>>,
    made: u64,
}

impl Objects {
    pub(crate) fn add(&mut self, object: BoundImage) -> Result<u64, ImageError> {
        match &object {
            BoundImage::Texture(image, sampler) => {
                image.check()?;
                sampler.check(image)?;
            }
            BoundImage::Surface(image) => {
                image.check()?;
                if image.shape == ImageShape::Linear {
                    return Err(ImageError::Image("linear memory behind a surface".into()));
                }
            }
        }

        let handle = FIRST + self.made;
        self.made += 1;
        self.live.insert(handle, Arc::new(object));
        Ok(handle)
    }

    pub(crate) fn remove(&mut self, handle: u64) -> Result<(), ImageError> {
        self.live
            .remove(&handle)
            .map(|_| ())
            .ok_or(ImageError::Handle(handle))
    }

    pub(crate) fn find(&self, handle: u64) -> Option<&BoundImage> {
        self.live.get(&handle).map(|object| &**object)
    }

    /// Returns true if the handle belonged to an object that was removed.
    pub(crate) fn removed(&self, handle: u64) -> bool {
        handle
            .checked_sub(FIRST)
            .is_some_and(|number| number < self.made)
            && self.find(handle).is_none()
    }
}

impl Sampler {
    /// Checks that the sampler can read an image.
    fn check(&self, image: &Image) -> Result<(), ImageError> {
        let wrong = |what| Err(ImageError::Sampler(what));
        match (image.shape, self.filter) {
            (ImageShape::Linear, Filter::Linear) => {
                wrong("texels in linear memory are read by their index, without a filter")
            }
            (ImageShape::Linear, _) if self.coordinates == Coordinates::Normalized => wrong(
                "texels in linear memory are read by their index, not by normalized coordinates",
            ),
            (_, Filter::Linear) if !self.gives_floats(image.format) => wrong(
                "a linear filter needs floats: read texels of 8-bit and 16-bit integers as normalized floats",
            ),
            _ => Ok(()),
        }
    }
}
