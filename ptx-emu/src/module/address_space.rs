//! The layout of the generic address space.

/// The first generic address of the shared window.
pub(crate) const SHARED_WINDOW: u64 = 0x1_0000_0000;
/// The first generic address of the local window.
pub(crate) const LOCAL_WINDOW: u64 = 0x2_0000_0000;
/// The first generic address of the kernel parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x3_0000_0000;
/// The size of a window.
pub(crate) const WINDOW: u64 = 0x2000_0000;
