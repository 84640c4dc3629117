//! Sets of flags, and the constants that are neither codes nor flags.

use std::ffi::c_uint;
use std::fmt;

use bitflags::bitflags;

/// Declares sets of flags. `bitflags` adds to the types here and makes none of its own: it would make two a set, with a
/// parser and a printer for each.
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

/// Writes `name(A | B)`; what has no name in hexadecimal, and no flag as `name(0x0)`.
fn show(f: &mut fmt::Formatter<'_>, name: &str, bits: u64, flags: &[(&str, u64)]) -> fmt::Result {
    write!(f, "{name}(")?;
    let (mut left, mut between) = (bits, "");
    for (flag, value) in flags
        .iter()
        .filter(|(_, value)| *value != 0 && bits & value == *value)
    {
        write!(f, "{between}{flag}")?;
        (left, between) = (left & !value, " | ");
    }
    if left != 0 || bits == 0 {
        write!(f, "{between}{left:#x}")?;
    }
    write!(f, ")")
}

flags! {
    /// How a stream is created.
    pub struct CUstream_flags: c_uint {
        /// No implicit order with the legacy stream.
        const NON_BLOCKING = 1;
    }

    /// How an event is created.
    pub struct CUevent_flags: c_uint {
        /// A thread that waits sleeps.
        const BLOCKING_SYNC = 1;
        /// The event keeps no time, which makes it cheaper.
        const DISABLE_TIMING = 2;
        /// Another process may open it.
        const INTERPROCESS = 4;
    }

    /// How host memory is allocated.
    pub struct CUmemhostalloc_flags: c_uint {
        /// Pinned for every context.
        const PORTABLE = 1;
        /// Mapped into the device's addresses.
        const DEVICEMAP = 2;
        /// Fast to write, slow to read.
        const WRITECOMBINED = 4;
    }

    /// How host memory of the program is pinned.
    pub struct CUmemhostregister_flags: c_uint {
        /// Pinned for every context.
        const PORTABLE = 1;
        /// Mapped into the device's addresses.
        const DEVICEMAP = 2;
        /// Memory of a device, not of the host.
        const IOMEMORY = 4;
        /// The device only reads it; needed for memory that the program may not write either.
        const READ_ONLY = 8;
    }

    /// How a graph is instantiated.
    pub struct CUgraphInstantiate_flags: u64 {
        /// A launch frees what the last one left allocated.
        const AUTO_FREE_ON_LAUNCH = 1;
        /// Upload at once; with parameters only.
        const UPLOAD = 2;
        /// May be launched from a kernel.
        const DEVICE_LAUNCH = 4;
        /// Nodes run with their own priority.
        const USE_NODE_PRIORITY = 8;
    }

    /// How a context is created.
    pub struct CUctx_flags: c_uint {
        /// A thread that waits spins.
        const SCHED_SPIN = 1;
        /// A thread that waits yields.
        const SCHED_YIELD = 2;
        /// A thread that waits sleeps.
        const SCHED_BLOCKING_SYNC = 4;
        /// Pinned memory may be mapped; always so today.
        const MAP_HOST = 8;
        /// Local memory keeps its largest size.
        const LMEM_RESIZE_TO_MAX = 16;
        /// A fault writes a core dump.
        const COREDUMP_ENABLE = 32;
        /// A program may ask for a core dump.
        const USER_COREDUMP_ENABLE = 64;
        /// Copies that are synchronous are so for every address.
        const SYNC_MEMOPS = 128;
    }

    /// Who may touch managed memory.
    pub struct CUmemAttach_flags: c_uint {
        /// Every stream of every device.
        const GLOBAL = 1;
        /// The host only.
        const HOST = 2;
        /// One stream only.
        const SINGLE = 4;
    }

    /// How an event is recorded.
    pub struct CUevent_record_flags: c_uint {
        /// In a capture, record in every launch of the graph.
        const EXTERNAL = 1;
    }

    /// How an event is waited for.
    pub struct CUevent_wait_flags: c_uint {
        /// In a capture, wait in every launch of the graph.
        const EXTERNAL = 1;
    }

    /// How the dependencies of a capture change.
    pub struct CUstreamUpdateCaptureDependencies_flags: c_uint {
        /// Replace them; without it, add to them.
        const SET = 1;
    }

    /// How a stream writes a word of memory.
    pub struct CUstreamWriteValue_flags: c_uint {
        /// No order with the writes before it.
        const NO_MEMORY_BARRIER = 1;
    }

    /// How a user object is made.
    pub struct CUuserObject_flags: c_uint {
        /// Nobody may wait for the destructor; required.
        const NO_DESTRUCTOR_SYNC = 1;
    }

    /// How a graph retains a user object.
    pub struct CUuserObjectRetain_flags: c_uint {
        /// The references of the caller become the graph's.
        const MOVE = 1;
    }

    /// How a conditional handle starts.
    pub struct CUgraphConditional_flags: c_uint {
        /// Each launch begins with the default value.
        const ASSIGN_DEFAULT = 1;
    }

    /// How the occupancy is computed.
    pub struct CUoccupancy_flags: c_uint {
        /// As if caching did not change the occupancy.
        const DISABLE_CACHING_OVERRIDE = 1;
    }

    /// How memory of another process is opened.
    pub struct CUipcMem_flags: c_uint {
        /// Enable peer access where it is needed; required.
        const LAZY_ENABLE_PEER_ACCESS = 1;
    }

    /// What `cuGraphDebugDotPrint` shows.
    pub struct CUgraphDebugDot_flags: c_uint {
        /// Everything.
        const VERBOSE = 1;
        /// Types as the runtime names them.
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
        /// More about edges.
        const EXTRA_TOPO_INFO = 16384;
        /// Parameters of conditional nodes.
        const CONDITIONAL_NODE_PARAMS = 32768;
    }
}

/// Ends an `extra` list of a launch.
pub const CU_LAUNCH_PARAM_END: usize = 0;
/// The next entry of an `extra` list points to the packed parameters.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
/// The next entry of an `extra` list points to the size of the packed parameters in bytes.
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
