//! `IQ4_NL`: `d: f16, qs: [u8; 16]`, `w = d * table[q]`.

use super::fields::lookup::IQ4;
use super::legacy::{Legacy, Values};

/// The format `IQ4_NL`.
pub(super) const IQ4_NL: Legacy = Legacy {
    ggml_type: 20,
    min: false,
    fifth: false,
    values: Values::Entries(IQ4),
};
