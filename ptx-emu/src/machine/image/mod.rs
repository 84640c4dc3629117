//! Textures and surfaces: their handles and the errors about them.
//!
//! [`footprint`] finds the texels at coordinates and their weights. [`texel`] reads their channels,
//! and [`mean`] averages several. [`fetch`] combines these for a warp. [`surface`] converts
//! accesses to surfaces into loads and stores of global memory.

pub(crate) mod execute;
pub(crate) mod fetch;
pub(crate) mod footprint;
pub(crate) mod handles;
pub(crate) mod mean;
pub(crate) mod query;
pub(crate) mod surface;
pub(crate) mod texel;
