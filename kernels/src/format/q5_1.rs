//! `Q5_1`: `d, m: f16, qh: u32, qs: [u8; 16]`, `w = d * q + m`.

use super::fields::unpack::FIVE;
use super::legacy::{Legacy, Values};

pub(super) const Q5_1: Legacy = Legacy {
    ggml_type: 7,
    min: true,
    fifth: true,
    values: Values::Numbers(FIVE),
};
