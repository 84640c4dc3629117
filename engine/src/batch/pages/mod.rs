//! The pages of a cache, on the host: who uses each page, and which prefix it has.

pub(crate) mod allocator;
pub(crate) mod prefixes;
