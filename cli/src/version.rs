//! Which program this is.

/// The version; behind it in brackets the commit that was checked out when it was built, where git said it.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("WARPWRIGHT_COMMIT"));
