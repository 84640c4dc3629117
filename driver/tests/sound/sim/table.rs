//! The functions of the driver.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use warpwright_driver::sys::*;

use super::{CAPTURED, CURRENT, HOOKS, Named, Queue, Work, copy, on, raw, run_to, sim};

/// `name(argument: type, ..) { what it does when it does not fail }`
macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),*) $body:block)*) => {
        /// The table.
        pub fn api() -> Api {
            let mut api = Api::empty();
            $(api.$name = {
                #[allow(non_snake_case, unused_variables)]
                unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                    HOOKS.try_with(|hooks| (hooks.get().call)(stringify!($name))).unwrap_or_default();
                    let failed = sim(|s| {
                        s.tell(|| format!("{:?} calls {}", std::thread::current().id(), stringify!($name)));
                        *s.calls.entry(stringify!($name)).or_default() += 1;
                        let (code, times) = s.fail.get_mut(stringify!($name)).filter(|f| f.1 > 0)?;
                        *times -= 1;
                        Some(*code)
                    });
                    if let Some(code) = failed {
                        return code;
                    }
                    // SAFETY: the crate passes pointers to places of these types.
                    #[allow(unused_unsafe)]
                    unsafe { $body }
                    #[allow(unreachable_code)]
                    CUresult::SUCCESS
                }
                ($name as unsafe extern "C" fn($($ty),*) -> CUresult).into()
            };)*
            api
        }
    };
}

