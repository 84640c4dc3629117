//! The report of a check, as text and as JSON.

pub(crate) mod json;
pub(crate) mod profile;
pub(crate) mod replay;
pub(crate) mod words;
