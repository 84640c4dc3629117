// The functions of a driver that does nothing. `stub/mod.rs` and the library of
// `tests/outside/compare` include this file, each with its own `stubs!` macro.

/// Returns a number that was not used before as a handle or an address.
fn next() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 20);
    NEXT.fetch_add(1 << 12, Relaxed)
}

fn handle() -> *mut c_void {
    std::ptr::without_provenance_mut(next())
}

/// The context that is current on every thread.
const CONTEXT: CUcontext = CUcontext(std::ptr::without_provenance_mut(0xc000));

stubs! {
    cuInit(flags: u32) {}
    cuDriverGetVersion(version: *mut i32) { *version = 12040 }
    cuGetErrorName(error: CUresult, text: *mut *const c_char) { *text = c"".as_ptr() }
    cuGetErrorString(error: CUresult, text: *mut *const c_char) { *text = c"".as_ptr() }
    cuDeviceGet(device: *mut i32, ordinal: i32) { *device = ordinal }
    cuDeviceGetCount(count: *mut i32) { *count = 1 }
    cuDeviceGetName(name: *mut c_char, len: i32, device: i32) { name.copy_from(c"Stub".as_ptr(), 5) }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) { *bytes = 1 << 30 }
    cuDeviceGetAttribute(value: *mut i32, attribute: CUdevice_attribute, device: i32) {
        *value = match attribute {
            CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR => 8,
            CUdevice_attribute::COMPUTE_CAPABILITY_MINOR => 0,
            CUdevice_attribute::MAX_GRID_DIM_X => i32::MAX,
            CUdevice_attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 163 << 10,
            _ => 1024,
        }
    }
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: i32) { *context = CONTEXT }
    cuDevicePrimaryCtxRelease_v2(device: i32) {}
    cuCtxSetCurrent(context: CUcontext) {}
    cuCtxSynchronize() {}
    cuCtxPushCurrent_v2(context: CUcontext) {}
    cuCtxPopCurrent_v2(context: *mut CUcontext) { *context = CONTEXT }
    cuCtxGetCurrent(context: *mut CUcontext) { *context = CONTEXT }
    cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: u32, options: *mut CUjit_option, values: *mut *mut c_void) {
        *module = CUmodule(handle());
    }
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void) { *module = CUmodule(handle()) }
    cuModuleUnload(module: CUmodule) {}
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) { *function = CUfunction(handle()) }
    cuFuncGetAttribute(value: *mut i32, attribute: CUfunction_attribute, function: CUfunction) {
        *value = if attribute == CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES { 48 << 10 } else { 1024 };
    }
    cuMemAlloc_v2(to: *mut u64, bytes: usize) { *to = next() as u64 }
    cuMemFree_v2(address: u64) {}
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) { (*free, *total) = (1 << 30, 1 << 30) }
    cuMemAllocAsync(to: *mut u64, bytes: usize, stream: CUstream) { *to = next() as u64 }
    cuMemFreeAsync(address: u64, stream: CUstream) {}
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: CUstream) {}
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: CUstream) {}
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: CUstream) {}
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: CUstream) {}
    cuStreamCreate(stream: *mut CUstream, flags: CUstream_flags) { *stream = CUstream(handle()) }
    cuStreamDestroy_v2(stream: CUstream) {}
    cuStreamSynchronize(stream: CUstream) {}
    cuStreamQuery(stream: CUstream) {}
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) {}
    cuEventCreate(event: *mut CUevent, flags: CUevent_flags) { *event = CUevent(handle()) }
    cuEventDestroy_v2(event: CUevent) {}
    cuEventRecord(event: CUevent, stream: CUstream) {}
    cuEventSynchronize(event: CUevent) {}
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) { *milliseconds = 0.0 }
    cuEventQuery(event: CUevent) {}
    cuLaunchKernel(f: CUfunction, x: u32, y: u32, z: u32, a: u32, b: u32, c: u32, shared: u32, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) {}
    cuGraphCreate(graph: *mut CUgraph, flags: u32) { *graph = CUgraph(handle()) }
    cuGraphDestroy(graph: CUgraph) {}
    cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2) { *node = CUgraphNode(handle()) }
    cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) {}
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: CUgraphInstantiate_flags) { *exec = CUgraphExec(handle()) }
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream) {}
    cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) {}
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) { *graph = CUgraph(handle()) }
    cuGraphExecDestroy(exec: CUgraphExec) {}
    cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2) {}
}
