//! Arithmetic: divisions by zero, NaN and infinity, and conversions that saturate.

pub(crate) mod rules;
pub(crate) mod value_checks;
