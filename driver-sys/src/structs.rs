//! Structures that cross the FFI boundary. Their sizes and field offsets are checked at compile
//! time.

use std::ffi::{c_char, c_float, c_int, c_uchar, c_uint, c_ushort, c_void};

use crate::codes::*;
use crate::handles::*;
use crate::result::CUresult;

macro_rules! structs {
    ($($(#[$doc:meta])* struct $name:ident: $size:literal { $($offset:literal $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $(#[doc = concat!("At byte ", $offset, ".")] pub $field: $type,)*
        }

        impl $name {
            /// Returns a value of all zero bytes, which the driver requires in unused fields.
            pub const fn zeroed() -> Self {
                // SAFETY: every field is an integer, a handle, a pointer or an optional function.
                // Zero is a valid value of each.
                unsafe { std::mem::zeroed() }
            }
        }

        const _: () = {
            assert!(size_of::<$name>() == $size, concat!("size of ", stringify!($name)));
            $(assert!(std::mem::offset_of!($name, $field) == $offset,
                concat!("offset of ", stringify!($name), ".", stringify!($field)));)*
        };
    )*};
}

pub(crate) use structs;

/// A host function that a graph node calls.
pub type CUhostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// A host function that the driver calls when a stream reaches it.
pub type CUstreamCallback =
    Option<unsafe extern "C" fn(stream: CUstream, status: CUresult, user_data: *mut c_void)>;

/// A function that returns the dynamic shared memory in bytes for a block size.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(block_size: c_int) -> usize>;

/// A function that the driver calls with a log message.
pub type CUlogsCallback = Option<
    unsafe extern "C" fn(data: *mut c_void, level: CUlogLevel, message: *mut c_char, length: usize),
>;

/// An opaque position in the driver's log. 0 is the beginning.
pub type CUlogIterator = c_uint;

