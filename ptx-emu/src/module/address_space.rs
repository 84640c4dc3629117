//! The layout of the generic address space.

/// The first generic address of the shared window.
pub(crate) const SHARED_WINDOW: u64 = 0x1_0000_0000;
/// The first generic address of the local window.
pub(crate) const LOCAL_WINDOW: u64 = 0x2_0000_0000;
/// The first generic address of the kernel parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x3_0000_0000;
/// The size of a window.
pub(crate) const WINDOW: u64 = 0x2000_0000;

/// The first address of the shared space. It is not 0, so that a null pointer is never a variable.
pub(crate) const SHARED_BASE: u32 = 1024;

/// The register with the offset of the reserved shared memory, which is also the name of that
/// memory.
pub(crate) const RESERVED: &str = "%reserved_smem_offset_1";
