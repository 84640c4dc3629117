//! A driver of two devices that does nothing but count, remember and fail on request.
//!
//! State is per thread, so that tests do not meet: each test's calls come from its own thread.

#![allow(unsafe_code, dead_code, non_snake_case, unreachable_pub)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};

use warpwright_driver::sys::*;
use warpwright_driver::{Context, Driver};

/// What the driver remembers.
#[derive(Default)]
pub struct State {
    /// Every call, in order.
    pub calls: Vec<&'static str>,
    /// Calls that fail, each with its code, until removed.
    pub fail: HashMap<&'static str, CUresult>,
    /// What the compiler writes into its error log.
    pub log: &'static str,
    /// The contexts current on this thread, the last on top.
    pub current: Vec<CUcontext>,
    /// The nodes of all graphs, each with those it was added after.
    pub nodes: Vec<(CUgraphNode, Vec<CUgraphNode>)>,
    /// What a refused update says.
    pub update: Option<CUgraphExecUpdateResultInfo>,
    handles: usize,
    addresses: u64,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Looks at or changes this thread's driver.
pub fn state<R>(f: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(f)
}

/// How often a function was called.
pub fn count(name: &str) -> usize {
    state(|s| s.calls.iter().filter(|c| **c == name).count())
}

/// Lets a call fail from now on.
pub fn fail(name: &'static str, code: CUresult) {
    state(|s| s.fail.insert(name, code));
}

/// The driver, with a context on its first device.
pub fn context() -> Context {
    Context::new(&driver().device(0).unwrap()).unwrap()
}

/// The driver.
pub fn driver() -> Driver {
    Driver::from_library(library(api())).unwrap()
}

/// A library of these functions.
pub fn library(api: Api) -> &'static Library {
    // SAFETY: the functions do nothing with what they are given but what their bodies below say.
    unsafe { Library::from_api(api, "fake") }
}

fn enter(name: &'static str) -> CUresult {
    state(|s| {
        s.calls.push(name);
        s.fail.get(name).copied().unwrap_or(CUresult::SUCCESS)
    })
}

fn handle() -> *mut c_void {
    state(|s| {
        s.handles += 16;
        std::ptr::without_provenance_mut(s.handles)
    })
}

fn address(bytes: usize) -> u64 {
    state(|s| {
        let address = 0x7000_0000 + s.addresses;
        s.addresses += (bytes as u64).next_multiple_of(256);
        address
    })
}

unsafe fn add_node(node: *mut CUgraphNode, after: *const CUgraphNode, count: usize) {
    let new = CUgraphNode(handle());
    // SAFETY: the crate passes an array of `count` nodes, or none, and a place for the new one.
    unsafe {
        let after = if count == 0 {
            Vec::new()
        } else {
            std::slice::from_raw_parts(after, count).to_vec()
        };
        *node = new;
        state(|s| s.nodes.push((new, after)));
    }
}

/// `name(argument: type, ..) { what it does when it does not fail }`
macro_rules! fakes {
    ($($name:ident($($arg:ident: $ty:ty),*) { $($body:tt)* })*) => {
        /// The table.
        pub fn api() -> Api {
            let mut api = Api::empty();
            $(api.$name = {
                #[allow(unused_variables)]
                unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                    let code = enter(stringify!($name));
                    if code == CUresult::SUCCESS {
                        // SAFETY: the crate passes pointers to places of these types, which the
                        // tests rely on.
                        #[allow(unused_unsafe)]
                        unsafe { $($body)* }
                    }
                    code
                }
                ($name as unsafe extern "C" fn($($ty),*) -> CUresult).into()
            };)*
            api
        }
    };
}

