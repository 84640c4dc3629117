//! Pointers that stray from the object from which they were derived.
//!
//! Each pointer belongs to its referent object, as in Jones and Kelly, "Backwards-Compatible Bounds
//! Checking for Arrays and Pointers in C Programs", AADEBUG 1997. The object is a mark of the
//! register, and pointers that pass through memory or calls are not followed.

pub(crate) mod pointer_checks;
pub(crate) mod pointer_effects;
