//! `Q4_0`: `d: f16, qs: [u8; 16]`, `w = d * (q - 8)`.

use super::fields::unpack::NIBBLE_LESS_8;
use super::legacy::{Legacy, Values};

pub(super) const Q4_0: Legacy = Legacy {
    ggml_type: 2,
    min: false,
    fifth: false,
    values: Values::Numbers(NIBBLE_LESS_8),
};
