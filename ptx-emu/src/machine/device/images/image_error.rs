//! Errors of textures and surfaces.

use std::fmt;

/// The reason why a texture or surface cannot be created or removed.
#[derive(Clone, PartialEq, Eq)]
pub enum ImageError {
    /// The image is invalid, for example because of its extent.
    Image(String),
    /// The sampler cannot read images of this format or shape.
    Sampler(&'static str),
    /// The handle does not belong to a live texture or surface.
    Handle(u64),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(what) => write!(f, "an image cannot have {what}"),
            Self::Sampler(what) => f.write_str(what),
            Self::Handle(handle) => {
                write!(f, "0x{handle:x} is not the handle of a texture or surface")
            }
        }
    }
}

impl std::error::Error for ImageError {}
