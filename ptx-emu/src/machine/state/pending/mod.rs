//! Asynchronous work of a block that has not completed.
pub(crate) mod pending_copies;
pub(crate) mod pending_stores;
pub(crate) mod pending_wgmma;
pub(crate) mod pending_work;
pub(crate) mod tensor_layout;
