//! The table: one line per driver function. The typed field, the loader and the list of names derive from it.
//!
//! A line reads `version name(arguments)`, where the version is that of the CUDA release whose driver first exported
//! the symbol, as the driver counts (12040 is 12.4), and the arguments are those of the prototype in `cuda.h`.

use std::ffi::{CStr, c_char, c_float, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::fmt;

use crate::constants::*;
use crate::handles::*;
use crate::result::CUresult;
use crate::structs::*;

/// One line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// The exported name.
    pub name: &'static str,
    /// The CUDA version that introduced it, 1000 * major + 10 * minor; 0 for what only an emulator has.
    pub since: i32,
    /// Whether a driver without it is refused.
    pub required: bool,
}

/// A driver lacks a function that the table requires.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MissingSymbol {
    /// The exported name.
    pub name: &'static str,
    /// The CUDA version that introduced it, 1000 * major + 10 * minor.
    pub since: i32,
}

impl fmt::Display for MissingSymbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (self.since / 1000, self.since % 1000 / 10);
        write!(f, "the driver lacks {}, which CUDA {major}.{minor} introduced", self.name)
    }
}

impl std::error::Error for MissingSymbol {}

macro_rules! api {
    (
        required { $($since:literal $f:ident($($a:ident: $t:ty),*);)* }
        optional { $($osince:literal $o:ident($($oa:ident: $ot:ty),*);)* }
    ) => {
        /// The driver's entry points. A field carries the exported name of its function.
        #[derive(Clone)]
        pub struct Api {
            $(
                #[doc = concat!("`", stringify!($f), "`, exported since ", $since, ".")]
                pub $f: unsafe extern "C" fn($($a: $t),*) -> CUresult,
            )*
            $(
                #[doc = concat!("`", stringify!($o), "`, exported since ", $osince, "; none where the driver lacks it.")]
                pub $o: Option<unsafe extern "C" fn($($oa: $ot),*) -> CUresult>,
            )*
        }

        impl Api {
            /// Every function of the table: the required ones, then the optional ones.
            pub const NAMES: &[Function] = &[
                $(Function { name: stringify!($f), since: $since, required: true },)*
                $(Function { name: stringify!($o), since: $osince, required: false },)*
            ];

            /// Resolves the table through `symbol`, which gives null for a name it does not know.
            ///
            /// # Errors
            /// The first required function that is missing.
            ///
            /// # Safety
            /// - What `symbol` returns for a name is null or the function that `cuda.h` declares under that name.
            /// - It stays valid for as long as the table or a copy of it is called.
            pub unsafe fn load(mut symbol: impl FnMut(&CStr) -> *const c_void) -> Result<Self, MissingSymbol> {
                Ok(Self {
                    $($f: {
                        let found = symbol(c_name(concat!(stringify!($f), "\0")));
                        // SAFETY: the caller vouches for the type; null becomes `None`.
                        unsafe { std::mem::transmute::<*const c_void, Option<unsafe extern "C" fn($($t),*) -> CUresult>>(found) }
                            .ok_or(MissingSymbol { name: stringify!($f), since: $since })?
                    },)*
                    $($o: {
                        let found = symbol(c_name(concat!(stringify!($o), "\0")));
                        // SAFETY: the caller vouches for the type; null becomes `None`.
                        unsafe { std::mem::transmute::<*const c_void, Option<unsafe extern "C" fn($($ot),*) -> CUresult>>(found) }
                    },)*
                })
            }

            /// A table whose required functions return `NOT_SUPPORTED` and whose optional ones are absent: what a test
            /// starts from, replacing the fields it needs.
            pub fn empty() -> Self {
                Self {
                    $($f: {
                        unsafe extern "C" fn refuse($(_: $t),*) -> CUresult {
                            CUresult::NOT_SUPPORTED
                        }
                        refuse
                    },)*
                    $($o: None,)*
                }
            }
        }
    };
}

/// The C string in a literal that the table's macro ended with NUL.
fn c_name(literal: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(literal.as_bytes()).expect("the literal ends with its only NUL")
}

