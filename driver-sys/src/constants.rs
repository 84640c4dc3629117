//! Codes and flags. A code is an integer with names; a set of flags is a `bitflags` type.

use std::ffi::{c_int, c_uint};
use std::fmt;

use bitflags::bitflags;

macro_rules! codes {
    ($($(#[$doc:meta])* $type:ident($int:ty) { $($name:ident = $value:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(pub $int);

        impl $type {
            $(#[doc = concat!("Code ", $value, ".")] pub const $name: Self = Self($value);)*

            /// The name in `cuda.h` less its common prefix, or none for a code this table does not list.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({})", self.0),
                    None => write!(f, "{}", self.0),
                }
            }
        }
    )*};
}

codes! {
    /// A property of a device.
    CUdevice_attribute(c_int) {
        MAX_THREADS_PER_BLOCK = 1,
        MAX_BLOCK_DIM_X = 2,
        MAX_BLOCK_DIM_Y = 3,
        MAX_BLOCK_DIM_Z = 4,
        MAX_GRID_DIM_X = 5,
        MAX_GRID_DIM_Y = 6,
        MAX_GRID_DIM_Z = 7,
        MAX_SHARED_MEMORY_PER_BLOCK = 8,
        TOTAL_CONSTANT_MEMORY = 9,
        WARP_SIZE = 10,
        MAX_REGISTERS_PER_BLOCK = 12,
        CLOCK_RATE = 13,
        MULTIPROCESSOR_COUNT = 16,
        INTEGRATED = 18,
        CAN_MAP_HOST_MEMORY = 19,
        COMPUTE_MODE = 20,
        CONCURRENT_KERNELS = 31,
        ECC_ENABLED = 32,
        PCI_BUS_ID = 33,
        PCI_DEVICE_ID = 34,
        MEMORY_CLOCK_RATE = 36,
        GLOBAL_MEMORY_BUS_WIDTH = 37,
        L2_CACHE_SIZE = 38,
        MAX_THREADS_PER_MULTIPROCESSOR = 39,
        ASYNC_ENGINE_COUNT = 40,
        UNIFIED_ADDRESSING = 41,
        COMPUTE_CAPABILITY_MAJOR = 75,
        COMPUTE_CAPABILITY_MINOR = 76,
        MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
        MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
        CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
        COOPERATIVE_LAUNCH = 95,
        MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
        HOST_REGISTER_SUPPORTED = 99,
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
        MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
        RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
        READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
        MEMORY_POOLS_SUPPORTED = 115,
        CLUSTER_LAUNCH = 120,
        TENSOR_MAP_ACCESS_SUPPORTED = 127,
    }

    /// A property of a kernel.
    CUfunction_attribute(c_int) {
        MAX_THREADS_PER_BLOCK = 0,
        SHARED_SIZE_BYTES = 1,
        CONST_SIZE_BYTES = 2,
        LOCAL_SIZE_BYTES = 3,
        NUM_REGS = 4,
        PTX_VERSION = 5,
        BINARY_VERSION = 6,
        CACHE_MODE_CA = 7,
        MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
        PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
        CLUSTER_SIZE_MUST_BE_SET = 10,
        REQUIRED_CLUSTER_WIDTH = 11,
        REQUIRED_CLUSTER_HEIGHT = 12,
        REQUIRED_CLUSTER_DEPTH = 13,
        NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
        CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15,
    }

    /// An option of loading a module. Its value stands in a pointer-sized slot, by value or as a pointer.
    CUjit_option(c_int) {
        MAX_REGISTERS = 0,
        THREADS_PER_BLOCK = 1,
        WALL_TIME = 2,
        INFO_LOG_BUFFER = 3,
        INFO_LOG_BUFFER_SIZE_BYTES = 4,
        ERROR_LOG_BUFFER = 5,
        ERROR_LOG_BUFFER_SIZE_BYTES = 6,
        OPTIMIZATION_LEVEL = 7,
        TARGET_FROM_CUCONTEXT = 8,
        TARGET = 9,
        FALLBACK_STRATEGY = 10,
        GENERATE_DEBUG_INFO = 11,
        LOG_VERBOSE = 12,
        GENERATE_LINE_INFO = 13,
        CACHE_MODE = 14,
    }

    /// Where the memory of a copy lies.
    CUmemorytype(c_uint) {
        HOST = 1,
        DEVICE = 2,
        ARRAY = 3,
        UNIFIED = 4,
    }

    /// What a node of a graph does.
    CUgraphNodeType(c_int) {
        KERNEL = 0,
        MEMCPY = 1,
        MEMSET = 2,
        HOST = 3,
        GRAPH = 4,
        EMPTY = 5,
        WAIT_EVENT = 6,
        EVENT_RECORD = 7,
        EXT_SEMAS_SIGNAL = 8,
        EXT_SEMAS_WAIT = 9,
        MEM_ALLOC = 10,
        MEM_FREE = 11,
        BATCH_MEM_OP = 12,
        CONDITIONAL = 13,
    }

    /// What `cuGraphInstantiateWithParams` says about the graph.
    CUgraphInstantiateResult(c_int) {
        SUCCESS = 0,
        ERROR = 1,
        INVALID_STRUCTURE = 2,
        NODE_OPERATION_NOT_SUPPORTED = 3,
        MULTIPLE_CTXS_NOT_SUPPORTED = 4,
        CONDITIONAL_HANDLE_UNUSED = 5,
    }

    /// What `cuGraphExecUpdate_v2` says about the difference of two graphs.
    CUgraphExecUpdateResult(c_int) {
        SUCCESS = 0,
        ERROR = 1,
        ERROR_TOPOLOGY_CHANGED = 2,
        ERROR_NODE_TYPE_CHANGED = 3,
        ERROR_FUNCTION_CHANGED = 4,
        ERROR_PARAMETERS_CHANGED = 5,
        ERROR_NOT_SUPPORTED = 6,
        ERROR_UNSUPPORTED_FUNCTION_CHANGE = 7,
        ERROR_ATTRIBUTES_CHANGED = 8,
    }

    /// Which calls a capture forbids, and on which threads.
    CUstreamCaptureMode(c_int) {
        GLOBAL = 0,
        THREAD_LOCAL = 1,
        RELAXED = 2,
    }

    /// Whether a stream captures.
    CUstreamCaptureStatus(c_int) {
        NONE = 0,
        ACTIVE = 1,
        INVALIDATED = 2,
    }

    /// An attribute of a launch or of a kernel node.
    CUlaunchAttributeID(c_int) {
        IGNORE = 0,
        ACCESS_POLICY_WINDOW = 1,
        COOPERATIVE = 2,
        SYNCHRONIZATION_POLICY = 3,
        CLUSTER_DIMENSION = 4,
        CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5,
        PROGRAMMATIC_STREAM_SERIALIZATION = 6,
        PROGRAMMATIC_EVENT = 7,
        PRIORITY = 8,
        MEM_SYNC_DOMAIN_MAP = 9,
        MEM_SYNC_DOMAIN = 10,
        PREFERRED_CLUSTER_DIMENSION = 11,
        LAUNCH_COMPLETION_EVENT = 12,
        DEVICE_UPDATABLE_KERNEL_NODE = 13,
        PREFERRED_SHARED_MEMORY_CARVEOUT = 14,
    }

    /// How `cuGetProcAddress_v2` found a symbol, or why not.
    CUdriverProcAddressQueryResult(c_int) {
        SUCCESS = 0,
        SYMBOL_NOT_FOUND = 1,
        VERSION_NOT_SUFFICIENT = 2,
    }
}

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

    /// What `cuGraphDebugDotPrint` shows.
    #[repr(transparent)]
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct CUgraphDebugDot_flags: c_uint {
        /// Everything.
        const VERBOSE = 1;
        /// Parameters of kernel nodes.
        const KERNEL_NODE_PARAMS = 4;
        /// Attributes of kernel nodes.
        const KERNEL_NODE_ATTRIBUTES = 512;
        /// Handles of nodes.
        const HANDLES = 1024;
        /// More about edges.
        const EXTRA_TOPO_INFO = 16384;
    }
}

/// Ends an `extra` list of a launch.
pub const CU_LAUNCH_PARAM_END: usize = 0;
/// The next entry of an `extra` list points to the packed parameters.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
/// The next entry of an `extra` list points to the size of the packed parameters in bytes.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: usize = 2;
