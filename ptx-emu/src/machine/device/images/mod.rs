//! Images, samplers and their handles.
pub(crate) mod bound_images;
pub(crate) mod descriptor;
pub(crate) mod image_error;
pub(crate) mod memory_images;
pub(crate) mod texel_format;