api! {
    required {
        // Start, version, errors.
        2000 cuInit(flags: c_uint);
        2020 cuDriverGetVersion(version: *mut c_int);
        6000 cuGetErrorName(error: CUresult, text: *mut *const c_char);
        6000 cuGetErrorString(error: CUresult, text: *mut *const c_char);

        // Devices.
        2000 cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        2000 cuDeviceGetCount(count: *mut c_int);
        2000 cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
        3020 cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        2000 cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
        11040 cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);

        // Contexts.
        7000 cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        11000 cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        4000 cuCtxSetCurrent(context: CUcontext);
        4000 cuCtxGetCurrent(context: *mut CUcontext);
        4000 cuCtxPushCurrent_v2(context: CUcontext);
        4000 cuCtxPopCurrent_v2(context: *mut CUcontext);
        2000 cuCtxGetDevice(device: *mut CUdevice);
        2000 cuCtxSynchronize();

        // Modules and functions.
        2010 cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void);
        2000 cuModuleUnload(module: CUmodule);
        2000 cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        3020 cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
        2020 cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);
        9000 cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
        6050 cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_shared: usize);

        // Memory.
        3020 cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
        3020 cuMemFree_v2(address: CUdeviceptr);
        3020 cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        2020 cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: CUmemhostalloc_flags);
        2000 cuMemFreeHost(pointer: *mut c_void);
        6050 cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: CUmemhostregister_flags);
        4000 cuMemHostUnregister(pointer: *mut c_void);
        3020 cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint);
        11020 cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
        11020 cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);

        // Copies and fills.
        3020 cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize);
        3020 cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
        3020 cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
        3020 cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
        3020 cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
        3020 cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
        3020 cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize);
        3020 cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize);
        3020 cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize);
        3020 cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);
        3020 cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream);
        3020 cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);

        // Streams and events.
        2000 cuStreamCreate(stream: *mut CUstream, flags: CUstream_flags);
        4000 cuStreamDestroy_v2(stream: CUstream);
        2000 cuStreamSynchronize(stream: CUstream);
        2000 cuStreamQuery(stream: CUstream);
        3020 cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        2000 cuEventCreate(event: *mut CUevent, flags: CUevent_flags);
        4000 cuEventDestroy_v2(event: CUevent);
        2000 cuEventRecord(event: CUevent, stream: CUstream);
        2000 cuEventSynchronize(event: CUevent);
        2000 cuEventQuery(event: CUevent);
        2000 cuEventElapsedTime(milliseconds: *mut c_float, start: CUevent, end: CUevent);

        // Launch.
        4000 cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);

        // Graphs: building.
        10000 cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
        10000 cuGraphDestroy(graph: CUgraph);
        10000 cuGraphClone(clone: *mut CUgraph, original: CUgraph);
        12000 cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2);
        10000 cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D_v2, context: CUcontext);
        10000 cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext);
        10000 cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize);
        10000 cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS_v1);
        10000 cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph);
        11010 cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent);
        11010 cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent);
        10000 cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
        10000 cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
        10000 cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
        10000 cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType);
        12000 cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v2);
        12000 cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2);
        11030 cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: CUgraphDebugDot_flags);

        // Graphs: running.
        11040 cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: CUgraphInstantiate_flags);
        11010 cuGraphUpload(exec: CUgraphExec, stream: CUstream);
        10000 cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
        10000 cuGraphExecDestroy(exec: CUgraphExec);
        12000 cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2);
        12000 cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo);
        11060 cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint);
        11060 cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint);

        // Capture.
        10010 cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
        10000 cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        10000 cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
        11030 cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, count: *mut usize);
        10010 cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
    }
    optional {
        12000 cuGetProcAddress_v2(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, found: *mut CUdriverProcAddressQueryResult);
        11060 cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void);
        12000 cuGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS);
        12030 cuFuncGetName(name: *mut *const c_char, function: CUfunction);
        12030 cuGraphAddNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams);
        12030 cuGraphAddDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize);
        12030 cuGraphGetEdges_v2(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
        12040 cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
        12040 cuFuncLoad(function: CUfunction);
        12090 cuLogsCurrent(iterator: *mut CUlogIterator, flags: c_uint);
        12090 cuLogsDumpToMemory(iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint);

        // No driver has this: an emulator may, to name the allocation at `address` in its faults.
        0 emuMemSetLabel(address: CUdeviceptr, label: *const c_char);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_each_function_once_and_with_a_version() {
        let mut names: Vec<_> = Api::NAMES.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Api::NAMES.len());
        for f in Api::NAMES {
            let of_a_driver = f.name.starts_with("cu") && (2000..=13050).contains(&f.since);
            assert!(of_a_driver || (f.name.starts_with("emu") && f.since == 0 && !f.required), "{f:?}");
            assert!(!f.required || f.since <= 12000, "{} needs more than the base driver", f.name);
        }
    }

    #[test]
    fn a_missing_function_is_named_with_the_version_that_has_it() {
        // SAFETY: null is allowed for every name.
        let missing = unsafe { Api::load(|_| std::ptr::null()) }.err().unwrap();
        assert_eq!(missing.to_string(), "the driver lacks cuInit, which CUDA 2.0 introduced");
    }

    #[test]
    fn optional_functions_may_be_missing() {
        let empty = Api::empty();
        let required: Vec<_> = Api::NAMES.iter().filter(|f| f.required).map(|f| f.name).collect();
        let address = empty.cuInit as *const c_void;
        let symbol = |name: &CStr| {
            if required.contains(&name.to_str().unwrap()) { address } else { std::ptr::null() }
        };
        // SAFETY: only `cuInit` is called, and its address is of its type.
        let api = unsafe { Api::load(symbol) }.unwrap();
        // SAFETY: the function ignores its argument.
        assert_eq!(unsafe { (api.cuInit)(0) }, CUresult::NOT_SUPPORTED);
        assert!(api.cuLaunchKernelEx.is_none());
    }
}
