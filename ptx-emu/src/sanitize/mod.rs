//! The checks of a launch: races, uninitialized values, pointers and arithmetic.

pub(crate) mod arithmetic;
pub(crate) mod execution_context;
pub(crate) mod init;
pub(crate) mod observers;
pub(crate) mod profile;
pub(crate) mod provenance;
pub(crate) mod race;