fakes! {
    cuInit(flags: u32) {}
    cuDriverGetVersion(version: *mut i32) { *version = 12040 }
    cuDeviceGet(device: *mut i32, ordinal: i32) { *device = ordinal }
    cuDeviceGetCount(count: *mut i32) { *count = 2 }
    cuDeviceGetName(name: *mut c_char, len: i32, device: i32) { name.copy_from(c"Fake".as_ptr(), 5) }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) { *bytes = 1 << 30 }
    cuDeviceGetAttribute(value: *mut i32, attribute: CUdevice_attribute, device: i32) {
        *value = match attribute {
            CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR => 8,
            CUdevice_attribute::COMPUTE_CAPABILITY_MINOR => 0,
            CUdevice_attribute::MAX_GRID_DIM_X => i32::MAX,
            CUdevice_attribute::MAX_GRID_DIM_Y | CUdevice_attribute::MAX_GRID_DIM_Z => 65535,
            CUdevice_attribute::MAX_SHARED_MEMORY_PER_BLOCK => 48 << 10,
            CUdevice_attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 163 << 10,
            _ => 1024,
        }
    }
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: i32) {
        *context = CUcontext(std::ptr::without_provenance_mut(0xc000 + device as usize));
    }
    cuDevicePrimaryCtxRelease_v2(device: i32) {}
    cuCtxGetCurrent(context: *mut CUcontext) { *context = state(|s| s.current.last().copied()).unwrap_or(CUcontext::NULL) }
    cuCtxPushCurrent_v2(context: CUcontext) { state(|s| s.current.push(context)) }
    cuCtxPopCurrent_v2(context: *mut CUcontext) { *context = state(|s| s.current.pop()).unwrap() }
    cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: u32, options: *mut CUjit_option, values: *mut *mut c_void) {
        *module = CUmodule(handle());
    }
    cuModuleUnload(module: CUmodule) {}
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) { *function = CUfunction(handle()) }
    cuFuncGetAttribute(value: *mut i32, attribute: CUfunction_attribute, function: CUfunction) {
        *value = match attribute {
            CUfunction_attribute::MAX_THREADS_PER_BLOCK => 256,
            CUfunction_attribute::NUM_REGS => 128,
            CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => 48 << 10,
            CUfunction_attribute::SHARED_SIZE_BYTES => 512,
            _ => 0,
        }
    }
    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: i32) {}
    cuMemAlloc_v2(to: *mut u64, bytes: usize) { *to = address(bytes) }
    cuMemFree_v2(address: u64) {}
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) { (*free, *total) = (100, 1 << 30) }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: CUstream) {}
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: CUstream) {}
    cuStreamCreate(stream: *mut CUstream, flags: CUstream_flags) { *stream = CUstream(handle()) }
    cuStreamDestroy_v2(stream: CUstream) {}
    cuStreamSynchronize(stream: CUstream) {}
    cuStreamQuery(stream: CUstream) {}
    cuEventCreate(event: *mut CUevent, flags: CUevent_flags) { *event = CUevent(handle()) }
    cuEventDestroy_v2(event: CUevent) {}
    cuEventRecord(event: CUevent, stream: CUstream) {}
    cuEventQuery(event: CUevent) {}
    cuLaunchKernel(f: CUfunction, x: u32, y: u32, z: u32, a: u32, b: u32, c: u32, shared: u32, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) {}
    cuGraphCreate(graph: *mut CUgraph, flags: u32) { *graph = CUgraph(handle()) }
    cuGraphDestroy(graph: CUgraph) {}
    cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2) { add_node(node, after, count) }
    cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D_v2, context: CUcontext) { add_node(node, after, count) }
    cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) { add_node(node, after, count) }
    cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize) { add_node(node, after, count) }
    cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) {}
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: CUgraphInstantiate_flags) { *exec = CUgraphExec(handle()) }
    cuGraphExecDestroy(exec: CUgraphExec) {}
    cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2) {}
    cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32) {}
    cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) {}
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) { *graph = CUgraph(handle()) }
    cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) { *status = CUstreamCaptureStatus::NONE }
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) { *count = 0 }
    cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) { *count = 0 }
    cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, count: *mut usize) { *count = 0 }
}

/// The table, with a compiler that refuses and writes the state's log, and an update that refuses
/// and says why.
pub fn refusing_api() -> Api {
    unsafe extern "C" fn load(
        _: *mut CUmodule,
        image: *const c_void,
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> CUresult {
        // SAFETY: the crate passes a C string, and arrays of `count` options and values.
        unsafe {
            assert!(!CStr::from_ptr(image.cast()).is_empty());
            let options = std::slice::from_raw_parts(options, count as usize);
            let at = options
                .iter()
                .position(|o| *o == CUjit_option::ERROR_LOG_BUFFER)
                .unwrap();
            let log = state(|s| s.log);
            (*values.add(at))
                .cast::<u8>()
                .copy_from(log.as_ptr(), log.len());
        }
        CUresult::INVALID_PTX
    }
    unsafe extern "C" fn update(
        _: CUgraphExec,
        _: CUgraph,
        info: *mut CUgraphExecUpdateResultInfo,
    ) -> CUresult {
        // SAFETY: the crate passes a place for the result.
        unsafe { *info = state(|s| s.update).unwrap() };
        CUresult::GRAPH_EXEC_UPDATE_FAILURE
    }
    Api {
        cuModuleLoadDataEx: load,
        cuGraphExecUpdate_v2: Some(update),
        ..api()
    }
}
