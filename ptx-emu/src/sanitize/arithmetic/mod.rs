//! Arithmetic: divisions by zero, NaN and infinity, and conversions that saturate.
//!
//! A NaN or an infinity is followed from the instruction where it appears to the first use that
//! matters, and the finding names both. This is origin tracking (Bond et al., "Tracking Bad Apples:
//! Reporting the Origin of Null and Undefined Value Errors", OOPSLA 2007).

pub(crate) mod rules;
pub(crate) mod value_checks;