structs! {
    /// A kernel node as declared by CUDA 10. It is separate from v2, because the functions that
    /// take it read 56 bytes.
    struct CUDA_KERNEL_NODE_PARAMS_v1: 56 {
        0 func: CUfunction,
        8 gridDimX: c_uint,
        12 gridDimY: c_uint,
        16 gridDimZ: c_uint,
        20 blockDimX: c_uint,
        24 blockDimY: c_uint,
        28 blockDimZ: c_uint,
        32 sharedMemBytes: c_uint,
        40 kernelParams: *mut *mut c_void,
        48 extra: *mut *mut c_void,
    }

    /// A kernel node since CUDA 12.0. `kern` is used if `func` is null, and `ctx` only then.
    struct CUDA_KERNEL_NODE_PARAMS_v2: 72 {
        0 func: CUfunction,
        8 gridDimX: c_uint,
        12 gridDimY: c_uint,
        16 gridDimZ: c_uint,
        20 blockDimX: c_uint,
        24 blockDimY: c_uint,
        28 blockDimZ: c_uint,
        32 sharedMemBytes: c_uint,
        40 kernelParams: *mut *mut c_void,
        48 extra: *mut *mut c_void,
        56 kern: CUkernel,
        64 ctx: CUcontext,
    }

    /// A memset node: `height` rows of `width` elements of `elementSize` bytes (1, 2 or 4), `pitch`
    /// bytes apart.
    struct CUDA_MEMSET_NODE_PARAMS_v1: 40 {
        0 dst: CUdeviceptr,
        8 pitch: usize,
        16 value: c_uint,
        20 elementSize: c_uint,
        24 width: usize,
        32 height: usize,
    }

    /// A copy of a box of bytes. A contiguous copy has `Height` and `Depth` 1.
    struct CUDA_MEMCPY3D_v2: 200 {
        0 srcXInBytes: usize,
        8 srcY: usize,
        16 srcZ: usize,
        24 srcLOD: usize,
        32 srcMemoryType: CUmemorytype,
        40 srcHost: *const c_void,
        48 srcDevice: CUdeviceptr,
        56 srcArray: CUarray,
        64 reserved0: *mut c_void,
        72 srcPitch: usize,
        80 srcHeight: usize,
        88 dstXInBytes: usize,
        96 dstY: usize,
        104 dstZ: usize,
        112 dstLOD: usize,
        120 dstMemoryType: CUmemorytype,
        128 dstHost: *mut c_void,
        136 dstDevice: CUdeviceptr,
        144 dstArray: CUarray,
        152 reserved1: *mut c_void,
        160 dstPitch: usize,
        168 dstHeight: usize,
        176 WidthInBytes: usize,
        184 Height: usize,
        192 Depth: usize,
    }

    /// A memset node of `cuGraphAddNode`, with its context.
    struct CUDA_MEMSET_NODE_PARAMS_v2: 48 {
        0 dst: CUdeviceptr,
        8 pitch: usize,
        16 value: c_uint,
        20 elementSize: c_uint,
        24 width: usize,
        32 height: usize,
        40 ctx: CUcontext,
    }
    /// A copy of a rectangle of bytes.
    struct CUDA_MEMCPY2D_v2: 128 {
        0 srcXInBytes: usize,
        8 srcY: usize,
        16 srcMemoryType: CUmemorytype,
        24 srcHost: *const c_void,
        32 srcDevice: CUdeviceptr,
        40 srcArray: CUarray,
        48 srcPitch: usize,
        56 dstXInBytes: usize,
        64 dstY: usize,
        72 dstMemoryType: CUmemorytype,
        80 dstHost: *mut c_void,
        88 dstDevice: CUdeviceptr,
        96 dstArray: CUarray,
        104 dstPitch: usize,
        112 WidthInBytes: usize,
        120 Height: usize,
    }
    /// A copy of a box of bytes between contexts.
    struct CUDA_MEMCPY3D_PEER: 200 {
        0 srcXInBytes: usize,
        8 srcY: usize,
        16 srcZ: usize,
        24 srcLOD: usize,
        32 srcMemoryType: CUmemorytype,
        40 srcHost: *const c_void,
        48 srcDevice: CUdeviceptr,
        56 srcArray: CUarray,
        64 srcContext: CUcontext,
        72 srcPitch: usize,
        80 srcHeight: usize,
        88 dstXInBytes: usize,
        96 dstY: usize,
        104 dstZ: usize,
        112 dstLOD: usize,
        120 dstMemoryType: CUmemorytype,
        128 dstHost: *mut c_void,
        136 dstDevice: CUdeviceptr,
        144 dstArray: CUarray,
        152 dstContext: CUcontext,
        160 dstPitch: usize,
        168 dstHeight: usize,
        176 WidthInBytes: usize,
        184 Height: usize,
        192 Depth: usize,
    }
    /// A copy node of `cuGraphAddNode`. `flags` and `reserved` are zero.
    struct CUDA_MEMCPY_NODE_PARAMS: 216 {
        0 flags: c_int,
        4 reserved: c_int,
        8 copyCtx: CUcontext,
        16 copyParams: CUDA_MEMCPY3D_v2,
    }
    /// A child graph node of `cuGraphAddNode`. `ownership` is 0 to clone the graph, or 1 to move it
    /// (since CUDA 12.9).
    struct CUDA_CHILD_GRAPH_NODE_PARAMS: 16 {
        0 graph: CUgraph,
        8 ownership: c_int,
    }
    /// An event record node of `cuGraphAddNode`. `ctx` exists since CUDA 13.4.
    struct CUDA_EVENT_RECORD_NODE_PARAMS: 16 {
        0 event: CUevent,
        8 ctx: CUcontext,
    }
    /// An event wait node of `cuGraphAddNode`.
    struct CUDA_EVENT_WAIT_NODE_PARAMS: 8 {
        0 event: CUevent,
    }
    /// A memory free node of `cuGraphAddNode`.
    struct CUDA_MEM_FREE_NODE_PARAMS: 8 {
        0 dptr: CUdeviceptr,
    }
    /// A memory location.
    struct CUmemLocation: 8 {
        0 r#type: CUmemLocationType,
        4 id: c_int,
    }
    /// The access of a location to memory.
    struct CUmemAccessDesc: 12 {
        0 location: CUmemLocation,
        8 flags: CUmemAccess_flags,
    }
    /// The properties of a new memory pool. Unused fields are zero.
    struct CUmemPoolProps: 88 {
        0 allocType: CUmemAllocationType,
        4 handleTypes: CUmemAllocationHandleType,
        8 location: CUmemLocation,
        16 win32SecurityAttributes: *mut c_void,
        24 maxSize: usize,
        32 usage: c_ushort,
        34 reserved: [c_uchar; 54],
    }
    /// A pointer of a pool, exported for another process.
    struct CUmemPoolPtrExportData: 64 {
        0 reserved: [c_uchar; 64],
    }
    /// The properties of new physical memory.
    struct CUmemAllocationProp: 32 {
        0 r#type: CUmemAllocationType,
        4 requestedHandleTypes: CUmemAllocationHandleType,
        8 location: CUmemLocation,
        16 win32HandleMetaData: *mut c_void,
        24 compressionType: c_uchar,
        25 gpuDirectRDMACapable: c_uchar,
        26 usage: c_ushort,
        28 reserved: [c_uchar; 4],
    }
    /// A memory allocation node. The driver writes `dptr` when the node is added.
    struct CUDA_MEM_ALLOC_NODE_PARAMS_v1: 120 {
        0 poolProps: CUmemPoolProps,
        88 accessDescs: *const CUmemAccessDesc,
        96 accessDescCount: usize,
        104 bytesize: usize,
        112 dptr: CUdeviceptr,
    }
    /// An operation of a stream on a word of memory. A 32-bit value is in the low half of `value`.
    struct CUstreamBatchMemOpParams: 48 {
        0 operation: CUstreamBatchMemOpType,
        8 address: CUdeviceptr,
        16 value: u64,
        24 flags: c_uint,
        32 alias: CUdeviceptr,
        40 pad: u64,
    }
    /// A node of operations on words of memory.
    struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v1: 32 {
        0 ctx: CUcontext,
        8 count: c_uint,
        16 paramArray: *mut CUstreamBatchMemOpParams,
        24 flags: c_uint,
    }
    /// A conditional node. The driver writes `phGraph_out`, the bodies, which belong to the node.
    struct CUDA_CONDITIONAL_NODE_PARAMS: 32 {
        0 handle: CUgraphConditionalHandle,
        8 r#type: CUgraphConditionalNodeType,
        12 size: c_uint,
        16 phGraph_out: *mut CUgraph,
        24 ctx: CUcontext,
    }
    /// The number of multiprocessors that a context is restricted to.
    struct CUexecAffinityParam: 8 {
        0 r#type: CUexecAffinityType,
        4 smCount: c_uint,
    }
    /// The parameters of a new context. `cigParams` is for graphics and is null.
    struct CUctxCreateParams: 24 {
        0 execAffinityParams: *mut CUexecAffinityParam,
        8 numExecAffinityParams: c_int,
        16 cigParams: *mut c_void,
    }
    /// An access window of the L2 cache, as the value of an attribute.
    struct CUaccessPolicyWindow: 32 {
        0 base_ptr: *mut c_void,
        8 num_bytes: usize,
        16 hitRatio: c_float,
        20 hitProp: CUaccessProperty,
        24 missProp: CUaccessProperty,
    }
    /// Memory of this process, exported for another one.
    struct CUipcMemHandle: 64 {
        0 reserved: [c_char; 64],
    }
    /// An event of this process, exported for another one.
    struct CUipcEventHandle: 64 {
        0 reserved: [c_char; 64],
    }
    /// A host node.
    struct CUDA_HOST_NODE_PARAMS_v1: 16 {
        0 r#fn: CUhostFn,
        8 userData: *mut c_void,
    }

    /// A host node of `cuGraphAddNode` as declared by CUDA 13.4. CUDA 12.2 has the first 16 bytes,
    /// and 13.2 the first 24.
    struct CUDA_HOST_NODE_PARAMS_v2: 32 {
        0 r#fn: CUhostFn,
        8 userData: *mut c_void,
        16 syncMode: c_uint,
        24 ctx: CUcontext,
    }
    /// The value of an attribute of a launch, a stream or a kernel node. Integers are at the start.
    /// A cluster consists of three 32-bit numbers.
    struct CUlaunchAttributeValue: 64 {
        0 words: [u64; 8],
    }
    /// A node of any kind, for `cuGraphAddNode_v2`. Every byte after the member that `type` selects
    /// is zero.
    struct CUgraphNodeParams: 256 {
        0 r#type: CUgraphNodeType,
        4 reserved0: [c_int; 3],
        16 params: [u64; 29],
        248 reserved2: i64,
    }

    /// A `CUgraphNodeParams` for a kernel: the same bytes, with the member that the type selects.
    struct CUgraphNodeParams_kernel: 256 {
        0 r#type: CUgraphNodeType,
        4 reserved0: [c_int; 3],
        16 kernel: CUDA_KERNEL_NODE_PARAMS_v2,
        88 rest: [u64; 20],
        248 reserved2: i64,
    }

    /// The kind of an edge. All zero is a full dependency, and a programmatic edge is `{1, 0, 1}`.
    struct CUgraphEdgeData: 8 {
        0 from_port: c_uchar,
        1 to_port: c_uchar,
        2 r#type: c_uchar,
        3 reserved: [c_uchar; 5],
    }

    /// A launch attribute. Integers are at the start of `value`. A cluster consists of three 32-bit
    /// numbers.
    struct CUlaunchAttribute: 72 {
        0 id: CUlaunchAttributeID,
        4 pad: [c_char; 4],
        8 value: [u64; 8],
    }

    /// A launch with attributes.
    struct CUlaunchConfig: 56 {
        0 gridDimX: c_uint,
        4 gridDimY: c_uint,
        8 gridDimZ: c_uint,
        12 blockDimX: c_uint,
        16 blockDimY: c_uint,
        20 blockDimZ: c_uint,
        24 sharedMemBytes: c_uint,
        32 hStream: CUstream,
        40 attrs: *mut CUlaunchAttribute,
        48 numAttrs: c_uint,
    }

    /// Options for an instantiation, and the node that failed.
    struct CUDA_GRAPH_INSTANTIATE_PARAMS: 32 {
        0 flags: u64,
        8 hUploadStream: CUstream,
        16 hErrNode_out: CUgraphNode,
        24 result_out: CUgraphInstantiateResult,
    }

    /// The reason why a graph update was refused.
    struct CUgraphExecUpdateResultInfo: 24 {
        0 result: CUgraphExecUpdateResult,
        8 errorNode: CUgraphNode,
        16 errorFromNode: CUgraphNode,
    }

    /// The UUID of a device, which does not change across restarts.
    struct CUuuid: 16 {
        0 bytes: [c_uchar; 16],
    }
}

/// The opaque description of a tensor, which functions such as `cuTensorMapEncodeTiled` write.
///
/// The alignment is that of the headers of CUDA 13. Those of CUDA 12 require 64 bytes.
#[repr(C, align(128))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CUtensorMap {
    /// The contents, which only the hardware reads.
    pub opaque: [u64; 16],
}

impl CUtensorMap {
    /// Returns a value of all zero bytes, which does not describe a tensor.
    pub const fn zeroed() -> Self {
        Self { opaque: [0; 16] }
    }
}

const _: () = assert!(size_of::<CUtensorMap>() == 128 && align_of::<CUtensorMap>() == 128);
