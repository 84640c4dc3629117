//! Structures that cross the FFI boundary, each with its size and the offset of each field, checked when this crate compiles.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};

use crate::constants::*;
use crate::handles::*;

macro_rules! structs {
    ($($(#[$doc:meta])* struct $name:ident: $size:literal { $($offset:literal $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $(#[doc = concat!("At byte ", $offset, ".")] pub $field: $type,)*
        }

        impl $name {
            /// All bytes zero, which is what the driver asks of fields that are not used.
            pub const fn zeroed() -> Self {
                // SAFETY: every field is an integer, a handle, a pointer or an optional function; zero is a value of each.
                unsafe { std::mem::zeroed() }
            }
        }

        const _: () = assert!(size_of::<$name>() == $size, concat!("size of ", stringify!($name)));
        $(const _: () = assert!(std::mem::offset_of!($name, $field) == $offset,
            concat!("offset of ", stringify!($name), ".", stringify!($field)));)*
    )*};
}

/// A function that the driver calls on the host, as a node of a graph.
pub type CUhostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// A place in the driver's log, opaque; 0 is its beginning.
pub type CUlogIterator = c_uint;

structs! {
    /// A kernel node as CUDA 10 declared it. Kept apart from v2: the symbols that take it read 56 bytes.
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

    /// A kernel node since CUDA 12.0. `kern` is used when `func` is null, and `ctx` only then.
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

    /// A memset node: `height` rows of `width` elements of `elementSize` bytes (1, 2 or 4), `pitch` bytes apart.
    struct CUDA_MEMSET_NODE_PARAMS_v1: 40 {
        0 dst: CUdeviceptr,
        8 pitch: usize,
        16 value: c_uint,
        20 elementSize: c_uint,
        24 width: usize,
        32 height: usize,
    }

    /// A copy of a box of bytes. A plain run of bytes has `Height` and `Depth` 1.
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

    /// A host node.
    struct CUDA_HOST_NODE_PARAMS_v1: 16 {
        0 r#fn: CUhostFn,
        8 userData: *mut c_void,
    }

    /// A node of any type, for `cuGraphAddNode_v2`. Every byte past the member that `type` selects is zero.
    struct CUgraphNodeParams: 256 {
        0 r#type: CUgraphNodeType,
        4 reserved0: [c_int; 3],
        16 params: [u64; 29],
        248 reserved2: i64,
    }

    /// `CUgraphNodeParams` of a kernel: the same bytes, with the member that the type selects.
    struct CUgraphNodeParams_kernel: 256 {
        0 r#type: CUgraphNodeType,
        4 reserved0: [c_int; 3],
        16 kernel: CUDA_KERNEL_NODE_PARAMS_v2,
        88 rest: [u64; 20],
        248 reserved2: i64,
    }

    /// What an edge waits for. All zero is a full dependency; a programmatic edge is `{1, 0, 1}`.
    struct CUgraphEdgeData: 8 {
        0 from_port: c_uchar,
        1 to_port: c_uchar,
        2 r#type: c_uchar,
        3 reserved: [c_uchar; 5],
    }

    /// A launch attribute: integers stand at the start of `value`, a cluster as three 32-bit numbers.
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

    /// How to instantiate, and where it failed.
    struct CUDA_GRAPH_INSTANTIATE_PARAMS: 32 {
        0 flags: u64,
        8 hUploadStream: CUstream,
        16 hErrNode_out: CUgraphNode,
        24 result_out: CUgraphInstantiateResult,
    }

    /// Why a whole-graph update was refused.
    struct CUgraphExecUpdateResultInfo: 24 {
        0 result: CUgraphExecUpdateResult,
        8 errorNode: CUgraphNode,
        16 errorFromNode: CUgraphNode,
    }

    /// A device's identity across reboots.
    struct CUuuid: 16 {
        0 bytes: [c_uchar; 16],
    }
}