functions! {
    cuInit(flags: c_uint) {}
    cuDriverGetVersion(version: *mut c_int) { *version = 12040 }
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int) { *device = ordinal }
    cuDeviceGetCount(count: *mut c_int) { *count = 2 }
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) { name.copy_from(c"Sim".as_ptr(), 4) }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) { *bytes = 1 << 30 }
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) {
        *value = match attribute {
            CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR => 8,
            CUdevice_attribute::COMPUTE_CAPABILITY_MINOR => 0,
            CUdevice_attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 163 << 10,
            _ => 1024,
        }
    }
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) {
        sim(|s| *s.retained.entry(device as usize).or_default() += 1);
        *context = CUcontext(raw(0xc000 + device as usize));
    }
    cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        sim(|s| {
            let there = s.retained.get_mut(&(device as usize)).filter(|n| **n > 0).map(|n| *n -= 1).is_some();
            s.expect(there, "the context");
        })
    }
    cuCtxGetCurrent(context: *mut CUcontext) { *context = CURRENT.with_borrow(|c| c.last().copied()).unwrap_or(CUcontext::NULL) }
    cuCtxPushCurrent_v2(context: CUcontext) { CURRENT.with_borrow_mut(|c| c.push(context)) }
    cuCtxPopCurrent_v2(context: *mut CUcontext) { *context = CURRENT.with_borrow_mut(|c| c.pop()).unwrap() }
    cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) {
        *module = CUmodule(raw(sim(|s| { let h = s.handle(); s.modules.insert(h); h })))
    }
    cuModuleUnload(module: CUmodule) {
        sim(|s| {
            s.expect_unused(&Named::Module(module.0 as usize));
            let there = s.modules.remove(&(module.0 as usize));
            s.expect(there, "a module");
        })
    }
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) {
        let count = usize::from(CStr::from_ptr(name).to_bytes()[1] - b'0');
        *function = CUfunction(raw(sim(|s| { let h = s.handle(); s.functions.insert(h, (module.0 as usize, count)); h })))
    }
    cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction) {
        *value = match attribute {
            CUfunction_attribute::MAX_THREADS_PER_BLOCK => 256,
            CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => 48 << 10,
            _ => 0,
        }
    }
    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int) {}
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) {
        *address = sim(|s| { s.last += bytes.next_multiple_of(256); let h = s.handle() as u64; s.memory.insert(h); h })
    }
    cuMemFree_v2(address: CUdeviceptr) {
        sim(|s| {
            s.expect_unused(&Named::Memory(address));
            let there = s.memory.remove(&address);
            s.expect(there, "memory");
        })
    }
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) { (*free, *total) = (1 << 29, 1 << 30) }
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: CUmemhostalloc_flags) {
        // Memory of whole pages, as the driver gives: at least that its address ends in zeros.
        let mut block = vec![0u64; bytes / 8 + 64];
        let at = (block.as_mut_ptr() as usize).next_multiple_of(256);
        *pointer = block.as_mut_ptr().byte_add(at - block.as_ptr() as usize).cast();
        sim(|s| s.pinned.insert(at as u64, block));
    }
    cuMemFreeHost(pointer: *mut c_void) {
        sim(|s| {
            s.expect_unused(&Named::Memory(pointer as u64));
            let there = s.pinned.remove(&(pointer as u64)).is_some();
            s.expect(there, "pinned memory");
        })
    }
    cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint) { *address = pointer as u64 }
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) { sim(|s| s.give(stream, on(to))) }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) { sim(|s| s.give(stream, copy(vec![from], Vec::new()))) }
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        sim(|s| s.give(stream, copy(vec![from], vec![to])))
    }
    cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream) {
        sim(|s| s.give(stream, copy(vec![from], vec![to])))
    }
    cuMemcpy3DPeerAsync(copied: *const CUDA_MEMCPY3D_PEER, stream: CUstream) {
        let (from, to) = ((*copied).srcDevice, (*copied).dstDevice);
        sim(|s| s.give(stream, copy(vec![from], vec![to])))
    }
    cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) { sim(|s| s.give(stream, on(to))) }
    cuStreamCreate(stream: *mut CUstream, flags: CUstream_flags) {
        *stream = CUstream(raw(sim(|s| { let h = s.handle(); s.streams.insert(h, Queue::default()); h })))
    }
    cuStreamDestroy_v2(stream: CUstream) {
        sim(|s| {
            let there = s.destroy(stream.0 as usize);
            s.expect(there, "a stream without work");
        })
    }
    cuStreamSynchronize(stream: CUstream) {
        if sim(|s| s.streams[&(stream.0 as usize)].capture.is_some()) { return CUresult::STREAM_CAPTURE_UNSUPPORTED }
        let given = sim(|s| s.streams[&(stream.0 as usize)].given);
        (HOOKS.get().wait)((stream.0 as usize, given));
    }
    cuStreamQuery(stream: CUstream) {
        if sim(|s| s.streams[&(stream.0 as usize)].capture.is_some()) { return CUresult::STREAM_CAPTURE_UNSUPPORTED }
        if sim(|s| s.asking_helps) { run_to((stream.0 as usize, u64::MAX)) }
        if !sim(|s| s.streams[&(stream.0 as usize)].work.is_empty()) { return CUresult::NOT_READY }
    }
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) {
        sim(|s| {
            let place = s.events.get(&(event.0 as usize)).copied();
            s.expect(place.is_some(), "an event");
            if let Some(Some(place)) = place { s.give(stream, Work::Wait(place)) }
        })
    }
    cuEventCreate(event: *mut CUevent, flags: CUevent_flags) {
        *event = CUevent(raw(sim(|s| { let h = s.handle(); s.events.insert(h, None); h })))
    }
    cuEventDestroy_v2(event: CUevent) {
        sim(|s| { let there = s.events.remove(&(event.0 as usize)).is_some(); s.expect(there, "an event") })
    }
    cuEventRecord(event: CUevent, stream: CUstream) {
        sim(|s| {
            let stream = stream.0 as usize;
            let place = (stream, s.streams[&stream].given);
            s.tell(|| format!("{event:?} is recorded at {place:?}"));
            let there = s.events.insert(event.0 as usize, Some(place)).is_some();
            s.expect(there, "an event");
        })
    }
    cuEventSynchronize(event: CUevent) {
        if let Some(place) = sim(|s| s.events[&(event.0 as usize)]) { (HOOKS.get().wait)(place) }
    }
    cuEventQuery(event: CUevent) {
        let done = sim(|s| s.events[&(event.0 as usize)].is_none_or(|place| s.is_done(place)));
        if !done { return CUresult::NOT_READY }
    }
    cuLaunchKernel(f: CUfunction, x: c_uint, y: c_uint, z: c_uint, a: c_uint, b: c_uint, c: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) {
        sim(|s| { let work = s.touch(f, params); s.give(stream, work) })
    }
    cuGraphCreate(graph: *mut CUgraph, flags: c_uint) {
        *graph = CUgraph(raw(sim(|s| { let h = s.handle(); s.graphs.insert(h, Vec::new()); h })))
    }
    cuGraphDestroy(graph: CUgraph) {
        sim(|s| { let there = s.graphs.remove(&(graph.0 as usize)).is_some(); s.expect(there, "a graph") })
    }
    cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2) {
        *node = sim(|s| { let work = s.touch((*params).func, (*params).kernelParams); s.add_node(graph, work) })
    }
    cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D_v2, context: CUcontext) {
        let (from, to) = ((*params).srcDevice.max((*params).srcHost as u64), (*params).dstDevice.max((*params).dstHost as u64));
        *node = sim(|s| s.add_node(graph, copy(vec![from], vec![to])))
    }
    cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) {
        *node = sim(|s| s.add_node(graph, on((*params).dst)))
    }
    cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize) { *node = sim(|s| s.add_node(graph, Work::Nothing)) }
    cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS_v1) {
        *node = sim(|s| s.add_node(graph, Work::Host((*params).r#fn, (*params).userData.expose_provenance())))
    }
    cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph) {
        *node = sim(|s| { let work = Work::Child(s.graphs[&(child.0 as usize)].clone()); s.add_node(graph, work) })
    }
    cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) { *node = sim(|s| s.add_node(graph, Work::Record(event.0 as usize))) }
    cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) { *node = sim(|s| s.add_node(graph, Work::Nothing)) }
    cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) {}
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: CUgraphInstantiate_flags) {
        *exec = CUgraphExec(raw(sim(|s| {
            let (h, work) = (s.handle(), s.graphs[&(graph.0 as usize)].clone());
            s.execs.insert(h, (graph.0 as usize, work));
            h
        })))
    }
    cuGraphExecDestroy(exec: CUgraphExec) {
        sim(|s| {
            s.expect_unused(&Named::Exec(exec.0 as usize));
            let there = s.execs.remove(&(exec.0 as usize)).is_some();
            s.expect(there, "an exec");
        })
    }
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream) {
        sim(|s| {
            let parts = s.execs[&(exec.0 as usize)].1.clone();
            let captures = s.streams[&(stream.0 as usize)].capture.is_some();
            let records: Vec<usize> =
                parts.iter().filter_map(|p| if let Work::Record(event) = p { Some(*event) } else { None }).collect();
            s.give(stream, if captures { Work::Child(parts) } else { Work::Graph(exec.0 as usize, parts) });
            let place = (stream.0 as usize, s.streams[&(stream.0 as usize)].given);
            for event in records {
                _ = s.events.insert(event, Some(place));
            }
        })
    }
    cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) {
        sim(|s| s.give(stream, Work::Host(function, data.expose_provenance())))
    }
    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) {
        *address = sim(|s| {
            s.last += bytes.next_multiple_of(256);
            let h = s.handle() as u64;
            s.memory.insert(h);
            s.give(stream, on(h));
            h
        })
    }
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) { sim(|s| s.give(stream, Work::Free(address))) }
    cuGraphUpload(exec: CUgraphExec, stream: CUstream) { sim(|s| s.give(stream, Work::Nothing)) }
    cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2) {
        sim(|s| {
            let work = s.touch((*params).func, (*params).kernelParams);
            let (_, at) = s.nodes[&(node.0 as usize)];
            s.execs.get_mut(&(exec.0 as usize)).unwrap().1[at] = work;
        })
    }
    cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) {
        sim(|s| {
            let h = s.handle();
            s.graphs.insert(h, Vec::new());
            let queue = s.streams.get_mut(&(stream.0 as usize)).unwrap();
            (queue.capture, *queue.last_node) = (Some(h), CUgraphNode::NULL);
        })
    }
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) {
        *graph = CUgraph(raw(sim(|s| {
            let captured = s.streams.get_mut(&(stream.0 as usize)).unwrap().capture.take();
            s.expect(captured.is_some(), "a capture");
            CAPTURED.set(captured.map_or(0, |graph| s.graphs[&graph].len()));
            captured.unwrap_or_default()
        })))
    }
    cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) {
        let captures = sim(|s| s.streams[&(stream.0 as usize)].capture.is_some());
        *status = if captures { CUstreamCaptureStatus::ACTIVE } else { CUstreamCaptureStatus::NONE };
    }
    cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, count: *mut usize) {
        sim(|s| {
            let last = &*s.streams[&(stream.0 as usize)].last_node;
            (*after, *count) = (std::ptr::from_ref(last), usize::from(!last.is_null()));
        })
    }
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        let found = sim(|s| s.nodes_of(graph));
        if !nodes.is_null() { nodes.copy_from(found.as_ptr(), found.len().min(*count)) }
        *count = found.len();
    }
    // Asked for graphs that one stream captured, whose nodes follow each other.
    cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) {
        let nodes = sim(|s| s.nodes_of(graph));
        let edges = nodes.len().saturating_sub(1);
        if !from.is_null() {
            from.copy_from(nodes.as_ptr(), edges.min(*count));
            to.copy_from(nodes[1..].as_ptr(), edges.min(*count));
        }
        *count = edges;
    }
}
