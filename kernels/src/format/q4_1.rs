//! `Q4_1`: `d, m: f16, qs: [u8; 16]`, `w = d * q + m`.

use super::fields::unpack::NIBBLE;
use super::legacy::{Legacy, Values};

pub(super) const Q4_1: Legacy = Legacy {
    ggml_type: 3,
    min: true,
    fifth: false,
    values: Values::Numbers(NIBBLE),
};
