//! `Q5_0`: `d: f16, qh: u32, qs: [u8; 16]`, `w = d * (q - 16)`.

use super::fields::unpack::FIVE_LESS_16;
use super::legacy::{Legacy, Values};

pub(super) const Q5_0: Legacy = Legacy {
    ggml_type: 6,
    min: false,
    fifth: true,
    values: Values::Numbers(FIVE_LESS_16),
};
