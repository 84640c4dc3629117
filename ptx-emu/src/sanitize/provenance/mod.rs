//! Pointers that stray from the object from which they were derived.

pub(crate) mod pointer_checks;
pub(crate) mod pointer_effects;
