//! The textures and surfaces of a memory.

use crate::machine::device::device_memory::Memory;
use crate::machine::device::images::bound_images::BoundImage;
use crate::machine::device::images::descriptor::{Image, Sampler};
use crate::machine::device::images::image_error::ImageError;

impl Memory {
    /// Creates a texture and returns its handle, which is never 0 and never reused.
    ///
    /// The memory of the image is checked when a kernel reads it.
    ///
    /// # Errors
    /// Returns [`ImageError::Image`] or [`ImageError::Sampler`] with the broken rule.
    pub fn add_texture(&self, image: &Image, sampler: &Sampler) -> Result<u64, ImageError> {
        self.change_objects(|objects| {
            objects.add(BoundImage::Texture(image.clone(), sampler.clone()))
        })
    }

    /// Creates a surface and returns its handle, which is never 0 and never reused.
    ///
    /// # Errors
    /// Returns [`ImageError::Image`] with the broken rule.
    pub fn add_surface(&self, image: &Image) -> Result<u64, ImageError> {
        self.change_objects(|objects| objects.add(BoundImage::Surface(image.clone())))
    }

    /// Removes a texture or surface. The memory of its image stays allocated.
    ///
    /// # Errors
    /// Returns [`ImageError::Handle`] if the handle does not belong to a live object.
    pub fn remove_object(&self, handle: u64) -> Result<(), ImageError> {
        self.change_objects(|objects| objects.remove(handle))
    }
}
