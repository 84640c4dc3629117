//! Textures and surfaces (PTX ISA, "Texture Instructions", "Surface Instructions"), selected by a
//! handle in a 64-bit register.
//!
//! Textures are fetched in unified mode, in which the sampler belongs to the texture. There are no
//! mipmaps, so levels and gradients have no effect. Texels are always resident.

pub(crate) mod place;
pub(crate) mod query;
pub(crate) mod surface;
pub(crate) mod texture;

use crate::module::context::operands::Decoder;

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("tex", crate::module::isa::image::texture::tex),
    ("tld4", crate::module::isa::image::texture::tld4),
    ("txq", crate::module::isa::image::query::txq),
    ("suld", crate::module::isa::image::surface::suld),
    ("sust", crate::module::isa::image::surface::sust),
    ("sured", crate::module::isa::image::surface::sured),
    ("suq", crate::module::isa::image::query::suq),
];
