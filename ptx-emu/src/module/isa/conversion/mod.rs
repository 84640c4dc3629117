//! Conversions between types.

pub(crate) mod cvt;
pub(crate) mod narrow_floats;
pub(crate) mod packing;
pub(crate) mod tiny_floats;
