//! Arithmetic, logic and comparisons.

pub(crate) mod compare;
pub(crate) mod directed_rounding;
pub(crate) mod exact_sum;
pub(crate) mod extended_precision;
pub(crate) mod float;
pub(crate) mod float_number;
pub(crate) mod half_floats;
pub(crate) mod integer;
pub(crate) mod logic;
pub(crate) mod packed_halves;
pub(crate) mod video;
