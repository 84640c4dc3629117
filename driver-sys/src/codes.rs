//! Named integer codes. Codes of newer drivers are kept as they are.

use std::ffi::{c_int, c_uint};

macro_rules! codes {
    ($($(#[$doc:meta])* $type:ident($int:ty) { $($name:ident = $value:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(pub $int);

        impl $type {
            $(#[doc = concat!("Code ", $value, ".")] pub const $name: Self = Self($value);)*

            /// Returns the name in `cuda.h` without its common prefix, or `None` for a code that is
            /// not listed.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({})", self.0),
                    None => write!(f, "{}", self.0),
                }
            }
        }
    )*};
}

pub(crate) use codes;

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
        MAX_PITCH = 11,
        MAX_REGISTERS_PER_BLOCK = 12,
        CLOCK_RATE = 13,
        TEXTURE_ALIGNMENT = 14,
        GPU_OVERLAP = 15,
        MULTIPROCESSOR_COUNT = 16,
        KERNEL_EXEC_TIMEOUT = 17,
        INTEGRATED = 18,
        CAN_MAP_HOST_MEMORY = 19,
        COMPUTE_MODE = 20,
        SURFACE_ALIGNMENT = 30,
        CONCURRENT_KERNELS = 31,
        ECC_ENABLED = 32,
        PCI_BUS_ID = 33,
        PCI_DEVICE_ID = 34,
        TCC_DRIVER = 35,
        MEMORY_CLOCK_RATE = 36,
        GLOBAL_MEMORY_BUS_WIDTH = 37,
        L2_CACHE_SIZE = 38,
        MAX_THREADS_PER_MULTIPROCESSOR = 39,
        ASYNC_ENGINE_COUNT = 40,
        UNIFIED_ADDRESSING = 41,
        CAN_TEX2D_GATHER = 44,
        PCI_DOMAIN_ID = 50,
        TEXTURE_PITCH_ALIGNMENT = 51,
        COMPUTE_CAPABILITY_MAJOR = 75,
        COMPUTE_CAPABILITY_MINOR = 76,
        STREAM_PRIORITIES_SUPPORTED = 78,
        GLOBAL_L1_CACHE_SUPPORTED = 79,
        LOCAL_L1_CACHE_SUPPORTED = 80,
        MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
        MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
        MANAGED_MEMORY = 83,
        MULTI_GPU_BOARD = 84,
        MULTI_GPU_BOARD_GROUP_ID = 85,
        HOST_NATIVE_ATOMIC_SUPPORTED = 86,
        SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO = 87,
        PAGEABLE_MEMORY_ACCESS = 88,
        CONCURRENT_MANAGED_ACCESS = 89,
        COMPUTE_PREEMPTION_SUPPORTED = 90,
        CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
        COOPERATIVE_LAUNCH = 95,
        COOPERATIVE_MULTI_DEVICE_LAUNCH = 96,
        MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
        CAN_FLUSH_REMOTE_WRITES = 98,
        HOST_REGISTER_SUPPORTED = 99,
        PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100,
        DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101,
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
        HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
        HANDLE_TYPE_WIN32_HANDLE_SUPPORTED = 104,
        HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED = 105,
        MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
        GENERIC_COMPRESSION_SUPPORTED = 107,
        MAX_PERSISTING_L2_CACHE_SIZE = 108,
        MAX_ACCESS_POLICY_WINDOW_SIZE = 109,
        GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
        RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
        SPARSE_CUDA_ARRAY_SUPPORTED = 112,
        READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
        TIMELINE_SEMAPHORE_INTEROP_SUPPORTED = 114,
        MEMORY_POOLS_SUPPORTED = 115,
        GPU_DIRECT_RDMA_SUPPORTED = 116,
        GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117,
        GPU_DIRECT_RDMA_WRITES_ORDERING = 118,
        MEMPOOL_SUPPORTED_HANDLE_TYPES = 119,
        CLUSTER_LAUNCH = 120,
        DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED = 121,
        CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
        CAN_USE_STREAM_WAIT_VALUE_NOR = 123,
        DMA_BUF_SUPPORTED = 124,
        IPC_EVENT_SUPPORTED = 125,
        MEM_SYNC_DOMAIN_COUNT = 126,
        TENSOR_MAP_ACCESS_SUPPORTED = 127,
        HANDLE_TYPE_FABRIC_SUPPORTED = 128,
        UNIFIED_FUNCTION_POINTERS = 129,
        NUMA_CONFIG = 130,
        NUMA_ID = 131,
        MULTICAST_SUPPORTED = 132,
        MPS_ENABLED = 133,
        HOST_NUMA_ID = 134,
        MEM_DECOMPRESS_ALGORITHM_MASK = 136,
        MEM_DECOMPRESS_MAXIMUM_LENGTH = 137,
        GPU_PCI_DEVICE_ID = 139,
        GPU_PCI_SUBSYSTEM_ID = 140,
        HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 141,
        HOST_NUMA_MEMORY_POOLS_SUPPORTED = 142,
        HOST_NUMA_MULTINODE_IPC_SUPPORTED = 143,
        HOST_MEMORY_POOLS_SUPPORTED = 144,
        HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 145,
        HOST_ALLOC_DMA_BUF_SUPPORTED = 146,
        ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED = 147,
        ATOMIC_REDUCTION_SUPPORTED = 148,
        LOCALITY_DOMAIN_COUNT = 149,
        MAX_OVERSIZED_SHARED_MEMORY_PER_BLOCK = 150,
        DMA_BUF_MMAP_SUPPORTED = 152,
        LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT = 157,
        TENSOR_MAP_LARGE_TENSOR_MIN_SIZE = 160,
        GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED = 161,
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
        DEVICE_NODE_UPDATE_SUPPORTED = 16,
        SHARED_MEMORY_MODE = 17,
    }

    /// An option for loading a module. Its value is in a pointer-sized slot, directly or as a
    /// pointer.
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
        NEW_SM3X_OPT = 15,
        FAST_COMPILE = 16,
        GLOBAL_SYMBOL_NAMES = 17,
        GLOBAL_SYMBOL_ADDRESSES = 18,
        GLOBAL_SYMBOL_COUNT = 19,
        LTO = 20,
        FTZ = 21,
        PREC_DIV = 22,
        PREC_SQRT = 23,
        FMA = 24,
        REFERENCED_KERNEL_NAMES = 25,
        REFERENCED_KERNEL_COUNT = 26,
        REFERENCED_VARIABLE_NAMES = 27,
        REFERENCED_VARIABLE_COUNT = 28,
        OPTIMIZE_UNUSED_DEVICE_VARIABLES = 29,
        POSITION_INDEPENDENT_CODE = 30,
        MIN_CTA_PER_SM = 31,
        MAX_THREADS_PER_BLOCK = 32,
        OVERRIDE_DIRECTIVE_VALUES = 33,
        SPLIT_COMPILE = 34,
        BINARY_LOADER_THREAD_COUNT = 35,
    }

    /// The location of the memory of a copy.
    CUmemorytype(c_uint) {
        HOST = 1,
        DEVICE = 2,
        ARRAY = 3,
        UNIFIED = 4,
    }

    /// The kind of a graph node.
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

    /// The result of `cuGraphInstantiateWithParams`.
    CUgraphInstantiateResult(c_int) {
        SUCCESS = 0,
        ERROR = 1,
        INVALID_STRUCTURE = 2,
        NODE_OPERATION_NOT_SUPPORTED = 3,
        MULTIPLE_CTXS_NOT_SUPPORTED = 4,
        CONDITIONAL_HANDLE_UNUSED = 5,
    }

    /// The result of `cuGraphExecUpdate_v2`, which describes the difference between two graphs.
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

    /// The calls that a capture forbids, and the threads it forbids them on.
    CUstreamCaptureMode(c_int) {
        GLOBAL = 0,
        THREAD_LOCAL = 1,
        RELAXED = 2,
    }

    /// The capture status of a stream.
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

    /// The result of `cuGetProcAddress_v2`.
    CUdriverProcAddressQueryResult(c_int) {
        SUCCESS = 0,
        SYMBOL_NOT_FOUND = 1,
        VERSION_NOT_SUFFICIENT = 2,
    }
    /// A limit of a context.
    CUlimit(c_int) {
        STACK_SIZE = 0,
        PRINTF_FIFO_SIZE = 1,
        MALLOC_HEAP_SIZE = 2,
        DEV_RUNTIME_SYNC_DEPTH = 3,
        DEV_RUNTIME_PENDING_LAUNCH_COUNT = 4,
        MAX_L2_FETCH_GRANULARITY = 5,
        PERSISTING_L2_CACHE_SIZE = 6,
        SHMEM_SIZE = 7,
        CIG_ENABLED = 8,
        CIG_SHMEM_FALLBACK_ENABLED = 9,
        PER_BLOCK_MEMORY_SIZE = 10,
    }
    /// The preference of a kernel for shared memory or L1 cache.
    CUfunc_cache(c_int) {
        PREFER_NONE = 0,
        PREFER_SHARED = 1,
        PREFER_L1 = 2,
        PREFER_EQUAL = 3,
    }
    /// The kind of an input of the linker.
    CUjitInputType(c_int) {
        CUBIN = 0,
        PTX = 1,
        FATBINARY = 2,
        OBJECT = 3,
        LIBRARY = 4,
        NVVM = 5,
    }
    /// An option for loading a library.
    CUlibraryOption(c_int) {
        HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE = 0,
        BINARY_IS_PRESERVED = 1,
    }
    /// The time at which the code of a module is loaded.
    CUmoduleLoadingMode(c_int) {
        EAGER_LOADING = 1,
        LAZY_LOADING = 2,
    }
    /// The loading state of a function.
    CUfunctionLoadingState(c_int) {
        UNLOADED = 0,
        LOADED = 1,
    }
    /// A property of a pair of devices.
    CUdevice_P2PAttribute(c_int) {
        PERFORMANCE_RANK = 1,
        ACCESS_SUPPORTED = 2,
        NATIVE_ATOMIC_SUPPORTED = 3,
        ACCESS_ACCESS_SUPPORTED = 4,
        ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED = 5,
    }
    /// The kind of affinity that restricts a context to part of a device.
    CUexecAffinityType(c_int) {
        SM_COUNT = 0,
    }
    /// A property of an address.
    CUpointer_attribute(c_int) {
        CONTEXT = 1,
        MEMORY_TYPE = 2,
        DEVICE_POINTER = 3,
        HOST_POINTER = 4,
        P2P_TOKENS = 5,
        SYNC_MEMOPS = 6,
        BUFFER_ID = 7,
        IS_MANAGED = 8,
        DEVICE_ORDINAL = 9,
        IS_LEGACY_CUDA_IPC_CAPABLE = 10,
        RANGE_START_ADDR = 11,
        RANGE_SIZE = 12,
        MAPPED = 13,
        ALLOWED_HANDLE_TYPES = 14,
        IS_GPU_DIRECT_RDMA_CAPABLE = 15,
        ACCESS_FLAGS = 16,
        MEMPOOL_HANDLE = 17,
        MAPPING_SIZE = 18,
        MAPPING_BASE_ADDR = 19,
        MEMORY_BLOCK_ID = 20,
        IS_HW_DECOMPRESS_CAPABLE = 21,
        LOCALITY_DOMAIN_ORDINAL = 22,
    }
    /// A property of a memory pool.
    CUmemPool_attribute(c_int) {
        REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
        REUSE_ALLOW_OPPORTUNISTIC = 2,
        REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
        RELEASE_THRESHOLD = 4,
        RESERVED_MEM_CURRENT = 5,
        RESERVED_MEM_HIGH = 6,
        USED_MEM_CURRENT = 7,
        USED_MEM_HIGH = 8,
        ALLOCATION_TYPE = 9,
        EXPORT_HANDLE_TYPES = 10,
        LOCATION_ID = 11,
        LOCATION_TYPE = 12,
        MAX_POOL_SIZE = 13,
        HW_DECOMPRESS_ENABLED = 14,
        LOCALITY_DOMAIN_ID = 15,
    }
    /// A property of the memory that graphs allocate.
    CUgraphMem_attribute(c_int) {
        USED_MEM_CURRENT = 0,
        USED_MEM_HIGH = 1,
        RESERVED_MEM_CURRENT = 2,
        RESERVED_MEM_HIGH = 3,
    }
    /// A hint about managed memory.
    CUmem_advise(c_int) {
        SET_READ_MOSTLY = 1,
        UNSET_READ_MOSTLY = 2,
        SET_PREFERRED_LOCATION = 3,
        UNSET_PREFERRED_LOCATION = 4,
        SET_ACCESSED_BY = 5,
        UNSET_ACCESSED_BY = 6,
    }
    /// A property of a range of managed memory.
    CUmem_range_attribute(c_int) {
        READ_MOSTLY = 1,
        PREFERRED_LOCATION = 2,
        ACCESSED_BY = 3,
        LAST_PREFETCH_LOCATION = 4,
        PREFERRED_LOCATION_TYPE = 5,
        PREFERRED_LOCATION_ID = 6,
        LAST_PREFETCH_LOCATION_TYPE = 7,
        LAST_PREFETCH_LOCATION_ID = 8,
    }
    /// The kind of a memory allocation.
    CUmemAllocationType(c_int) {
        INVALID = 0,
        PINNED = 1,
        MANAGED = 2,
    }
    /// The kind of a memory location.
    CUmemLocationType(c_int) {
        INVALID = 0,
        DEVICE = 1,
        HOST = 2,
        HOST_NUMA = 3,
        HOST_NUMA_CURRENT = 4,
        INVISIBLE = 5,
        DEVICE_LOCALITY_DOMAIN = 6,
    }
    /// The access of a device to memory.
    CUmemAccess_flags(c_int) {
        PROT_NONE = 0,
        PROT_READ = 1,
        PROT_READWRITE = 3,
    }
    /// The granularity of an allocation that is queried.
    CUmemAllocationGranularity_flags(c_int) {
        MINIMUM = 0,
        RECOMMENDED = 1,
    }
    /// The kind of handle with which memory is shared with other processes.
    CUmemAllocationHandleType(c_int) {
        NONE = 0,
        POSIX_FILE_DESCRIPTOR = 1,
        WIN32 = 2,
        WIN32_KMT = 4,
        FABRIC = 8,
    }
    /// The kind of handle with which an address range is shared.
    CUmemRangeHandleType(c_int) {
        DMA_BUF_FD = 1,
    }
    /// An operation of a stream on a word of memory.
    CUstreamBatchMemOpType(c_int) {
        WAIT_VALUE_32 = 1,
        WRITE_VALUE_32 = 2,
        WAIT_VALUE_64 = 4,
        WRITE_VALUE_64 = 5,
        BARRIER = 6,
        ATOMIC_REDUCTION = 8,
        FLUSH_REMOTE_WRITES = 3,
    }
    /// The kind of a conditional node.
    CUgraphConditionalNodeType(c_int) {
        IF = 0,
        WHILE = 1,
        SWITCH = 2,
    }
    /// The way in which a thread waits.
    CUsynchronizationPolicy(c_int) {
        AUTO = 1,
        SPIN = 2,
        YIELD = 3,
        BLOCKING_SYNC = 4,
    }
    /// The policy of the L2 cache for an access.
    CUaccessProperty(c_int) {
        NORMAL = 0,
        STREAMING = 1,
        PERSISTING = 2,
    }
    /// The severity of a log message.
    CUlogLevel(c_uint) {
        ERROR = 0,
        WARNING = 1,
    }
    /// The element type of a tensor.
    CUtensorMapDataType(c_int) {
        UINT8 = 0,
        UINT16 = 1,
        UINT32 = 2,
        INT32 = 3,
        UINT64 = 4,
        INT64 = 5,
        FLOAT16 = 6,
        FLOAT32 = 7,
        FLOAT64 = 8,
        BFLOAT16 = 9,
        FLOAT32_FTZ = 10,
        TFLOAT32 = 11,
        TFLOAT32_FTZ = 12,
        _16U4_ALIGN8B = 13,
        _16U4_ALIGN16B = 14,
        _16U6_ALIGN16B = 15,
    }
    /// The interleaving of the channels of a tensor.
    CUtensorMapInterleave(c_int) {
        NONE = 0,
        _16B = 1,
        _32B = 2,
    }
    /// The swizzle pattern of a box in shared memory.
    CUtensorMapSwizzle(c_int) {
        NONE = 0,
        _32B = 1,
        _64B = 2,
        _128B = 3,
        _128B_ATOM_32B = 4,
        _128B_ATOM_32B_FLIP_8B = 5,
        _128B_ATOM_64B = 6,
    }
    /// The number of bytes that an access promotes into the L2 cache.
    CUtensorMapL2promotion(c_int) {
        NONE = 0,
        L2_64B = 1,
        L2_128B = 2,
        L2_256B = 3,
    }
    /// The value of elements outside a tensor.
    CUtensorMapFloatOOBfill(c_int) {
        NONE = 0,
        NAN_REQUEST_ZERO_FMA = 1,
    }
    /// The part of an image that a wide box covers.
    CUtensorMapIm2ColWideMode(c_int) {
        W = 0,
        W128 = 1,
    }
    /// The target whose remote writes are flushed.
    CUflushGPUDirectRDMAWritesTarget(c_int) {
        TARGET_CURRENT_CTX = 0,
    }
    /// The scope in which remote writes become visible.
    CUflushGPUDirectRDMAWritesScope(c_int) {
        TO_OWNER = 100,
        TO_ALL_DEVICES = 200,
    }
    /// The comparison of a stream that waits for a word of memory.
    CUstreamWaitValue_flags(c_uint) {
        GEQ = 0,
        EQ = 1,
        AND = 2,
        NOR = 3,
        FLUSH = 0x4000_0000,
    }
}
