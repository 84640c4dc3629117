//! Jinja's tables of names: filters, tests and global functions.

pub(super) mod filters;
pub(super) mod globals;
pub(super) mod names;
pub(super) mod test_functions;
