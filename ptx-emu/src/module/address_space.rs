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

/// The address of each lane. Inactive lanes have the address of the first active lane.
pub(crate) type Addresses = [u64; 32];

/// The space to which an address resolves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ResolvedAddress {
    Global,
    Shared,
    Local,
    Param,
}

/// Returns the space of a generic address, and the address in that space.
pub(crate) fn resolve(address: u64) -> (ResolvedAddress, u64) {
    match address {
        a if a.wrapping_sub(SHARED_WINDOW) < WINDOW => (ResolvedAddress::Shared, a - SHARED_WINDOW),
        a if a.wrapping_sub(LOCAL_WINDOW) < WINDOW => (ResolvedAddress::Local, a - LOCAL_WINDOW),
        a if a.wrapping_sub(PARAM_WINDOW) < WINDOW => (ResolvedAddress::Param, a - PARAM_WINDOW),
        a => (ResolvedAddress::Global, a),
    }
}
