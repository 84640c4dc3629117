//! Sets of flags, and the constants that are neither codes nor flags.

use std::ffi::c_uint;

use bitflags::bitflags;

bitflags! {
    /// How a stream is created.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUstream_flags: c_uint {
        /// No implicit order with the legacy stream.
        const NON_BLOCKING = 1;
    }

    /// How an event is created.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUevent_flags: c_uint {
        /// A thread that waits sleeps.
        const BLOCKING_SYNC = 1;
        /// The event keeps no time, which makes it cheaper.
        const DISABLE_TIMING = 2;
        /// Another process may open it.
        const INTERPROCESS = 4;
    }

    /// How host memory is allocated.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUmemhostalloc_flags: c_uint {
        /// Pinned for every context.
        const PORTABLE = 1;
        /// Mapped into the device's addresses.
        const DEVICEMAP = 2;
        /// Fast to write, slow to read.
        const WRITECOMBINED = 4;
    }

    /// How host memory of the program is pinned.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUmemAttach_flags: c_uint {
        /// Every stream of every device.
        const GLOBAL = 1;
        /// The host only.
        const HOST = 2;
        /// One stream only.
        const SINGLE = 4;
    }

    /// How an event is recorded.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUevent_record_flags: c_uint {
        /// In a capture, record in every launch of the graph.
        const EXTERNAL = 1;
    }

    /// How an event is waited for.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUevent_wait_flags: c_uint {
        /// In a capture, wait in every launch of the graph.
        const EXTERNAL = 1;
    }

    /// How the dependencies of a capture change.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUstreamUpdateCaptureDependencies_flags: c_uint {
        /// Replace them; without it, add to them.
        const SET = 1;
    }

    /// How a stream writes a word of memory.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUstreamWriteValue_flags: c_uint {
        /// No order with the writes before it.
        const NO_MEMORY_BARRIER = 1;
    }

    /// How a user object is made.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUuserObject_flags: c_uint {
        /// Nobody may wait for the destructor; required.
        const NO_DESTRUCTOR_SYNC = 1;
    }

    /// How a graph retains a user object.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUuserObjectRetain_flags: c_uint {
        /// The references of the caller become the graph's.
        const MOVE = 1;
    }

    /// How a conditional handle starts.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUgraphConditional_flags: c_uint {
        /// Each launch begins with the default value.
        const ASSIGN_DEFAULT = 1;
    }

    /// How the occupancy is computed.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUoccupancy_flags: c_uint {
        /// As if caching did not change the occupancy.
        const DISABLE_CACHING_OVERRIDE = 1;
    }

    /// How memory of another process is opened.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUipcMem_flags: c_uint {
        /// Enable peer access where it is needed; required.
        const LAZY_ENABLE_PEER_ACCESS = 1;
    }

    /// What `cuGraphDebugDotPrint` shows.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
