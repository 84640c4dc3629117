//! The version of the program.

/// The version, followed by the commit it was built from in parentheses if git was available.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("WARPWRIGHT_COMMIT"));
