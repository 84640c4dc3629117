//! The fields of blocks and tiles, and the parts that several formats share.

pub(crate) mod bits;
pub(crate) mod fifth_bits;
pub(crate) mod four_of_each_32;
pub(crate) mod k_scales;
pub(crate) mod layout;
pub(crate) mod lookup;
pub(crate) mod nibbles;
pub(crate) mod numbers;
pub(crate) mod sixteens;
pub(crate) mod two_bits;
pub(crate) mod unpack;
