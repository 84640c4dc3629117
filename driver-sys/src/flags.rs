//! Sets of flags, and constants of launches.

use std::ffi::c_uint;
use std::fmt;

use bitflags::bitflags;

/// Declares sets of flags.
///
/// `bitflags` implements its traits on these types. Its other form would declare a second type per
/// set, with a parser and a formatter for each.
macro_rules! flags {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident: $ty:ty {
            $($(#[$attr:ident $($of:tt)*])* const $flag:ident = $value:expr;)*
        }
    )*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name($ty);

        bitflags! {
            impl $name: $ty {
                $($(#[$attr $($of)*])* const $flag = $value;)*
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let names = &[$((stringify!($flag), $value as u64)),*];
                show(f, stringify!($name), self.bits().into(), names)
            }
        }
    )*};
}

/// Writes flags as `name(A | B)`. Bits without a name appear in hexadecimal, and an empty set as
/// `name(0x0)`.
fn show(f: &mut fmt::Formatter<'_>, name: &str, bits: u64, flags: &[(&str, u64)]) -> fmt::Result {
    write!(f, "{name}(")?;
    let mut left = bits;
    let mut between = "";
    for (flag, value) in flags
        .iter()
        .filter(|(_, value)| *value != 0 && bits & value == *value)
    {
        write!(f, "{between}{flag}")?;
        left &= !value;
        between = " | ";
    }

    if left != 0 || bits == 0 {
        write!(f, "{between}{left:#x}")?;
    }

    write!(f, ")")
}

flags! {
    /// Options for creating a stream.
    pub struct CUstream_flags: c_uint {
        /// Does not synchronize implicitly with the legacy default stream.
        const NON_BLOCKING = 1;
    }

    /// Options for creating an event.
    pub struct CUevent_flags: c_uint {
        /// A waiting thread sleeps.
        const BLOCKING_SYNC = 1;
        /// Does not record the time, which makes the event cheaper.
        const DISABLE_TIMING = 2;
        /// Allows other processes to open the event.
        const INTERPROCESS = 4;
    }

    /// Options for allocating host memory.
    pub struct CUmemhostalloc_flags: c_uint {
        /// Pinned for every context.
        const PORTABLE = 1;
        /// Mapped into the device's address space.
        const DEVICEMAP = 2;
        /// Write-combined: fast to write and slow to read.
        const WRITECOMBINED = 4;
    }

    /// Options for registering host memory of the program.
    pub struct CUmemhostregister_flags: c_uint {
        /// Pinned for every context.
        const PORTABLE = 1;
        /// Mapped into the device's address space.
        const DEVICEMAP = 2;
        /// I/O memory of a device and not host memory.
        const IOMEMORY = 4;
        /// Read-only for the device. Required for memory that the program cannot write either.
        const READ_ONLY = 8;
    }

    /// Options for instantiating a graph.
    pub struct CUgraphInstantiate_flags: u64 {
        /// A launch frees memory that the last launch left allocated.
        const AUTO_FREE_ON_LAUNCH = 1;
        /// Uploads the graph immediately. Valid only for a call with parameters.
        const UPLOAD = 2;
        /// Allows kernels to launch the graph.
        const DEVICE_LAUNCH = 4;
        /// Nodes run with their own priorities.
        const USE_NODE_PRIORITY = 8;
    }

    /// Options for creating a context.
    pub struct CUctx_flags: c_uint {
        /// A waiting thread spins.
        const SCHED_SPIN = 1;
        /// A waiting thread yields.
        const SCHED_YIELD = 2;
        /// A waiting thread sleeps.
        const SCHED_BLOCKING_SYNC = 4;
        /// Allows mapping of pinned memory, which is always allowed today.
        const MAP_HOST = 8;
        /// Local memory keeps its largest size.
        const LMEM_RESIZE_TO_MAX = 16;
        /// A fault writes a core dump.
        const COREDUMP_ENABLE = 32;
        /// Allows programs to request a core dump.
        const USER_COREDUMP_ENABLE = 64;
        /// Synchronous copies are synchronous for every address.
        const SYNC_MEMOPS = 128;
    }

    /// The devices and streams that may access managed memory.
    pub struct CUmemAttach_flags: c_uint {
        /// Every stream of every device.
        const GLOBAL = 1;
        /// The host only.
        const HOST = 2;
        /// A single stream.
        const SINGLE = 4;
    }

    /// Options for recording an event.
    pub struct CUevent_record_flags: c_uint {
        /// In a capture, the event is recorded in every launch of the graph.
        const EXTERNAL = 1;
    }

    /// Options for waiting for an event.
    pub struct CUevent_wait_flags: c_uint {
        /// In a capture, the wait happens in every launch of the graph.
        const EXTERNAL = 1;
    }

    /// Options for changing the dependencies of a capture.
    pub struct CUstreamUpdateCaptureDependencies_flags: c_uint {
        /// Replaces the dependencies. Otherwise new ones are added.
        const SET = 1;
    }

    /// Options for a stream that writes a word of memory.
    pub struct CUstreamWriteValue_flags: c_uint {
        /// Does not order the write after earlier writes.
        const NO_MEMORY_BARRIER = 1;
    }

    /// Options for creating a user object.
    pub struct CUuserObject_flags: c_uint {
        /// The destructor cannot be waited for. This flag is required.
        const NO_DESTRUCTOR_SYNC = 1;
    }

    /// Options for a graph that retains a user object.
    pub struct CUuserObjectRetain_flags: c_uint {
        /// Moves the caller's references to the graph.
        const MOVE = 1;
    }

    /// Options for creating a conditional handle.
    pub struct CUgraphConditional_flags: c_uint {
        /// Each launch starts with the default value.
        const ASSIGN_DEFAULT = 1;
    }

    /// Options for computing occupancy.
    pub struct CUoccupancy_flags: c_uint {
        /// Computes the occupancy as if caching did not affect it.
        const DISABLE_CACHING_OVERRIDE = 1;
    }

    /// Options for opening memory of another process.
    pub struct CUipcMem_flags: c_uint {
        /// Enables peer access where it is needed. This flag is required.
        const LAZY_ENABLE_PEER_ACCESS = 1;
    }

    /// The contents of the output of `cuGraphDebugDotPrint`.
    pub struct CUgraphDebugDot_flags: c_uint {
        /// Everything.
        const VERBOSE = 1;
        /// Types with their names in the runtime API.
        const RUNTIME_TYPES = 2;
        /// Parameters of kernel nodes.
        const KERNEL_NODE_PARAMS = 4;
        /// Parameters of copy nodes.
        const MEMCPY_NODE_PARAMS = 8;
        /// Parameters of fill nodes.
        const MEMSET_NODE_PARAMS = 16;
        /// Parameters of host nodes.
        const HOST_NODE_PARAMS = 32;
        /// Parameters of event nodes.
        const EVENT_NODE_PARAMS = 64;
        /// Attributes of kernel nodes.
        const KERNEL_NODE_ATTRIBUTES = 512;
        /// Handles of nodes.
        const HANDLES = 1024;
        /// Parameters of memory allocation nodes.
        const MEM_ALLOC_NODE_PARAMS = 2048;
        /// Parameters of memory free nodes.
        const MEM_FREE_NODE_PARAMS = 4096;
        /// Parameters of batch memory operation nodes.
        const BATCH_MEM_OP_NODE_PARAMS = 8192;
        /// Additional information about edges.
        const EXTRA_TOPO_INFO = 16384;
        /// Parameters of conditional nodes.
        const CONDITIONAL_NODE_PARAMS = 32768;
    }
}

/// The end of the `extra` list of a launch.
pub const CU_LAUNCH_PARAM_END: usize = 0;
/// The marker in an `extra` list before the pointer to the packed parameters.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
/// The marker in an `extra` list before the pointer to the size of the packed parameters in bytes.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_by_name() {
        let both = CUevent_flags::BLOCKING_SYNC | CUevent_flags::INTERPROCESS;
        assert_eq!(
            format!("{both:?}"),
            "CUevent_flags(BLOCKING_SYNC | INTERPROCESS)"
        );
        assert_eq!(
            format!("{:?}", CUstream_flags::empty()),
            "CUstream_flags(0x0)"
        );
        assert_eq!(
            format!("{:?}", CUstream_flags::from_bits_retain(9)),
            "CUstream_flags(NON_BLOCKING | 0x8)"
        );
    }
}
