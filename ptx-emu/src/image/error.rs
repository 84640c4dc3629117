//! Why there is no such texture or surface.

use std::fmt;

/// Why a texture or surface cannot be made, or removed.
#[derive(Clone, PartialEq, Eq)]
pub enum ImageError {
    /// The image has something that no image has.
    Image(String),
    /// The sampler cannot read such an image.
    Sampler(&'static str),
    /// Nobody made a texture or surface of this handle, or it was removed already.
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
